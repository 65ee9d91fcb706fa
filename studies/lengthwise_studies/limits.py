"""The product's own question: up to which length are predictions sound, and is context used?

`limit` on `tiny-books` in full and on SmolLM2-135M as far as the time of a demo allows, each as it is and with YaRN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lengthwise.report.figures import limit_curves
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results
from lengthwise.settings import Dtype
from lengthwise_studies.arm_tables import arms_table, by_line, first_estimate
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.skeleton import Part

PLAIN = "as it is"
NUMBERS = {"sound_up_to": "sound up to (tokens)", "used_up_to": "context used up to (tokens)"}


def _limit(model: str, factor: float, dtype: Dtype | Literal["fast"], scales: dict[str, Scale]) -> Part:
    experiment = Experiment(
        kind="limit-study",
        dtype=dtype,
        arms=(Arm(name=PLAIN), Arm(name=f"YaRN x{factor:g}", method="yarn", factor=factor)),
        notes=(
            "{measures[limit][windows]} windows of held-out books, the same in both arms; context up to "
            "{measures[limit][length]} tokens, compared with the last {measures[limit][reference]}.",
        ),
    )
    return experiment.part(sections, scales, folder=f"limit-{model}", heading=f"Effective context: {model}")


def _measures(length: int, reference: int, windows: int) -> dict[str, dict[str, Any]]:
    return {"limit": {"length": length, "reference": reference, "windows": windows}}


def sections(results: Results, folder: Path) -> list[Section]:
    """The two limits of each arm, in words, in numbers and in the picture."""
    picture = limit_curves(results.rows, name=folder.name)
    trained = results.provenance["model"]["trained_length"]
    return [
        Section(
            title=f"Where the context of {results.model_name} ends",
            paragraphs=[
                f"`{results.model_name}` was trained for {trained} tokens. Predictions are sound while reading all "
                "context is no worse than reading its end alone, and context is used while a repeated passage is "
                "recognised.",
                *reading(results),
            ],
            tables=[limits_table(results)],
            figures=[picture] if picture is not None else [],
            notes=results.notes,
        )
    ]


def reading(results: Results) -> list[str]:
    """One sentence for each arm, made from its numbers."""
    sentences = []
    for arm, sound, used in limits_table(results).rows:
        assert isinstance(sound, Estimate)
        assert isinstance(used, Estimate)
        use = "no use of context was found" if used.value is None else f"context used up to {used.text}"
        sentences.append(f"{arm}: sound up to {sound.text} tokens; {use}.")
    return sentences


def limits_table(results: Results) -> Table:
    """One line for each arm: both limits with their intervals."""
    shown = [Quantity(heading=heading, task="limit", metric=metric) for metric, heading in NUMBERS.items()]
    return arms_table(
        by_line(results.rows, lambda row: row.arm if row.reference is None else None),
        shown,
        first_estimate,
        caption=f"{results.model_name}: effective context, 95 % intervals over documents",
    )


_SMOKE = Scale(model="tiny-books", measures=_measures(256, 32, 2))
PARTS = (
    _limit(
        "tiny-books",
        4,
        "auto",
        {"default": Scale(model="tiny-books", measures=_measures(1024, 32, 32)), "smoke": _SMOKE},
    ),
    _limit(
        "smollm2-135m",
        2,
        # The tolerance is a tenth of a nat: bfloat16 is exact enough, and much faster.
        "fast",
        {"default": Scale(model="smollm2-135m", measures=_measures(8192, 1024, 2)), "smoke": _SMOKE},
    ),
)
