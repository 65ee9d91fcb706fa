"""Every architecture that transformers has a causal model for, tiny and random: each verb against whole readings."""
