"""The verdict of each cell: a verb on a model, against whole readings."""

from __future__ import annotations

import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from checks.zoo import verbs
from checks.zoo.architectures import Animal, build
from checks.zoo.verbs import CHUNK, DECODED, Case
from lengthwise.errors import LengthwiseError

TOLERANCE = 2e-4
"""Nats, of a mean over tokens or of an answer, that rounding in float32 explains. Faults are of 0.003 and more."""


class Cell(NamedTuple):
    """What came of a verb on a model.

    Args:
        verdict: equal; refused; transformers (its own cached generation is not what it reads whole); wrong; or crash.
        error: the largest difference from whole readings, in nats, or of replies the share that is not so.
        why: why it is refused, or what is wrong, in words.
    """

    verdict: str
    error: float | None = None
    why: str = ""


def _numbers(verb: Callable[[Case], Any], case: Case) -> Cell:
    """Of a verb that must give these numbers on every model."""
    error = max(abs(said - so) for said, so in verb(case))
    return Cell("equal" if error <= TOLERANCE else "wrong", error)


def _path(case: Case, own: dict[str, Any], **side: Any) -> Cell:
    """Of `compare` along a path, which may itself be what differs: `own` is how transformers goes it."""
    [(error, _)] = verbs.compare(case, **side)
    if error <= TOLERANCE:
        return Cell("equal", error)
    apart = case.served_apart(**own)
    return Cell("transformers" if apart is not None and apart > TOLERANCE else "wrong", error)


def _replies(case: Case, batch: int) -> Cell:
    found = list(verbs.replies(case, batch))
    wrong = [(said, own) for said, so, own in found if said != so]
    share = len(wrong) / max(1, len(found))
    if wrong and all(said == own for said, own in wrong):
        return Cell("transformers", share)
    return Cell("wrong" if wrong else "equal", share)


_CHUNKS = {"prefill_chunk_size": CHUNK}
PLANNED = "a dry run"
_STATIC = _CHUNKS | {"cache_implementation": "static"}
VERBS: dict[str, Callable[[Case], Cell]] = {
    "ppl": partial(_numbers, verbs.ppl),
    "ppl, batches": partial(_numbers, partial(verbs.ppl, batch=3)),
    "after another text": partial(_numbers, verbs.after_another),
    "measure": partial(_numbers, verbs.measure),
    "longppl": partial(_numbers, verbs.longppl),
    "limit": partial(_numbers, verbs.limit),
    "compare, decode": partial(_path, own={}, read=f"decode={DECODED}"),
    "compare, chunks": partial(_path, own=_CHUNKS, read=f"chunks={CHUNK}"),
    "compare, static cache": partial(_path, own=_STATIC, read=f"chunks={CHUNK}", kv_cache="static"),
    "compare, full cache": partial(_path, own=_CHUNKS, read=f"chunks={CHUNK}", kv_cache="full"),
    "eval, likelihoods": partial(_numbers, verbs.likelihoods),
    "eval, likelihoods, batches": partial(_numbers, partial(verbs.likelihoods, batch=3)),
    "eval, replies": partial(_replies, batch=1),
    "eval, replies, batches": partial(_replies, batch=3),
    "train": partial(_numbers, verbs.train),
    PLANNED: partial(_numbers, verbs.dry_run),
}
"""The columns."""


def judged(animal: Animal, names: Sequence[str]) -> dict[str, Cell] | str:
    """The cell of each verb on a tiny model of it; or why there is none."""
    with tempfile.TemporaryDirectory() as kept, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Its name is part of what is said.
            folder = Path(kept) / "model"
            build(animal, folder)
            case = Case(folder)
            none = case.plain.why_none(case.sample)
        # Each architecture fails in its own way.
        except Exception as error:
            return _first(error)
        cells = {name: cell_of(case, name) for name in names}
        if none is None:
            return cells
        wrong = Cell("wrong", None, f"{none}, and is not refused")
        # A dry run reads no weights.
        return {
            name: cell if cell.verdict == "refused" or name == PLANNED else wrong
            for name, cell in cells.items()
        }


def cell_of(case: Case, name: str) -> Cell:
    """The cell of a verb."""
    try:
        return VERBS[name](case)
    except LengthwiseError as error:
        return Cell("refused", None, _first(error))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Cell("crash", None, f"{type(error).__name__}: {_first(error)} ({where})")


def _first(error: Exception) -> str:
    """The first line, with no word of the folder."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return re.sub(r"\S*/model\b", "the model", (lines or [type(error).__name__])[0])[:200]
