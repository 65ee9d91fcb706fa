"""The literal table of studies: what each is, and how to run it to its page. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lengthwise.errors import UsageError, nearest
from lengthwise.studies.produced import Produced


@dataclass(frozen=True)
class Study:
    """One table, figure or demonstration as one command."""

    name: str
    description: str
    run: Callable[..., Produced]
    """Called with `out`, `resume`, `overwrite`, and `seeds` where `seeded`."""
    seeded: bool = False
    """Whether it can be repeated over several seeds."""


def _demo(**options: object) -> Produced:
    from lengthwise.studies.demo import produce_demo

    return produce_demo(**options)  # type: ignore[arg-type]


def _tiny_books(**options: object) -> Produced:
    from lengthwise.studies.tiny_books_page import produce_tiny_books

    return produce_tiny_books(**options)  # type: ignore[arg-type]


def _extension(**options: object) -> Produced:
    from lengthwise.studies.extension import produce_extension

    return produce_extension(**options)  # type: ignore[arg-type]


def _gap_views(**options: object) -> Produced:
    from lengthwise.studies.gap_views import produce_gap_views

    return produce_gap_views(**options)  # type: ignore[arg-type]


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study("demo", "a real model before and after a few steps, and the small study; one page", _demo),
        Study(
            "tiny-books",
            "what each term of the objective does to a model of 1M parameters trained from scratch",
            _tiny_books,
            seeded=True,
        ),
        Study(
            "gap-views",
            "recall after training on truncated windows, and on the same tokens with a gap in their positions",
            _gap_views,
            seeded=True,
        ),
        Study(
            "extension",
            "a real model read to twice its context: rope methods untrained, PI before and after LoRA (an hour)",
            _extension,
        ),
    )
}


def produce(
    name: str, out: Path, *, seeds: int | None = None, resume: bool = False, overwrite: bool = False
) -> Produced:
    """Run the study `name` in the folder `out`, or go on with it.

    Raises:
        UsageError: no such study; `seeds` for one that has none; see the study.
        Interrupted: Ctrl-C; what is finished stays.
    """
    if name not in STUDIES:
        raise UsageError(f"no study {name!r}", expected=nearest(name, STUDIES), fix="lengthwise ls studies")
    study = STUDIES[name]
    if seeds is None:
        return study.run(out=out, resume=resume, overwrite=overwrite)
    if not study.seeded:
        seeded = ", ".join(other.name for other in STUDIES.values() if other.seeded)
        raise UsageError(f"the study {name} runs one seed", expected=f"--seeds with one of: {seeded}")
    return study.run(out=out, seeds=seeds, resume=resume, overwrite=overwrite)
