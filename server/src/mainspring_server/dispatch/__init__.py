"""Matching ready tasks to the credit of connected workers."""
