"""Sparsity and length generalization: planted correlations, position coupling, and the bounds on them."""
