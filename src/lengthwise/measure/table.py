"""The table of verbs that measure. Literal and without torch: a module is imported when its verb is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One measurement and its verb; names without a module are in `module`.

    An entry whose `run`, `plan` and `read` are its own needs no settings and task.
    """

    name: str
    """The verb; of `served` it is `compare` with an endpoint."""
    module: str
    spec: str
    """The `lengthwise.spec.Spec`."""
    summary: str
    """One line for the list of verbs."""
    function: str = ""
    """`measure_x(model, text, spec, *, log=None) -> Measurement`."""
    settings: str = ""
    """The spec with what model and text decided; `module.summarise(log, settings, name)` makes the rows."""
    task: str = ""
    """The task of its rows, which the `DISPLAY` of `module` presents."""
    fail_above: str | None = None
    """The metric that --fail-above looks at."""
    run: str = "lengthwise.measure.run_folder:run_measurement"
    """`run(run_spec, spec, *, out, resume, overwrite) -> Results`."""
    plan: str = "lengthwise.measure.dry_run:plan_measurement"
    """`plan(run_spec, spec)`: what `--dry-run` shows."""
    read: str = "lengthwise.measure.run_folder:measurement_of"
    """`read(results, log) -> Measurement` of a finished run, for comparing runs."""

    def load(self, place: str) -> Any:
        """The object that a field names: "module:name", or a name in `module`."""
        module, _, name = place.rpartition(":")
        return getattr(importlib.import_module(module or self.module), name)

    @property
    def spec_class(self) -> Any:
        """The class of the spec."""
        return self.load(self.spec)


MEASUREMENTS = {
    entry.name: entry
    for entry in (
        Entry(
            name="measure",
            module="lengthwise.measure.misalignment",
            spec="MisalignmentSpec",
            function="measure_misalignment",
            settings="MisalignmentSettings",
            task="misalignment",
            summary="Does cutting off early context change the predictions?",
            fail_above="jeffreys",
        ),
        Entry(
            name="ppl",
            module="lengthwise.measure.perplexity",
            spec="PerplexitySpec",
            function="measure_perplexity",
            settings="PerplexitySettings",
            task="perplexity",
            summary="How well are the same tokens predicted at each length?",
            fail_above="perplexity",
        ),
        Entry(
            name="recall",
            module="lengthwise.measure.recall",
            spec="RecallSpec",
            function="measure_recall",
            settings="RecallSettings",
            task="recall",
            summary="Is text far back still used?",
        ),
        Entry(
            name="limit",
            module="lengthwise.measure.limit",
            spec="LimitSpec",
            function="measure_limit",
            settings="LimitSettings",
            task="limit",
            summary="Where does the useful context end, on this text?",
        ),
        Entry(
            name="longppl",
            module="lengthwise.measure.longppl",
            spec="LongPplSpec",
            function="measure_longppl",
            settings="LongPplSettings",
            task="longppl",
            summary="How well are the tokens predicted that need far context?",
        ),
        Entry(
            name="influence",
            module="lengthwise.sparsity.influential_tokens",
            spec="InfluenceSpec",
            function="measure_influence",
            settings="InfluenceSettings",
            task="influence",
            summary="How many distant tokens does a prediction need?",
        ),
        Entry(
            name="served",
            module="lengthwise.measure.served",
            spec="ServedSpec",
            function="measure_served",
            settings="ServedSettings",
            task="served",
            summary="Does the served model predict as its checkpoint does?",
            fail_above="difference",
        ),
        Entry(
            name="eval",
            module="lengthwise.evaluation.evaluate",
            spec="EvalSpec",
            summary="Does a model answer questions over long input?",
            function="lengthwise.evaluation.own_tasks:measure_tasks",
            run="run_eval",
            plan="plan_eval",
            read="lengthwise.evaluation.compared_scores:evaluation_of",
        ),
    )
}
