"""A pair compared, and what is wrong with what `compare` says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from checks.lab.bases import EMBEDDED
from checks.lab.sides import Base, Pair, Says
from lengthwise.errors import UsageError
from lengthwise.measure import Comparison, run
from lengthwise.report.comparison_verdict import evidence, verdict
from lengthwise.results import Results, Row


def compared(pair: Pair, base: Base, text: Any, **how: Any) -> Results:
    """What `compare` finds for a pair; a UsageError if it is refused."""
    base = base.cast(pair.dtype)
    lengths = tuple(length * base.scale for length in pair.lengths)
    with base.opened:
        spec = Comparison(lengths=lengths, windows=pair.windows)
        return run(spec, pair.a(base), text, other=pair.b(base), **how)


OPPOSITE = {"worse": "better", "better": "worse", "either": "either"}


class Judged(NamedTuple):
    """What is said of a pair, and what is wrong with it."""

    said: str
    wrong: list[str]


def judged(pair: Pair, base: Base, text: Any) -> Judged:
    """Compare a pair, and judge what is said."""
    try:
        found = compared(pair, base, text)
    except UsageError as error:
        said = f"refused: {error}"
        wrong = [] if pair.says.refused else ["it is refused"]
        return Judged(said, wrong + wrong_words(pair.says, said))
    return Judged(" ".join([*verdict(found.rows), *found.notes]), wrong_of(pair, found))


def wrong_of(pair: Pair, found: Results) -> list[str]:
    """What is wrong with what is said of a pair that was compared, at places as its lengths were scaled."""
    scale = max(row.length or 0 for row in found.rows) // max(pair.lengths)
    says, of = says_of(pair, found.model_name), evidence(found.rows)
    assert of is not None
    sentences = " ".join(verdict(found.rows))
    wrong = [] if of.pattern in says.pattern else [f"{of.pattern!r} in place of {' or '.join(says.pattern)}"]
    if says.sign is not None and of.sign != says.sign:
        wrong.append(f"sign {of.sign} in place of {says.sign}")
    if says.place is not None:
        place = says.place * scale
        low, high = of.place or (0, float("inf"))
        if not low <= place <= high or high - low > max(place, 64 * scale):
            wrong.append(f"place {of.place} in place of {place}")
    back = evidence(swapped(found.rows))
    if back is None or (back.pattern, back.place, back.sign) != (of.pattern, of.place, OPPOSITE[of.sign]):
        wrong.append(f"{back} where the sides are swapped")
    if says.use and of.use not in says.use:
        wrong.append(f"use {of.use} in place of {' or '.join(says.use)}")
    return wrong + wrong_words(says, sentences, found.notes)


def says_of(pair: Pair, model_name: str) -> Says:
    """What must be said of a pair of this model."""
    return pair.larger if pair.larger and model_name != EMBEDDED else pair.says


def swapped(rows: Sequence[Row]) -> list[Row]:
    """The rows of a comparison of B with A; benefits are of A alone, and stay out."""

    def of(row: Row) -> Row:
        low, high = row.ci_low, row.ci_high
        if row.metric in ("shift", "one_sided", "more_rows"):
            low, high = (None if each is None else -each for each in (high, low))
            return replace(row, value=-(row.value or 0.0), ci_low=low, ci_high=high)
        name, _, side = row.metric.rpartition("_")
        return replace(row, metric=f"{name}_{'ba'['ab'.index(side)]}") if side in ("a", "b") else row

    return [of(row) for row in rows if not row.metric.startswith("benefit")]


def wrong_words(says: Says, sentences: str, notes: Sequence[str] = ()) -> list[str]:
    """What sentences and notes lack, and what should not be in the sentences; whatever the case."""
    lower = sentences.lower()
    both = " ".join([lower, *notes]).lower()
    missing = [f"no {word!r}" for word in says.words if word.lower() not in both]
    return missing + [f"{word!r} is said" for word in says.never if word.lower() in lower]
