"""Position ids for training: a short window that stands at positions of a longer context. One file a sampler."""
