"""What a run of `limit` says, in sentences; where it has no number, what is missing for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.measure.limit_headlines import LEAST_BENEFIT, LEAST_DOCUMENTS
from lengthwise.measure.limit_rows import is_at_chance
from lengthwise.report.tables import row_text, tokens_text
from lengthwise.results import Row


def limit_sentences(rows: Sequence[Row], config: Mapping[str, Any]) -> list[str]:
    """Two paragraphs: where predictions are sound, and how far back context is used. `rows` have values."""
    numbers = {
        row.metric: row for row in rows if row.distance is None and row.metric not in ("excess", "loss")
    }
    reference = min((row.position or 0 for row in rows if row.metric == "excess"), default=0)
    return [_sound(numbers, reference), _used(numbers, [row for row in rows if row.distance], config)]


def _sound(numbers: Mapping[str, Row], reference: int) -> str:
    sound, tolerance = numbers.get("sound_up_to"), numbers["tolerance"]
    if is_at_chance({metric: row.value for metric, row in numbers.items()}):
        return (
            f"The model predicts at chance: with its most recent tokens alone the loss is "
            f"{row_text(numbers['recent_loss'])} nats per token, and knowing only how often each token occurs gives "
            f"{numbers['unigram_loss'].value:.3f}. Whether such predictions are sound means nothing."
        )
    if sound is None:
        missing = _missing(tolerance.documents)
        why = missing or f"these {tolerance.documents} documents do not tell one place from another."
        return f"Where predictions stop being sound is not known: {why}"
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
        text = f"Predictions are sound up to {tokens_text(sound)} of context: up to there {what}."
    if not known:
        text += (
            f" This holds if they are sound at {reference:,} tokens, the reference: the length that the model was "
            "trained for is not known, and the limit may lie below it."
        )
    if "not_sound" in numbers:
        gap, again = numbers["not_sound"], numbers["sound_again"]
        text += f" They are not sound from {_stretch(gap)} tokens, and are again from {_stretch(again)}."
    return text


def unused(numbers: Mapping[str, Row]) -> bool:
    """Whether a repeated passage has no benefit that counts, not even nearby."""
    level, nearby = numbers.get("used_level"), numbers.get("benefit_nearby")
    if "used_up_to" in numbers or level is None or nearby is None or nearby.ci_high is None:
        return False
    return _missing(level.documents) is None and nearby.ci_high < LEAST_BENEFIT


def _used(numbers: Mapping[str, Row], curves: Sequence[Row], config: Mapping[str, Any]) -> str:
    used, nearby = numbers.get("used_up_to"), numbers.get("benefit_nearby")
    beginning = numbers.get("beginning_up_to")
    unknown = "How far back context is used is not known"
    if used is None and "used_level" not in numbers:
        return f"{unknown}: in every window the passages that are repeated occur elsewhere too."
    if used is None:
        missing = _missing(numbers["used_level"].documents, " of which a window is read twice")
        if missing:
            return f"{unknown}: {missing}"
        worth = "" if nearby is None else f" of {row_text(nearby)} nats per token"
        if nearby is None or nearby.ci_low is None or nearby.ci_high is None:
            return f"{unknown}: a repeated passage has no clear benefit nearby."
        if unused(numbers):
            return (
                f"Context is not used, not even nearby: a repeated passage there has a benefit{worth}, and less than "
                f"{LEAST_BENEFIT:g} does not count."
            )
        if nearby.ci_low <= LEAST_BENEFIT:
            return (
                f"{unknown}: nearby a repeated passage has a benefit{worth}, which is not clearly at least "
                f"{LEAST_BENEFIT:g}."
            )
        return f"{unknown}: nearby a repeated passage has a benefit{worth}, and the documents show no end."
    share = f"{100 * config['share']:g} % of " if "share" in config else ""
    if not used.value:
        first = min((row.distance or 0 for row in curves if row.metric == "benefit_inside"), default=0)
        text = (
            f"Context is not used {first:,} tokens back or farther: a repeated passage from inside the text has no "
            "benefit that counts."
        )
    else:
        text = (
            f"Context is used up to {tokens_text(used)} back: up to there a repeated passage keeps at least {share}"
            "its benefit nearby."
        )
    if beginning is not None:
        text += (
            f" Only the very beginning of the text is used farther, up to {beginning.value:,.0f} tokens back, as by "
            "a model that keeps its first tokens and forgets what follows them."
        )
    if "not_used" in numbers:
        gap, again = numbers["not_used"], numbers["used_again"]
        text += f" It is not used from {_stretch(gap)} tokens back, and is again from {_stretch(again)}."
    return text


def _stretch(row: Row) -> str:
    return f"{row.position:,} to {row.position_end:,}"


def _missing(documents: int | None, which: str = "") -> str | None:
    """What is missing for a number; None if nothing is. A run of an earlier version may not say."""
    if documents is None or documents >= LEAST_DOCUMENTS:
        return None
    there = f"are {documents} documents" if documents > 1 else "is one"
    return f"that needs at least {LEAST_DOCUMENTS} documents{which}, and there {there}."
