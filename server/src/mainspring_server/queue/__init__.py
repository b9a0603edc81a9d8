"""The ready queue: the port beside its adapters."""
