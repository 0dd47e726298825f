"""Benchmarks of what grows: members of one coordinator, numbers of one vector."""
