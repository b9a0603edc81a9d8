"""The `mainspring` command: a server, a worker and a client of the API in one program."""
