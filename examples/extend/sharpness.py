"""How much of SCE is disagreement? Random predictions, changed a little, by how sharp they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from lengthwise.alignment import entropy, jeffreys, symmetric_cross_entropy
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise_studies.skeleton import Part, Study

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""On the logits: larger is sharper."""
NOISE = 0.1
"""Standard deviation of the change of a logit."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Pairs of predictions, and entries of the vocabulary."""

    pairs: int
    vocabulary: int


SCALES = {"default": Size(pairs=2000, vocabulary=5000), "smoke": Size(pairs=50, vocabulary=20)}


def run(out: Path, scale: Size, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Draw the predictions and average SCE and its parts over the pairs."""
    config = asdict(scale)
    with RunFolder(out, kind="sharpness", config=config, resume=resume, overwrite=overwrite) as folder:
        if folder.finished:
            return folder.read_results()
        generator = torch.Generator().manual_seed(0)
        shape = (scale.pairs, scale.vocabulary)
        logits, change = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        rows = []
        for factor in FACTORS:
            name, p, q = f"x{factor:g}", factor * logits, factor * logits + NOISE * change
            parts = {
                "sce": symmetric_cross_entropy(p, q),
                "entropy": entropy(p) + entropy(q),
                "jeffreys": jeffreys(p, q),
            }
            rows += [
                Row(model="none", task="sharpness", metric=metric, value=each.mean().item(), arm=name)
                for metric, each in parts.items()
            ]
        results = Results(kind="sharpness", model_name="none", config=config, rows=rows)
        folder.write_results(results)
        return results


def sections(results: Results, folder: Path) -> list[Section]:
    """One table."""
    metrics = ("sce", "entropy", "jeffreys")
    lines: list[list[Cell]] = [
        [arm, *(results.select(arm=arm, metric=metric)[0].value for metric in metrics)]
        for arm in dict.fromkeys(row.arm for row in results.rows)
    ]
    return [
        Section(
            title="Sharpness",
            paragraphs=[f"Every logit of one of two equal predictions is changed by noise of {NOISE}."],
            tables=[Table(columns=["logits", *metrics], rows=lines, caption="Nats per prediction")],
        )
    ]


STUDY = Study(
    title="How much of SCE is disagreement?", parts=(Part(run=run, sections=sections, scales=SCALES),)
)
