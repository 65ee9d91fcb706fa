"""The literal table of studies: a name, where its data is, what it shows. Imports no torch."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from lengthwise.report.tables import Table
    from lengthwise_studies.skeleton import Produced, Study


@dataclass(frozen=True)
class Entry:
    """One study: `where` is `module:NAME` of its `Study`, below this package."""

    name: str
    where: str
    description: str

    def load(self) -> Study:
        """Its data, with everything that it needs imported."""
        attribute = self.where.partition(":")[2]
        return getattr(importlib.import_module(f"lengthwise_studies.{self.module}"), attribute)

    @property
    def module(self) -> str:
        """Where its data is, below this package."""
        return self.where.partition(":")[0]


STUDIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "demo",
            "demo:DEMO",
            "where a context ends, a real model before and after training, and the small study; one page",
        ),
        Entry(
            "tiny-books",
            "tiny_books:TINY_BOOKS",
            "what each term of the objective does to a model of 1M parameters",
        ),
        Entry(
            "far",
            "far.studies:FAR",
            "skips and repeats on needles, tracking, long texts and code, with verdicts (15 hours of one core)",
        ),
        Entry(
            "far-gemma",
            "far.studies:FAR_GEMMA",
            "skips and repeats on Gemma 3 270M: needles with verdicts, and tracking (three hours of one core)",
        ),
        Entry(
            "far-parts",
            "far.studies:FAR_PARTS",
            "skips, repeats, both, and fewer of them, one seed: needles, losses, LongPPL, limit (3 hours)",
        ),
        Entry(
            "extension",
            "extension:EXTENSION",
            "SmolLM2-135M at twice its context and beyond: rope methods, LoRA, skips with YaRN (4 hours)",
        ),
        Entry("table1", "paper.table1:STUDY", "does misalignment go with long-context scores? (Table 1)"),
        Entry("table2", "paper.table2:STUDY", "the term on windows of T, two corpora (Table 2)"),
        Entry("table3", "paper.table3:STUDY", "the term on windows of 2T, LongQLoRA and EABF (Table 3)"),
        Entry("table4", "paper.table4:STUDY", "the weight of the term (Table 4; printed as 6)"),
        Entry("table5", "paper.table5:STUDY", "the range of the offset (Table 5; printed as 7)"),
        Entry("table6", "paper.table6:STUDY", "BABILong by length (Table 6; printed as 4)"),
        Entry(
            "table7", "paper.table7:STUDY", "BABILong by depth and weight (Table 7, printed as 5; rebuttal)"
        ),
        Entry("table9", "paper.table9:STUDY", "table 2 at equal measured time (Table 9)"),
        Entry("table10", "paper.table10:STUDY", "table 3 at equal measured time (Table 10)"),
        Entry("table11", "paper.table11:STUDY", "the term without an extension (Table 11)"),
        Entry(
            "figure2",
            "paper.illustrations:FIGURE2",
            "how the two windows of a sample overlap (Fig. 2, Table 8)",
        ),
        Entry("cream", "paper.rebuttal:CREAM_STUDY", "the term with CREAM, 100 steps (rebuttal)"),
        Entry(
            "ranges",
            "paper.rebuttal:RANGES_STUDY",
            "nearly equal lengths, and readings of the overlap (rebuttal)",
        ),
        Entry(
            "truncation", "paper.rebuttal:TRUNCATION_STUDY", "read all, or only the last T tokens? (rebuttal)"
        ),
        Entry("within", "paper.rebuttal:WITHIN_STUDY", "the loss within the training length (rebuttal)"),
        Entry(
            "encodings", "paper.encoding_misalignment:STUDY", "misalignment by positional encoding (rebuttal)"
        ),
        Entry(
            "influence",
            "sparsity.influence_page:INFLUENCE",
            "how many distant tokens a prediction needs, on books and code (Fig. 2, 6 of the sparsity paper)",
        ),
        Entry(
            "sparsity-bridge-real",
            "sparsity.bridge_page:BRIDGE_REAL",
            "SmolLM2-135M: which tokens alignment and skips forget, by what they need (an hour)",
        ),
        Entry(
            "figure1",
            "section3.panel_page:FIGURE1",
            "mean, length and reparameterized length by encoding and f (Fig. 1)",
        ),
        Entry(
            "figure3",
            "section3.panel_page:FIGURE3",
            "sum and length by training length (Fig. 3)",
        ),
        Entry(
            "figure4",
            "section3.panel_page:FIGURE4",
            "sum by encoding and f (Fig. 4)",
        ),
        Entry(
            "figure5",
            "section3.panel_page:FIGURE5",
            "mean of bits with a uniform number of ones (Fig. 5)",
        ),
        Entry(
            "section3",
            "section3.panel_page:SECTION3",
            "figures 1, 3, 4, 5 and theorem 2 on one page",
        ),
        Entry(
            "alignment",
            "section3.panel_page:ALIGNMENT",
            "long-short alignment of mean, length and sum: does it help here?",
        ),
        Entry(
            "theorem1",
            "theorem1_check:THEOREM1",
            "the bound of theorem 1: a model that breaks it, and bounds that hold",
        ),
        Entry(
            "theorem2",
            "theorem2_check:THEOREM2",
            "exact errors, bounds, and linear attention trained on samples",
        ),
        Entry(
            "sparse-parity",
            "sparsity.parity_page:SPARSE_PARITY",
            "parity of k planted bits: accuracy by length and k, with and without locality",
        ),
        Entry(
            "position-coupling",
            "sparsity.coupling_page:POSITION_COUPLING",
            "parity with scratchpad, variable assignment, addition: coupled ids, given and predicted",
        ),
        Entry(
            "sparsity-bounds",
            "sparsity.bounds_page:SPARSITY_BOUNDS",
            "the bounds of the sparsity paper against the errors of trained models",
        ),
    )
}


def study_named(name: str) -> Entry:
    """The study of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in STUDIES:
        raise UsageError(
            f"no study {name!r}",
            expected=nearest(name, STUDIES),
            fix="docs/reference/tables.md lists them",
        )
    return STUDIES[name]


