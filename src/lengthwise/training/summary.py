"""What a finished or interrupted training run says about itself."""

from __future__ import annotations

from typing import Any

from lengthwise.results import Results, Row
from lengthwise.training.recipe import Recipe
from lengthwise.training.trainer import PARTS


def training_results(
    recipe: Recipe, history: list[dict[str, Any]], facts: dict[str, Any], *, partial: bool
) -> Results:
    """The results of a run: each logged number's mean over the first and the last tenth of the steps.

    Args:
        recipe: what was run.
        history: the Trainer's log.
        facts: the run's provenance.
        partial: whether the run was interrupted.
    """
    steps = [entry for entry in history if "offset" in entry]
    tenth = max(1, len(steps) // 10)
    rows: list[Row] = []
    for when, part in (("first", steps[:tenth]), ("last", steps[-tenth:])):
        for name in ("loss", *PARTS):
            value = sum(step[name] for step in part) / len(part) if part else None
            rows.append(
                Row(
                    model=recipe.model,
                    task="training",
                    metric=f"{name}_{when}",
                    value=value,
                    length=recipe.length,
                    seed=recipe.seed,
                    n=len(part),
                )
            )
    notes = [
        f"Training values are means over the first and the last {tenth} of {len(steps)} steps (n counts "
        "steps), on the training text, without intervals."
    ]
    if partial:
        notes.append(f"Interrupted after {len(steps)} of {recipe.steps} steps.")
    if facts["full_logits"]:
        notes.append(f"Full logits were used: {facts['full_logits']}")
    return Results(
        kind="train",
        model_name=recipe.model,
        config=recipe.to_dict(),
        rows=rows,
        notes=notes,
        partial=partial,
        provenance=facts,
    )
