"""Position ids for training: a short window at positions of a longer context. One file per sampler."""
