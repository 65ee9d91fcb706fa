"""Evaluations: tasks with right answers over long input. Nothing here imports torch before it is used."""

from lengthwise import lazy_names

_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]
