"""Every measurement of one model of a study, on one text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.measure import MEASUREMENTS, Measurement, paired_difference, run
from lengthwise.models import LoadedModel
from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise.studies.arms import Measures, samples_file
from lengthwise.text import Corpus, tokenize

MEASURES: dict[str, type[Measurement]] = {
    kind.task or kind.kind: kind for kind in (entry.measurement for entry in MEASUREMENTS.values())
}
"""The measurements by the names that scales use: the task of their rows, "eval" for questions."""

Measured = dict[str, Results]


def measure(
    model: LoadedModel, text: Corpus, measures: Measures, folder: Path, *, evaluator: str | None = None
) -> Measured:
    """Every measurement of one model. Finished samples stay in `folder`, from where a second call continues.

    `evaluator` finds the key tokens of LongPPL: one for all arms, so that they are compared on the same tokens.

    Raises:
        Interrupted: Ctrl-C. Finished samples stay.
        UsageError: the folder holds samples of other text or settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # One call for all measurements: the text is tokenised once.
    documents = tokenize(text, model.tokenizer)
    found: Measured = {}
    for name, settings in measures.items():
        measurement = measure_named(name)(**settings)
        found[name] = run(
            measurement,
            model,
            documents if measurement.reads == "tokens" else text,
            other=evaluator if measurement.kind == "longppl" else None,
            log=SampleLog(folder / samples_file(name)),
        )
    return found


def differences(own: Measured, other: Measured, *, arm: str, reference: str, seed: int | None) -> list[Row]:
    """The paired differences of all measurements: `own`, the model of `arm`, minus `other`, that of `reference`."""
    return [
        replace(row, arm=arm, reference=reference, seed=seed)
        for name, measurement in own.items()
        for row in paired_difference(measurement, other[name])
    ]


def measure_named(name: str) -> type[Measurement]:
    """The measurement of a name in `Measures`; a word after it tells apart two with other settings."""
    return MEASURES[name.partition(" ")[0]]
