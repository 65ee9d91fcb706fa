"""Training with the alignment objective: recipes, windows, the Trainer, runs. Torch loads on first use."""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
