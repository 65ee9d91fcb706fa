"""What an experiment records of itself in its run folder: a resumed run must agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lengthwise.settings import Dtype
from lengthwise.studies.arms import Arm, Scale
from lengthwise.training.recipe import Recipe


def recorded_settings(
    scale: Scale, *, arms: Sequence[Arm], recipe: Recipe | None, dtype: Dtype, equal_time: bool
) -> dict[str, Any]:
    """The settings of an experiment at this scale. A setting that was added later is left out at its default."""
    found: dict[str, Any] = {
        "model": scale.model,
        "dtype": dtype,
        "seeds": scale.seeds,
        "steps": None if recipe is None else recipe.steps,
        "measures": {name: dict(of) for name, of in scale.measures.items()},
        "arms": {arm.name: _arm(arm) for arm in arms},
        "recipe": None if recipe is None else recipe.to_dict(),
    }
    for name, usual in (("text", "books"), ("split", "test")):
        if (own := getattr(scale, name)) != usual:
            found[name] = own
    if scale.starts:
        found["starts"] = [start.name for start in scale.starts]
    if scale.marks:
        found |= {
            "marks": list(scale.marks),
            "mark_measures": {k: dict(v) for k, v in scale.mark_measures.items()},
        }
    if scale.trained_measures is not None:
        found["trained_measures"] = {k: dict(v) for k, v in scale.trained_measures.items()}
    if equal_time:
        found["equal_time"] = True
    return found


def _arm(arm: Arm) -> dict[str, Any]:
    """What makes the arm another model than the others."""
    extended = {} if arm.method is None else {"method": arm.method, "factor": arm.factor}
    return extended if arm.changes is None else {**extended, "changes": list(arm.changes)}
