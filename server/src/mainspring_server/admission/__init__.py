"""What the server lets in: limits, payload sizes, overload."""
