"""Generated stubs of the `mainspring.v1` protos; `make gen` writes them."""
