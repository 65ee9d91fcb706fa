"""What is measured: a model and the way that it is read, from its weights, an endpoint or llama.cpp.

The names in `__init__.pyi` are loaded on first use: nothing here imports torch before.
"""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
