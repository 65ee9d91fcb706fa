from __future__ import annotations

import pytest
import torch
from transformers import get_scheduler

from lengthwise.training.recipe import Optimizer


def shares(steps: int = 10, **settings) -> list[float]:
    return [Optimizer(learning_rate=1.0, **settings).share_of_peak(step, steps) for step in range(steps)]


def test_cosine_is_transformers_own():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(
        "cosine_warmup_with_min_lr",
        optimizer,
        num_warmup_steps=3,
        num_training_steps=10,
        scheduler_specific_kwargs={"min_lr_rate": 0.1},
    )
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert shares(warmup_steps=3, schedule="cosine", final_share=0.1) == pytest.approx(rates, abs=1e-12)


def test_warmup_rises_linearly_from_more_than_zero():
    assert shares(warmup_steps=4, schedule="constant") == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]
    )


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_the_last_step_has_the_last_share_and_it_stays(schedule: str, warmup: int):
    settings = {"warmup_steps": warmup, "schedule": schedule, "final_share": 0.1}
    assert shares(**settings)[-1] == pytest.approx(0.1)
    assert Optimizer(learning_rate=1.0, **settings).share_of_peak(10, 10) == pytest.approx(0.1)
