"""The idea of long-short alignment: the misalignment, its parts, and the objective. Torch loads on first use."""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
