"""The literal table of studies: a name, where its data is, what it shows. Imports no torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from lengthwise.studies.skeleton import Produced, Study


@dataclass(frozen=True)
class Entry:
    """One study: `where` is `module:NAME` of its `Study`, below this package."""

    name: str
    where: str
    description: str
    alias: str | None = None

    def load(self) -> Study:
        """Its data, with everything that it needs imported."""
        module, attribute = self.where.split(":")
        return getattr(importlib.import_module(f"lengthwise.studies.{module}"), attribute)


STUDIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "demo",
            "demo:DEMO",
            "where a context ends, a real model before and after training, and the small study; one page",
        ),
        Entry(
            "limit",
            "limits:LIMIT",
            "up to which length two models predict soundly and use their context, with and without YaRN",
        ),
        Entry(
            "tiny-books",
            "tiny_books:TINY_BOOKS",
            "what each term of the objective does to a model of 1M parameters",
        ),
        Entry(
            "real-model",
            "real_model:REAL_MODEL",
            "SmolLM2-135M before and after a few LoRA steps",
        ),
        Entry(
            "gap-views",
            "gap_views:GAP_VIEWS",
            "recall after training on truncated windows and on gapped positions",
        ),
        Entry(
            "training-forms",
            "training_forms:TRAINING_FORMS",
            "SmolLM2-135M after a few steps of each form: does it use far context? (hours)",
        ),
        Entry(
            "extension",
            "extension:EXTENSION",
            "SmolLM2-135M at twice its context: rope methods and LoRA (an hour)",
        ),
        Entry(
            "influence",
            "sparsity.influence_page:INFLUENCE",
            "how many distant tokens a prediction needs, on books and code (Fig. 2, 6 of the sparsity paper)",
        ),
        Entry(
            "sparsity-bridge",
            "sparsity.bridge_page:BRIDGE",
            "does disagreement fall where predictions are sparse and local? what alignment forgets",
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
            alias="all",
        ),
        Entry(
            "alignment",
            "section3.panel_page:ALIGNMENT",
            "long-short alignment of mean, length and sum: does it help here?",
        ),
        Entry(
            "plane",
            "section3.plane_page:PLANE",
            "tasks by output support and Chomsky class: which goes with generalization?",
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
            alias="theory",
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
_ALIASES = {entry.alias: entry for entry in STUDIES.values() if entry.alias is not None}


def study_named(name: str) -> Entry:
    """The study of that name or alias.

    Raises:
        UsageError: there is none.
    """
    known = {**STUDIES, **_ALIASES}
    if name not in known:
        raise UsageError(f"no study {name!r}", expected=nearest(name, known), fix="lengthwise ls studies")
    return known[name]


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
) -> Produced:
    """Run the study `name` in the folder `out`, or continue it, to its page; on the Ray cluster `ray` if named.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1, or for a study that takes none; a cluster for a
            study without arms.
        Interrupted: Ctrl-C. Finished work stays.
    """
    study = study_named(name).load()
    from lengthwise.studies.skeleton import produce_page

    how = {"scale": scale, "seeds": seeds, "steps": steps, "resume": resume, "overwrite": overwrite}
    if ray is None:
        return produce_page(study, out, **how)
    from lengthwise.studies.fan_out import check_fans_out, on_ray

    check_fans_out(study, name)
    with on_ray(ray):
        return produce_page(study, out, **how)
