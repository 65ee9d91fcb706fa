"""A real model at the paper's geometry: windows of T = 8,192 tokens, read from T/4 to 4T, three seeds."""
