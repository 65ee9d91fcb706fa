"""Measurements with intervals: misalignment, perplexity by length, limits of the context, LongPPL, differences."""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
