"""The task store: the port beside its adapters."""
