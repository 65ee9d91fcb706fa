"""Rebuttal, question 6: do other positional encodings have other misalignments?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.paper.measures import PARTS, loss
from lengthwise_studies.paper.models import Measured, measure_models, plan_models
from lengthwise_studies.paper.paper_table import over_seeds
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.tiny_models import TinyModel

ENCODINGS = ("rope", "nope", "alibi", "learned")
EXTENSIONS = ("pi", "ntk", "yarn")
SHOWN = (*PARTS, loss(1), loss(4))


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is read of each model.

    Args:
        model: the configuration that all encodings share.
        windows, segments: samples.
        seeds: pretraining seeds.
    """

    model: TinyModel
    windows: int
    segments: int
    seeds: int = 3

    def models(self) -> list[Measured]:
        """The four encodings, and rope under each extension by 4."""
        kinds = [(encoding, None) for encoding in ENCODINGS] + [("rope", method) for method in EXTENSIONS]
        length = self.model.length
        return [
            Measured(
                name=encoding + (f", {method} x4" if method else ""),
                models=[replace(self.model, encoding=encoding, seed=seed) for seed in range(self.seeds)],
                trained=length,
                measures={
                    "misalignment": {"lengths": [length], "windows": self.windows},
                    "perplexity": {"lengths": [length, 4 * length], "segments": self.segments},
                },
                method=method,
                factor=4 if method else 1,
            )
            for encoding, method in kinds
        ]


SCALES = {
    "default": Size(model=TinyModel(steps=300), windows=96, segments=64),
    "smoke": Size(model=TinyModel(steps=2, width=32, layers=1, length=32), windows=2, segments=2, seeds=1),
}


def run(out: Path, scale: Size, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Measure all encodings."""
    settings = {"windows": scale.windows, "segments": scale.segments, "seeds": scale.seeds}
    return measure_models(
        "encodings", scale.models(), out, settings=settings, resume=resume, overwrite=overwrite
    )


def encodings_table(results: Results) -> Table:
    """One line for each encoding: SCE, its parts, and losses."""
    return Table(
        columns=["", *(one.heading for one in SHOWN)],
        rows=[
            [name, *(_over_pretrainings(results, name, facts["trained"], one) for one in SHOWN)]
            for name, facts in results.config["models"].items()
        ],
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


def _over_pretrainings(results: Results, name: str, trained: int, quantity: Quantity) -> Estimate | None:
    own = [row for row in results.rows if row.arm == name and quantity.is_in(row, trained)]
    return over_seeds(own, signed=False)


STUDY = Study(
    title="Misalignment by positional encoding",
    parts=(
        Part(
            run=run,
            sections=sections,
            scales=SCALES,
            plan=lambda size: plan_models("encodings", size.models()),
        ),
    ),
    takes=("seeds",),
)
