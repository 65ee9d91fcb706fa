"""Checkpoints: found, loaded, extended, saved, and compared with what they say of themselves.

The names in `__init__.pyi` are loaded on first use: nothing here imports torch before.
"""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
