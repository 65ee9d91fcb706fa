"""What a study does, told before it trains: its arms, measures, claims and rules (`reproduce --explain`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lengthwise.report.tables import Table
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.claims import rules_table
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.over_seeds import FEWEST_SEEDS
from lengthwise_studies.skeleton import Study, chosen_scales

WIDEST = 120
"""Columns of what is printed, so that it is read on one screen."""
_FEW = 3
"""So many arms are named; of more there is a count."""
_RULES = (
    "Claims. A rule about a difference of two arms needs p < 0.05 after Holm's correction over its table, and "
    f"{FEWEST_SEEDS} seeds"
)


def explained(study: Study, scale: str, **given: int | str | None) -> Iterator[Table]:
    """The tables of each part at a scale.

    Raises:
        UsageError: see `chosen_scales`.
    """
    for part, size in zip(study.parts, chosen_scales(study, scale, **given), strict=True):
        for experiment, at in part.plan(size) if part.plan else ():
            yield _arms_table(experiment, at)
            yield _measures_table(experiment, at)
        if part.cells is not None:
            cells, _ = part.cells(size)
            yield Table(columns=["cell"], rows=[[cell.key] for cell in cells], caption=f"Cells of {size}")
        if claims := [*part.claims(size)]:
            yield rules_table(claims, _RULES)


def _arms_table(experiment: Experiment, scale: Scale) -> Table:
    """What each arm changes of its recipe; arms of one recipe and text have a line for what they all change."""
    groups: dict[tuple[str, str], list[Arm]] = {}
    for arm in experiment.arms:
        recipe = "not trained" if arm.changes is None else f"recipe {arm.recipe or experiment.recipe}"
        groups.setdefault((recipe, arm.text or scale.text), []).append(arm)
    lines: list[tuple[str, str]] = []
    for (recipe, text), arms in groups.items():
        every = [(*scale.changes, *(arm.changes or ())) for arm in arms]
        shared = [each for each in every[0] if all(each in own for own in every)] if len(arms) > 1 else []
        if arms[0].changes is None:
            shared, every = (
                [],
                [(f"{arm.method} x{arm.factor:g}" if arm.method else "as it is",) for arm in arms],
            )
        lines.append((f"{recipe}, measured on {text}", " ".join(shared)))
        alike: dict[str, list[str]] = {}
        for arm, own in zip(arms, every, strict=True):
            changes = " ".join(each for each in own if each not in shared)
            alike.setdefault(changes or "nothing more", []).append(arm.name)
        lines += [(f"  {'; '.join(names)}", changes) for changes, names in alike.items()]
    starts = scale.start(0)
    model = starts if isinstance(starts, str) else starts.configuration
    steps = "" if scale.steps is None else f", {scale.steps} steps"
    caption = f"{experiment.kind}: {len(experiment.arms)} arms of {model}, {scale.seeds} seeds{steps}"
    return Table(columns=["arms", "what changes"], rows=lines, caption=caption)


def _measures_table(experiment: Experiment, scale: Scale) -> Table:
    """What is measured, and of which arms where not of all."""
    arms: dict[tuple[str, str], list[str]] = {}
    for arm in experiment.arms:
        for name, settings in scale.measures_of(arm).items():
            arms.setdefault((name, _words(settings)), []).append(arm.name)
    lines = [(name, settings, _who(names, len(experiment.arms))) for (name, settings), names in arms.items()]
    if scale.marks:
        after = "trained arms, after steps " + ", ".join(map(str, scale.marks))
        lines += [(name, _words(settings), after) for name, settings in scale.mark_measures.items()]
    return Table(columns=["measure", "settings", "of"], rows=lines, caption="Measures, on held-out documents")


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _who(names: Sequence[str], every: int) -> str:
    if len(names) == every:
        return "every arm"
    return "; ".join(names) if len(names) <= _FEW else f"{len(names)} of {every} arms"
