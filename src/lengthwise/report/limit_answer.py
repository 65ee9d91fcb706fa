"""What a run of `limit` says: both limits, in sentences; where it has no number, what is missing for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lengthwise.measure.limit_headlines import LEAST_BENEFIT, LEAST_DOCUMENTS
from lengthwise.measure.limit_rows import is_at_chance
from lengthwise.measure.statistics import clearly_beyond
from lengthwise.report.tables import row_text
from lengthwise.results import Results, Row, percent

REACHES = {"sound_up_to": "sound_again", "used_up_to": "used_again"}
"""Metric -> the metric of its stretch behind a gap."""


class _Reach(NamedTuple):
    """One of the two limits."""

    row: Row | None
    """None where there is no number."""
    end: int
    """Where measuring ended."""
    open: bool
    """Whether measuring ended before the interval did."""
    again: Row | None
    """The stretch behind a gap where it is so once more."""

    @property
    def interval(self) -> str:
        """`[low, high]`, or `[low, open]`; empty where there is none."""
        if self.row is None or self.row.ci_low is None or self.row.ci_high is None:
            return ""
        return f"[{self.row.ci_low:,.0f}, {'open' if self.open else f'{self.row.ci_high:,.0f}'}]"

    @property
    def text(self) -> str:
        """The number of tokens with its interval."""
        if self.row is None:
            return "not known"
        least = "at least " if self.row.at_least else ""
        return f"{least}{self.row.value:,.0f} {self.interval}".rstrip()


def reaches(run: Results) -> dict[str, _Reach]:
    """Metric -> how far it is so."""
    rows = {row.metric: row for row in run.rows if row.task == "limit" and row.value is not None}
    length, table = (
        max(row.length or 0 for row in run.rows),
        run.provenance.get("model", {}).get("max_positions"),
    )
    # Where a table of positions ends there is no more to find.
    whole = table is not None and length > table - 4 * bin_of(run)
    found = {}
    for metric, again in REACHES.items():
        row, end = rows.get(metric), length if metric == "sound_up_to" else length - passage_of(run)
        high = None if row is None else row.ci_high
        unended = row is not None and (bool(row.at_least) or (high is not None and high >= end and not whole))
        found[metric] = _Reach(row, end, unended, rows.get(again))
    return found


def bin_of(run: Results) -> int:
    """Tokens in a bin of the excess, an eighth of the reference; no interval is narrower."""
    return int(run.provenance.get("measurement", {}).get("reference") or 0) // 8


def passage_of(run: Results) -> int:
    """Tokens of a repeated passage."""
    return int(run.config.get("passage", 64))


class _Answer(NamedTuple):
    """An answer in a few words, and as a paragraph."""

    short: str
    whole: str
    without: str = "not known"
    """What is said in place of a number that there is not."""
    why: str = ""
    """Why there is none."""


def limit_answers(run: Results) -> tuple[_Answer, _Answer]:
    """Where predictions are sound, and how far back context is used."""
    rows = [
        row for row in run.rows if row.task == "limit" and row.value is not None and row.reference is None
    ]
    numbers = {
        row.metric: row for row in rows if row.distance is None and row.metric not in ("excess", "loss")
    }
    reference = min((row.position or 0 for row in rows if row.metric == "excess"), default=0)
    found, curves = reaches(run), [row for row in rows if row.distance]
    share = f"{percent(run.config['share'], None)} of " if "share" in run.config else ""
    return _sound(found["sound_up_to"], numbers, reference), _used(
        found["used_up_to"], numbers, curves, share
    )


def _sound(reach: _Reach, numbers: Mapping[str, Row], reference: int) -> _Answer:
    sound, tolerance = reach.row, numbers["tolerance"]
    if is_at_chance({metric: row.value for metric, row in numbers.items()}):
        why = (
            f"with its most recent tokens alone the loss is {row_text(numbers['recent_loss'])} nats per token, and "
            f"knowing only how often each token occurs gives {numbers['unigram_loss'].value:.3f}"
        )
        whole = f"The model predicts at chance: {why}. Whether such predictions are sound means nothing."
        return _Answer("predictions at chance", whole, "at chance", why)
    if sound is None:
        missing = _missing(tolerance.documents)
        why = missing or f"these {tolerance.documents} documents do not tell one place from another."
        return _unknown("where predictions stop being sound", why)
    known = "recent_loss" not in numbers or "trained_length" in numbers
    what = (
        f"the loss with all context is at most {tolerance.value:g} nats per token above the loss with only the most "
        "recent tokens"
    )
    if sound.value == reference:
        text = (
            f"Predictions are not sound beyond {reference:,} tokens of context, the reference: the limit is there or "
            f"below, and at most {sound.ci_high or reference:,.0f} tokens. Sound means that {what}."
        )
    else:
        text = f"Predictions are sound up to {reach.text} tokens of context: up to there {what}."
    if not known:
        text += (
            f" This holds if they are sound at {reference:,} tokens, the reference: the length that the model was "
            "trained for is not known, and the limit may lie below it."
        )
    if reach.again is not None:
        gap, again = _stretch(numbers["not_sound"]), _stretch(reach.again)
        text += f" They are not sound {gap} tokens, and are again {again}."
        return _Answer(f"sound up to {reach.text} tokens and again {again}", text)
    return _Answer(f"sound up to {reach.text} tokens", text)


def _helps(curves: Sequence[Row]) -> list[Row]:
    """Where a repeated passage clearly has a benefit that counts, nearest first."""
    return sorted(clearly_beyond(curves, LEAST_BENEFIT), key=lambda row: row.distance or 0)


def _used(reach: _Reach, numbers: Mapping[str, Row], curves: Sequence[Row], share: str) -> _Answer:
    used = reach.row
    if used is None:
        return _without_number(numbers, curves)
    beginning, gap = numbers.get("beginning_up_to"), numbers.get("not_used")
    inside = [row for row in curves if row.metric == "benefit_inside"]
    again = _used_again(reach, numbers, curves)
    far = f"{reach.text} tokens back{f' and again {again}' if again else ''}"
    short = f"used up to {far}"
    if used.value:
        text = (
            f"Context is used up to {reach.text} tokens back: up to there a repeated passage keeps at least {share}"
            "its benefit nearby."
        )
        if gap is not None:
            text += f" It is not used {_stretch(gap)} tokens back."
    else:
        short = f"context {'used in places alone' if _helps(curves) else 'not used'} ({far})"
        if gap is not None:
            text = (
                f"Context is not used {_stretch(gap)} tokens back: a repeated passage has no benefit there."
            )
        else:
            first = min((row.distance or 0 for row in inside), default=0)
            text = (
                f"Context is not used {first:,} tokens back or farther: a repeated passage from inside the text has "
                "no benefit that counts."
            )
    if beginning is not None:
        text += (
            f" Only the very beginning of the text is used farther, up to {beginning.value:,.0f} tokens back, as by "
            "a model that keeps its first tokens and forgets what follows them."
        )
    if again:
        text += f" It is used again {again} tokens back."
    return _Answer(short, text)


def _used_again(reach: _Reach, numbers: Mapping[str, Row], curves: Sequence[Row]) -> str:
    """The stretch behind a gap, and whether it has gaps of its own."""
    if reach.again is None:
        return ""
    level = numbers["used_level"].value or 0.0
    low, high = reach.again.position or 0, reach.again.position_end or 0
    there = [row for row in curves if row.metric == "benefit" and low <= (row.distance or 0) <= high]
    some = "here and there " if any((row.value or 0.0) < level for row in there) else ""
    return f"{some}{_stretch(reach.again)}"


def _without_number(numbers: Mapping[str, Row], curves: Sequence[Row]) -> _Answer:
    """What is known where the documents give no number."""
    nearby, what = numbers.get("benefit_nearby"), "how far back context is used"
    if "used_level" not in numbers:
        return _unknown(what, "in every window the passages that are repeated occur elsewhere too.")
    missing = _missing(numbers["used_level"].documents, " of which a window is read twice")
    if missing:
        return _unknown(what, missing)
    if nearby is None or nearby.ci_low is None or nearby.ci_high is None:
        return _unknown(what, "a repeated passage has no clear benefit nearby.")
    worth, helps = f"a benefit of {row_text(nearby)} nats per token", _helps(curves)
    if helps and nearby.ci_low <= LEAST_BENEFIT:
        where = " inside the text" if helps[0].metric == "benefit_inside" else ""
        why = (
            f"nearby a repeated passage from the beginning has {worth}, and one{where} {helps[0].distance:,} tokens "
            f"back has {row_text(helps[0])}"
        )
        whole = f"Context is used in places alone: {why}. How far back is not known."
        return _Answer("context used in places alone", whole, "in places alone", why)
    recent = numbers.get("recent_loss")
    if nearby.ci_high < LEAST_BENEFIT and recent is not None and (recent.value or 0.0) < 2 * LEAST_BENEFIT:
        return _unknown(
            what,
            "with its most recent tokens alone the model predicts this text with a loss of "
            f"{row_text(recent)} nats per token, and a repeated passage can add nothing.",
        )
    if nearby.ci_high < 0:
        why = f"nearby a repeated passage has {worth}, and makes predictions worse."
        return _Answer("context used to its harm", f"Context is used to its harm: {why}", "to its harm", why)
    if nearby.ci_high < LEAST_BENEFIT:
        first = min((row.distance or 0 for row in curves), default=0)
        why = (
            f"from {first:,} tokens back on, a repeated passage there has {worth}, and less than {LEAST_BENEFIT:g} "
            "does not count."
        )
        whole = f"Context is not used, not even nearby: {why}"
        return _Answer("context not used", whole, "not at all", why)
    if nearby.ci_low <= LEAST_BENEFIT:
        why = f"which is not clearly at least {LEAST_BENEFIT:g}."
        return _unknown(what, f"nearby a repeated passage has {worth}, {why}")
    return _unknown(what, f"nearby a repeated passage has {worth}, and the documents show no end.")


def _unknown(what: str, why: str) -> _Answer:
    return _Answer(f"{what} is not known", f"{what.capitalize()} is not known: {why}", why=why)


def _stretch(row: Row) -> str:
    if row.position == row.position_end:
        return f"{row.position:,}"
    return f"from {row.position:,} to {row.position_end:,}"


def _missing(documents: int | None, which: str = "") -> str | None:
    """What is missing for a number; None if nothing is. A run of an earlier version may not say."""
    if documents is None or documents >= LEAST_DOCUMENTS:
        return None
    there = f"are {documents} documents" if documents > 1 else "is one"
    return f"that needs at least {LEAST_DOCUMENTS} documents{which}, and there {there}."
