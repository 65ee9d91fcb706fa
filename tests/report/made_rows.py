"""Rows as real ones look, with made-up but plausible numbers."""

import itertools
import math
import random
from typing import Any

from lengthwise.results import Row

LENGTHS = (256, 512, 1024)


def estimate(value: float, half: float, **given: Any) -> Row:
    fields = {"stderr": half / 2, "ci_low": value - half, "ci_high": value + 1.1 * half, "documents": 10}
    return Row(**{**fields, "value": value, **given})


def misalignment_rows(model: str = "smollm2-135m", *, shift: float = 0.0, **given: Any) -> list[Row]:
    rows: list[Row] = []
    for length in LENGTHS:
        common = {"model": model, "task": "misalignment", "length": length, **given}
        entropy = 6.9 - 0.1 * math.log2(length / 256) + shift
        jeffreys = 0.06 * (256 / length) ** 0.7 * (1 + shift)
        rows += [
            estimate(entropy + jeffreys, 0.21, metric="sce", n=12336, **common),
            estimate(entropy, 0.21, metric="entropy", n=12336, **common),
            estimate(jeffreys, 0.004, metric="jeffreys", n=12336, **common),
            estimate(jeffreys / 8, 0.0005, metric="js", n=12336, **common),
            estimate(0.95, 0.01, metric="top1_agreement", unit="share", n=12336, **common),
        ]
        common["metric"] = "jeffreys"
        ends = [length // 2 + length * part // 10 for part in (1, 2, 3, 4, 5)]
        for one, other in itertools.combinations_with_replacement(reversed(ends), 2):
            value = jeffreys * (0.1 + (one - other) / length * 3)
            rows.append(estimate(value, 0.003, context=one, context_other=other, **common))
        step = length // 16
        for position in range(length // 2, length, step):
            value = jeffreys * (1 + 2 * math.exp(-(position - length / 2) / (length / 8)))
            rows.append(
                estimate(value, value / 10, position=position, position_end=position + step, **common)
            )
    return rows


def perplexity_rows(model: str = "smollm2-135m", *, shift: float = 0.0, **given: Any) -> list[Row]:
    rows: list[Row] = []
    for length in LENGTHS:
        common = {"model": model, "task": "perplexity", "length": length, **given}
        loss = 3.2 + shift - 0.06 * math.log2(length / 256)
        rows += [
            estimate(loss, 0.09, metric="loss", n=32768, **common),
            estimate(math.exp(loss), 2.1, metric="perplexity", unit="ratio", n=32768, **common),
            estimate(loss - 0.004, 0.09, metric="loss_best_temperature", n=32768, **common),
            estimate(0.97, 0.01, metric="inverse_temperature", unit="ratio", n=32768, **common),
        ]
        step = length // 8
        for position in range(0, length, step):
            value = loss + 0.7 * math.exp(-position / 40)
            rows.append(
                estimate(value, 0.1, metric="loss", position=position, position_end=position + step, **common)
            )
    return rows


def limit_rows(model: str = "smollm2-135m", *, sound: int | None = 10_000) -> list[Row]:
    """A model that is sound up to `sound` tokens, or as far as was measured."""
    common: dict[str, Any] = {"model": model, "task": "limit", "length": 16384}
    rows = [
        estimate(
            sound or 16384, 400, metric="sound_up_to", unit="tokens", at_least=sound is None or None, **common
        ),
        estimate(7000, 900, metric="used_up_to", unit="tokens", **common),
        Row(value=0.1, metric="tolerance", **common),
        estimate(0.3, 0.05, metric="used_level", **common),
    ]
    for position in range(1024, 16384, 512):
        bad = max(0, position - (sound or 16384)) / 2000
        for metric, value in (("excess", bad - 0.05), ("jeffreys", bad + 0.1), ("loss", bad + 3)):
            rows.append(
                estimate(value, 0.05, metric=metric, position=position, position_end=position + 512, **common)
            )
    for distance in (128, 512, 2048, 8192, 16320):
        rows.append(estimate(3 - distance / 3000, 0.1, metric="benefit", distance=distance, **common))
    return rows


def metrics_records(steps: int = 10) -> list[dict[str, Any]]:
    rng = random.Random(steps)
    records = []
    for step in range(1, steps + 1):
        parts = {
            "cross_entropy": 3.2 - 0.02 * math.log(step) + rng.gauss(0, 0.05),
            "entropy": 6.8 + rng.gauss(0, 0.08),
            "jeffreys": 0.03 * math.exp(-step / steps) + rng.uniform(0, 0.004),
        }
        parts["misalignment"] = parts["entropy"] + parts["jeffreys"]
        loss = parts["cross_entropy"] + 0.1 * parts["misalignment"]
        records.append({"step": step, "loss": loss, "learning_rate": 1e-4, **parts})
    return records
