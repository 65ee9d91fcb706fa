"""Runs of limit and compare for cards, and what a card has drawn."""

from typing import Any

from lengthwise.report.card_drawing import (
    Card,
    shapes,
)
from lengthwise.results import Results, Row
from tests.report.made_rows import estimate

LENGTH, PASSAGE = 16384, 64
ABOUT: dict[str, Any] = {
    "packages": {"lengthwise": "0.2.0"},
    "started": "2026-11-26T15:41:17Z",
    "weights": "17dceb61c67b",
    "model": {"claimed_length": 8192, "max_positions": None, "dtype": "bfloat16"},
    "text": {"corpus": "books", "split": "test", "corpus_fingerprint": "2abb"},
    "measurement": {"reference": 1024},
}


def limit(
    sound: dict[str, Any] | None = None, used: dict[str, Any] | None = None, *, model: str = "m", **about: Any
) -> Results:
    """A run of limit; a number has value, ci_low, ci_high, at_least."""
    common: dict[str, Any] = {"model": model, "task": "limit", "length": LENGTH, "documents": 6}
    rows = [
        Row(metric=metric, unit="tokens", **{"value": None, **(given or {})}, **common)
        for metric, given in (("sound_up_to", sound), ("used_up_to", used))
    ]
    rows += [
        Row(metric="tolerance", value=0.1, **common),
        Row(metric="used_level", value=0.3, **common),
        Row(metric="benefit_nearby", value=0.05, ci_low=-0.13, ci_high=0.23, **common),
    ]
    config = {"model": model, "tolerance": 0.1, "share": 0.1, "passage": PASSAGE}
    provenance = {**ABOUT, "model": ABOUT["model"] | about}
    return Results(kind="limit", model_name=model, config=config, rows=rows, provenance=provenance)


def compare(*, floor: float = 1e-4, clear: bool = True, **provenance: Any) -> Results:
    """A run of compare: 0.2 apart, of 0.012 higher loss, with nine tenths of a passage's worth, if it had any."""
    common: dict[str, Any] = {"model": "m", "task": "difference", "length": 512}
    benefit = 2.0 if clear else 0.2
    rows = [
        estimate(0.2, 0.03, metric="difference", **common),
        estimate(0.012, 0.002, metric="shift", **common),
        Row(metric="floor_a", value=floor, **common),
        Row(metric="floor_b", value=1e-4, **common),
        Row(metric="tolerance", value=1e-3, **common),
        *(Row(metric="tolerance", value=1e-3, position=p, position_end=p + 256, **common) for p in (0, 256)),
        Row(metric="difference", value=1e-4, n=256, position=0, position_end=256, **common),
        estimate(0.4, 0.05, metric="difference", n=256, position=256, position_end=512, **common),
        estimate(benefit, 0.5, metric="benefit_a", distance=256, **common),
        estimate(0.9 * benefit, 0.5, metric="benefit_b", distance=256, **common),
        estimate(-0.1 * benefit, 0.05, metric="benefit_change", distance=256, p_holm=0.2, **common),
        estimate(0.9, 0.05, metric="benefit_kept", unit="ratio", distance=256, **common),
    ]
    config = {"model": "m", "side_b": {"model": "m", "kv_cache": "quanto-int4"}}
    return Results(
        kind="compare", model_name="m", config=config, rows=rows, provenance={**ABOUT, **provenance}
    )


SOUND = {"value": 10496.0, "ci_low": 10368.0, "ci_high": 10752.0}
USED = {"value": 7298.2, "ci_low": 4096.0, "ci_high": 8192.0}
OPEN = {"value": 7298.2, "ci_low": 4096.0, "ci_high": LENGTH - PASSAGE}
LEAST = {"value": float(LENGTH), "ci_low": LENGTH - 128.0, "ci_high": float(LENGTH), "at_least": True}


def boxes(card: Card, tone: str) -> list[Any]:
    return [each for each in shapes(card) if not hasattr(each, "text") and each.tone == tone]


def words(card: Card) -> list[str]:
    return [each.text for each in shapes(card) if hasattr(each, "text")]
