"""The time wheel: the port beside its adapters, and the pure hierarchy that both use."""
