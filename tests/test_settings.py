from typing import Any, Literal

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.settings import Count, Finite, Settings, checked


class Objective(Settings):
    alpha: Finite = 0.1
    divergence: Literal["sce", "jeffreys"] = "sce"


class Adapter(Settings):
    rank: Count = 8


class Run(Settings):
    model: str
    length: Count
    objective: Objective = Objective()
    adapter: Adapter | None = None
    betas: tuple[Finite, ...] = ()
    fast: bool = False


def test_sections_and_defaults() -> None:
    settings = {"model": "m", "length": 8, "adapter": {"rank": 4}, "betas": [0.9, 1], "fast": True}
    found = checked(Run, settings, source="s")
    assert found == Run(model="m", length=8, adapter=Adapter(rank=4), betas=(0.9, 1.0), fast=True)
    assert checked(Run, found.model_dump(mode="json"), source="s") == found
    assert Run(model="m", length=np.int64(8)).length == 8


def test_every_mistake_at_once_with_the_nearest_key() -> None:
    wrong = {"lenght": 8, "objective": {"alhpa": 1, "divergence": "jefreys"}, "adapter": {"rnak": 2}}
    with pytest.raises(UsageError) as caught:
        checked(Run, wrong, source="recipe.yaml")
    message = str(caught.value)
    assert message.startswith("recipe.yaml has 6 mistakes:")
    assert "unknown key 'lenght'; did you mean 'length'?" in message
    assert "unknown key 'objective.alhpa'; did you mean 'alpha'?" in message
    assert "unknown key 'adapter.rnak'; did you mean 'rank'?" in message
    assert "objective.divergence is 'jefreys'; did you mean 'jeffreys'?" in message
    assert "missing key 'model'" in message
    assert "missing key 'length'" in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"model": " "}, "model"),
        ({"length": True}, "length"),
        ({"length": 0}, "length"),
        ({"length": "8"}, "length"),
        ({"objective": {"alpha": float("nan")}}, "objective.alpha"),
        ({"objective": {"alpha": True}}, "objective.alpha"),
        ({"betas": [0.9, float("inf")]}, "betas"),
    ],
)
def test_a_value_is_refused_with_its_path(settings: dict[str, Any], path: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked(Run, {"model": "m", "length": 8} | settings, source="recipe.yaml")
    assert f"{path} is " in str(refused.value)
    with pytest.raises(UsageError):
        Run(**{"model": "m", "length": 8} | settings)
