"""What a study measures of every model: the metric with its parts, loss by length, recall by distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.measure import (
    Measurement,
    MisalignmentSpec,
    PerplexitySpec,
    RecallSpec,
    measure_misalignment,
    measure_perplexity,
    measure_recall,
    paired_difference,
)
from lengthwise.models import LoadedModel
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.text import TokenDocuments


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured, and at which lengths (tokens)."""

    misalignment_length: int
    windows: int
    loss_lengths: tuple[int, ...]
    segments: int
    distances: tuple[int, ...]
    pairs: int
    passage: int = 64
    scored: int = 48
    batch_size: int = 8
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a run folder's settings."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Evaluation:
    """The three measurements of one model, on the same tokens as every other model of the study."""

    misalignment: Measurement
    perplexity: Measurement
    recall: Measurement

    def __iter__(self) -> Iterator[Measurement]:
        return iter((self.misalignment, self.perplexity, self.recall))

    def rows(self, *, arm: str, seed: int | None = None) -> list[Row]:
        """All numbers, marked with the arm and seed that they belong to."""
        return [replace(row, arm=arm, seed=seed) for one in self for row in one.rows]

    def differences(
        self, other: Evaluation, *, arm: str, reference: str, seed: int | None = None
    ) -> list[Row]:
        """All numbers minus those of `other`, paired by document; `reference` names the other arm."""
        return [
            replace(row, arm=arm, reference=reference, seed=seed)
            for mine, theirs in zip(self, other, strict=True)
            for row in paired_difference(mine, theirs)
        ]


def evaluate(model: LoadedModel, documents: TokenDocuments, plan: Plan, *, folder: Path) -> Evaluation:
    """Measure `model`; finished samples are kept in `folder`, so that a second call goes on where it stopped.

    Raises:
        Interrupted: Ctrl-C; the finished samples stay.
        UsageError: the folder holds samples of other text or settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    common: dict[str, Any] = {"seed": plan.seed, "batch_size": plan.batch_size}
    return Evaluation(
        misalignment=measure_misalignment(
            model,
            documents,
            MisalignmentSpec(lengths=(plan.misalignment_length,), windows=plan.windows, **common),
            log=SampleLog(folder / "misalignment.jsonl"),
        ),
        perplexity=measure_perplexity(
            model,
            documents,
            PerplexitySpec(lengths=plan.loss_lengths, segments=plan.segments, **common),
            log=SampleLog(folder / "perplexity.jsonl"),
        ),
        recall=measure_recall(
            model,
            documents,
            RecallSpec(
                distances=plan.distances, passage=plan.passage, scored=plan.scored, pairs=plan.pairs, **common
            ),
            log=SampleLog(folder / "recall.jsonl"),
        ),
    )
