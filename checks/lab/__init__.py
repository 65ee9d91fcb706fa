"""Faults planted on purpose, and sound pairs: one table that the tests and `make check-lab` walk."""
