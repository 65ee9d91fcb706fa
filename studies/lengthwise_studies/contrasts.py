"""What is compared of two arms: the measures that both have with the same settings, and what a claim is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.measure import paired_difference
from lengthwise.measure.difference import check_same_items, measurement_of
from lengthwise.measure.statistics import estimate_difference
from lengthwise.results import Results, Row
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.store import MEASURES


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A number of one arm minus that of another.

    Args:
        arm, against: the arms.
        measure: the measure that has the number; None: all that both arms have with the same settings.
        across: settings of the measure that may differ, because the claim is about them.
        lengths: of the arm and of the other, in tokens, where the claim compares two lengths.
    """

    arm: str
    against: str
    measure: str | None = None
    across: tuple[str, ...] = ()
    lengths: tuple[int, int] | None = None


def check_contrasts(contrasts: Iterable[Contrast], arms: Iterable[Arm], scale: Scale) -> None:
    """Raise UsageError if a contrast is of a measure that its two arms have with other settings."""
    measures = {arm.name: scale.measures_of(arm) for arm in arms}
    for each in contrasts:
        name = each.measure or ""
        both = [measures.get(arm, {}).get(name) for arm in (each.arm, each.against)]
        if None in both:
            continue
        one, other = (MEASURES[name](**(settings or {})).model_dump() for settings in both)
        if differing := _differing(one, other, each.across):
            shown = "; ".join(f"{key}: {one[key]!r} and {other[key]!r}" for key in differing)
            raise UsageError(
                f"{each.arm} and {each.against} are compared in {name} with other settings ({shown})",
                expected="measures of the same tokens",
            )


def differences(
    found: Mapping[str, Mapping[str, Results]], one: str, other: str, contrasts: Sequence[Contrast]
) -> list[Row]:
    """The paired differences of two arms in every measure that both have with the same settings.

    Where a contrast is about settings or about two lengths, also across these.
    """
    rows: list[Row] = []
    for name, a in found[one].items():
        if (b := found[other].get(name)) is None:
            continue
        about = [each for each in contrasts if (each.arm, each.against, each.measure) == (one, other, name)]
        across = [setting for each in about for setting in each.across]
        if _differing(a.provenance["measurement"], b.provenance["measurement"], across):
            continue
        if one != other:
            rows += paired_difference(a, b, kind=MEASURES[name], across=across)
        for lengths in dict.fromkeys(each.lengths for each in about if each.lengths):
            rows += _across_lengths(a, b, *lengths, name=name)
    return rows


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], across: Sequence[str]) -> list[str]:
    return sorted(key for key in {**one, **other}.keys() - {*across} if one.get(key) != other.get(key))


def _across_lengths(a: Results, b: Results, length: int, other_length: int, *, name: str) -> list[Row]:
    """The numbers of `a` at one length minus those of `b` at another, which is their `context_other`."""
    check_same_items(a, b)
    one, other = (
        [
            statistic
            for statistic in measurement_of(side, MEASURES[name]).statistics([*side.records.values()])
            if statistic.row.length == at and statistic.row.is_whole
        ]
        for side, at in ((a, length), (b, other_length))
    )
    by_metric = {statistic.row.metric: statistic for statistic in other}
    return [
        replace(estimate_difference(statistic, against), context_other=other_length)
        for statistic in one
        if (against := by_metric.get(statistic.row.metric)) is not None
    ]
