"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it.

The names in `__init__.pyi` are loaded on first use, so that `import lengthwise` and `lengthwise --help` stay quick.
"""

from lengthwise.lazy import lazy_names

__version__ = "0.2.0"

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
