"""The workloads: each module has `KEYS`-free JSON to answer, from one function `run`."""
