"""The workloads: one module each, whose `run(options)` answers its part of the JSON."""
