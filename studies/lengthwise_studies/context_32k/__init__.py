"""A model with a context of 32,768 tokens, to its end and beyond: `python -m lengthwise_studies.context_32k`."""
