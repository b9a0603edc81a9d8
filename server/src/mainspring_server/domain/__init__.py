"""The rules of a task's life: pure data and functions, no I/O, no clock, no randomness."""
