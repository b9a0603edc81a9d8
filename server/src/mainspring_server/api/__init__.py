"""The gRPC services: decode, check, call the engine, encode. No decision is taken here."""
