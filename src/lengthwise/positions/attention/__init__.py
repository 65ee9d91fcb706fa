"""Attention methods: pure functions of queries, keys and values after rope. One file per method."""
