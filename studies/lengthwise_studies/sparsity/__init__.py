"""The studies of the sparsity paper: sparse parity, position coupling, and the bounds against trained models."""