def plan_study(
    name: str, *, scale: str = "default", seeds: int | None = None, steps: int | None = None
) -> Table:
    """The grid of the study `name`, with tokens, memory and time, before any weight is loaded.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1; a study whose cost nothing tells.
    """
    study = study_named(name).load()
    from lengthwise_studies.costs import costs_table, study_costs

    costs = study_costs(study, scale, seeds=seeds, steps=steps)
    if not costs:
        raise UsageError(f"{name} has no language model whose cost could be told", fix="leave out --dry-run")
    return costs_table(costs, caption=f"{name} at scale {scale}")


def produce(
    name: str,
    out: Path,
    *,
    scale: str = "default",
    seeds: int | None = None,
    steps: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    ray: str | None = None,
    jobs: int | None = None,
) -> Produced:
    """Run the study `name` in the folder `out`, or continue it, to its page.

    Arms and seeds run one after the other, `jobs` at once, or on the Ray cluster `ray`.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1, or for a study that takes none; jobs or a
            cluster for a study without arms; jobs and a cluster.
        Interrupted: Ctrl-C. Finished work stays.
    """
    study = study_named(name).load()
    from lengthwise_studies.skeleton import produce_page

    how = {"scale": scale, "seeds": seeds, "steps": steps, "resume": resume, "overwrite": overwrite}
    if ray is not None and jobs is not None:
        raise UsageError("--jobs and --ray", expected="one of them: Ray decides how many tasks run at once")
    if ray is None and jobs is None:
        return produce_page(study, out, **how)
    if not any(part.has_arms for part in study.parts):
        raise UsageError(f"{name} has no arms", fix="leave --jobs and --ray out")
    from lengthwise_studies.fan_out import on_ray
    from lengthwise_studies.jobs import in_jobs

    with ExitStack() as where:
        if jobs is not None:
            where.enter_context(in_jobs(jobs))
        if ray is not None:
            where.enter_context(on_ray(ray))
        return produce_page(study, out, **how)
