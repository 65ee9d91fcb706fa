"""Rebuttal, question 6: do other positional encodings have other misalignments?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise_studies.arms import Arm
from lengthwise_studies.paper.measures import PARTS, loss
from lengthwise_studies.paper.models import Models, model_arm, number_of, study_of_models
from lengthwise_studies.tiny_models import TinyModel

SHOWN = (*PARTS, loss(1), loss(4))


def _models(model: TinyModel, **samples: int) -> tuple[Arm, ...]:
    """The four encodings, and rope under each extension by 4."""
    encodings = (replace(model, encoding=name) for name in ("rope", "nope", "alibi", "learned"))
    length = model.length
    return (
        *(model_arm(one.encoding, one, length, 4, None, **samples) for one in encodings),
        *(model_arm("rope", model, length, 4, method, **samples) for method in ("pi", "ntk", "yarn")),
    )


_SMALLEST = _models(TinyModel(steps=2, width=32, layers=1, length=32), windows=2, segments=2)
SCALES = {
    "default": Models(kind="encodings", arms=_models(TinyModel(steps=300), windows=96, segments=64)),
    "smoke": Models(kind="encodings", arms=_SMALLEST, seeds=1),
}


def encodings_table(results: Results) -> Table:
    """One line for each encoding: SCE, its parts, and losses."""
    return Table(
        columns=["", *(one.heading for one in SHOWN)],
        rows=[[name, *(number_of(results, name, one) for one in SHOWN)] for name in results.config["arms"]],
        caption="Nats; means over pretraining seeds, in brackets the lowest and the highest",
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """The numbers by encoding as one section of a page."""
    return [
        Section(
            title="Misalignment by positional encoding",
            paragraphs=[
                "The rebuttal answers that models with the same encoding differ widely in misalignment, and that "
                "changed rope lowers it. These models share everything but the encoding, and their blocks differ: "
                "rope and NoPE are Llama-like, ALiBi is a BLOOM, learned positions a GPT-2.",
            ],
            tables=[encodings_table(results)],
            notes=results.notes,
        )
    ]


STUDY = study_of_models("Misalignment by positional encoding", sections, SCALES)
