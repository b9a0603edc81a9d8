"""Measurements of Mainspring beside what it stands on and beside its peers; see docs/performance.md."""
