"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it."""

__version__ = "0.1.0"
