"""A model with a context of 32,768 tokens, to its end and beyond: its texts, and the commands that read them."""
