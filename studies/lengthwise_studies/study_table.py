"""The literal table of studies: a name, where its data is, what it shows. Imports no torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from lengthwise.report.tables import Table
    from lengthwise_studies.skeleton import Produced, Study


@dataclass(frozen=True)
class Entry:
    """One study: `where` is `module:NAME` of its `Study`, below this package; `group` is whose claims it is about."""

    group: str
    name: str
    where: str
    description: str

    def load(self) -> Study:
        """Its data, with everything that it needs imported."""
        module, _, attribute = self.where.partition(":")
        return attrgetter(attribute)(importlib.import_module(f"lengthwise_studies.{module}"))


ALIGNMENT, SPARSITY, OWN = "the alignment paper", "the sparsity paper", "our own"
STUDIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(ALIGNMENT, "table1", "paper.table1:STUDY", "does misalignment go with long-context scores?"),
        Entry(ALIGNMENT, "table2", "paper.tables:TABLE2.study", "the term on windows of T, two corpora"),
        Entry(ALIGNMENT, "table3", "paper.tables:TABLE3.study", "the term on windows of 2T, two extensions"),
        Entry(ALIGNMENT, "table4", "paper.tables:TABLE4.study", "the weight of the term (printed as 6)"),
        Entry(ALIGNMENT, "table5", "paper.tables:TABLE5.study", "the range of the offset (printed as 7)"),
        Entry(ALIGNMENT, "table6", "paper.tables:TABLE6.study", "BABILong by length (printed as 4)"),
        Entry(ALIGNMENT, "table7", "paper.tables:TABLE7.study", "BABILong by depth, weight (printed as 5)"),
        Entry(ALIGNMENT, "table9", "paper.tables:TABLE9.study", "table 2 at equal measured time"),
        Entry(ALIGNMENT, "table10", "paper.tables:TABLE10.study", "table 3 at equal measured time"),
        Entry(ALIGNMENT, "table11", "paper.tables:TABLE11.study", "the term without an extension"),
        Entry(ALIGNMENT, "figure2", "paper.illustrations:FIGURE2", "how two windows overlap; with Table 8"),
        Entry(ALIGNMENT, "cream", "paper.rebuttal:CREAM_TABLE.study", "the term with CREAM (rebuttal)"),
        Entry(
            ALIGNMENT,
            "ranges",
            "paper.rebuttal:RANGES_TABLE.study",
            "nearly equal lengths, and readings of the overlap (rebuttal)",
        ),
        Entry(
            ALIGNMENT,
            "truncation",
            "paper.rebuttal:TRUNCATION_TABLE.study",
            "read all, or only the last T tokens? (rebuttal)",
        ),
        Entry(ALIGNMENT, "within", "paper.rebuttal:WITHIN_TABLE.study", "loss within length T (rebuttal)"),
        Entry(
            ALIGNMENT, "encodings", "paper.encoding_misalignment:STUDY", "misalignment by encoding (rebuttal)"
        ),
        Entry(ALIGNMENT, "figure1", "section3.panel_page:FIGURE1", "mean, length, reparameterized length"),
        Entry(ALIGNMENT, "figure3", "section3.panel_page:FIGURE3", "sum and length by training length"),
        Entry(ALIGNMENT, "figure4", "section3.panel_page:FIGURE4", "sum by encoding and f"),
        Entry(ALIGNMENT, "figure5", "section3.panel_page:FIGURE5", "mean of bits, uniform number of ones"),
        Entry(ALIGNMENT, "section3", "section3.panel_page:SECTION3", "figures 1, 3, 4, 5 and theorem 2"),
        Entry(
            ALIGNMENT, "theorem1", "theorem1_check:THEOREM1", "a model that breaks it, and bounds that hold"
        ),
        Entry(ALIGNMENT, "theorem2", "theorem2_check:THEOREM2", "exact errors, bounds, trained models"),
        Entry(SPARSITY, "influence", "sparsity.influence:INFLUENCE", "distant tokens a prediction needs"),
        Entry(
            SPARSITY,
            "sparse-parity",
            "sparsity.parity:SPARSE_PARITY",
            "parity of k planted bits by length, k, locality",
        ),
        Entry(
            SPARSITY,
            "position-coupling",
            "sparsity.coupling_study:POSITION_COUPLING",
            "coupled ids, given or predicted, three tasks",
        ),
        Entry(
            SPARSITY,
            "sparsity-bounds",
            "sparsity.bounds:SPARSITY_BOUNDS",
            "its bounds against errors of trained models",
        ),
        Entry(OWN, "demo", "demo:DEMO", "where a context ends, a real model trained, the small study"),
        Entry(OWN, "tiny-books", "tiny_books:TINY_BOOKS", "what each term does to a model of 1M parameters"),
        Entry(OWN, "far", "far.studies:FAR", "skips and repeats on SmolLM2-135M (15 hours)"),
        Entry(OWN, "far-gemma", "far.studies:FAR_GEMMA", "skips and repeats on Gemma 3 270M (3 hours)"),
        Entry(OWN, "far-parts", "far.studies:FAR_PARTS", "skips, repeats, or both: one seed (3 hours)"),
        Entry(OWN, "extension", "extension:EXTENSION", "SmolLM2-135M beyond its context: rope, LoRA, skips"),
        Entry(
            OWN,
            "sparsity-bridge-real",
            "sparsity.bridge_page:BRIDGE_REAL",
            "the tokens that alignment forgets (an hour)",
        ),
        Entry(OWN, "alignment", "section3.panel_page:ALIGNMENT", "does alignment help mean, length and sum?"),
    )
}


def study_named(name: str) -> Entry:
    """The study of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in STUDIES:
        raise UsageError(
            f"no study {name!r}", expected=nearest(name, STUDIES), fix="lengthwise ls studies lists them"
        )
    return STUDIES[name]


def studies() -> list[dict[str, str]]:
    """The list of `lengthwise ls studies`."""
    return [{"about": one.group, "name": one.name, "what": one.description} for one in STUDIES.values()]


def plan_study(
    name: str, *, scale: str = "default", seeds: int | None = None, steps: int | None = None
) -> Table:
    """The grid of the study `name`, with tokens, memory and time, before any weight is loaded.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1.
    """
    study = study_named(name).load()
    from lengthwise_studies.costs import costs_table, study_costs

    costs = study_costs(study, scale, seeds=seeds, steps=steps)
    return costs_table(costs, caption=f"{name} at scale {scale}")


def produce(name: str, out: Path, *, ray: str | None = None, jobs: int | None = None, **how: Any) -> Produced:
    """Run the study `name` in the folder `out`, or continue it, to its page.

    Args:
        name: a key of `STUDIES`.
        out: the folder of the run.
        ray: the Ray cluster on which arms and seeds run; None: this machine.
        jobs: how many arms and seeds run at once; None: one after the other.
        how: the arguments of `produce_page`.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1, or for a study that takes none; jobs or a
            cluster for a study without arms; jobs and a cluster.
        Interrupted: Ctrl-C. Finished work stays.
    """
    study = study_named(name).load()
    from lengthwise_studies.skeleton import produce_page

    if (ray, jobs) == (None, None):
        return produce_page(study, out, **how)
    if not any(part.plan for part in study.parts):
        raise UsageError(f"{name} has no arms", fix="leave --jobs and --ray out")
    from lengthwise_studies.fan_out import at_once

    with at_once(jobs=jobs, ray=ray):
        return produce_page(study, out, **how)
