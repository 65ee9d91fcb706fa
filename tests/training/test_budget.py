"""The weight that a budget finds, against closed forms and brute force; its state in checkpoints."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.training import budget as module
from lengthwise.training.budget import Budget
from lengthwise.training.budget_callback import BudgetState, budget_of


def two_parabolas(
    budget: Budget, *, scale: float = 1.0, noise: float = 0.0, rate: float = 0.02, steps: int = 2000
) -> Iterator[tuple[float, float]]:
    """Minimise x^2 + alpha * scale * (x - 1)^2 from x = 0 by gradient steps; the (excess, alpha) of each step."""
    x, alpha, rng = 0.0, 0.0, random.Random(0)
    for _ in range(steps):
        excess = x**2
        # The noise of the step is that of its tokens: it is in both cross entropies, and a little in one alone.
        shared, own = rng.gauss(3, 0.5), rng.gauss(0, noise)
        next_alpha = budget.update(shared + excess + own, shared, scale * (x - 1) ** 2)
        yield excess, alpha
        slope = 2 * x + alpha * scale * 2 * (x - 1)
        x -= rate * slope / (1 + alpha * scale)
        alpha = next_alpha


def best_alpha(nats: float, scale: float = 1.0) -> float:
    """The minimum is x = a / (1 + a) with a = alpha * scale, so x^2 = nats at a = sqrt(nats) / (1 - sqrt(nats))."""
    return math.sqrt(nats) / (1 - math.sqrt(nats)) / scale


@pytest.mark.parametrize("nats", [0.01, 0.1])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("rate", [0.002, 0.02, 0.2])
def test_it_finds_the_weight_of_the_closed_form(nats: float, scale: float, rate: float):
    found = list(two_parabolas(Budget(nats=nats), scale=scale, rate=rate, steps=1500))
    for excess, alpha in found[-300:]:
        assert excess == pytest.approx(nats, rel=0.02)
        assert alpha == pytest.approx(best_alpha(nats, scale), rel=0.05)
    assert max(excess for excess, _ in found) < 1.9 * nats


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
def test_noise_moves_it_around_the_same_weight(noise: float):
    found = list(two_parabolas(Budget(nats=0.01), noise=noise, steps=6000))[1000:]
    mean = sum(excess for excess, _ in found) / len(found)
    assert mean == pytest.approx(0.01, rel=0.1 if noise <= 0.01 else 0.3)
    middle = sorted(alpha for _, alpha in found)[len(found) // 2]
    assert middle == pytest.approx(best_alpha(0.01), rel=0.1 if noise <= 0.01 else 0.3)


def test_it_starts_where_the_budget_cannot_be_broken():
    budget = Budget(nats=0.01)
    assert (budget.alpha, budget.excess) == (0, 0)
    assert budget.update(3.0, 3.0, divergence=0.05) == budget.start == pytest.approx(0.2)
    assert Budget(nats=0.01).update(3.0, 3.0, divergence=0.0) == module.START
    assert Budget(nats=0.01, ceiling=0.4).update(3.0, 3.0, divergence=0.0) == 0.4


def test_an_unused_budget_raises_alpha_to_the_ceiling_at_a_steady_rate():
    def run(**settings: Any) -> list[float]:
        budget = Budget(nats=0.01, **settings)
        return [budget.update(3.0, 3.0, divergence=0.1) for _ in range(400)]

    free = run()
    assert free[1] / free[0] == pytest.approx(math.exp(module.RATE))
    assert free[-1] == pytest.approx(module.HIGHEST * free[0])
    assert run(ceiling=0.4)[-1] == 0.4


def test_an_excess_that_stays_lowers_alpha_to_the_floor_and_it_comes_back():
    budget = Budget(nats=0.01)
    alphas = [budget.update(4.0, 3.0, divergence=0.1) for _ in range(400)]
    assert alphas == sorted(alphas, reverse=True)
    assert alphas[-1] == pytest.approx(module.LOWEST * alphas[0])
    # The average forgets one nat in some 90 steps; after that the weight rises as fast as it ever does.
    back = [budget.update(3.0, 3.0, divergence=0.1) for _ in range(300)]
    assert back[-1] > alphas[0]


def test_numbers_that_are_not_finite_change_nothing():
    budget = Budget(nats=0.01)
    budget.update(3.0, 3.0, divergence=0.1)
    before = replace(budget)
    for given in ((math.nan, 3.0, 0.1), (3.0, math.inf, 0.1), (3.0, 3.0, math.nan)):
        with pytest.raises(LengthwiseError):
            budget.update(*given)
    assert budget == before


@pytest.mark.parametrize(
    "settings", [{"nats": 0.0}, {"nats": -1.0}, {"nats": math.nan}, {"nats": 0.01, "ceiling": 0.0}]
)
def test_impossible_budgets_are_refused(settings: dict[str, float]):
    with pytest.raises(UsageError):
        Budget(**settings)


# Two contexts, each with a softmax over four tokens. The text wants the first rows; the divergence wants the second
# context's prediction to be that of the first. Cross entropy and KL as the objective computes them.
WANTED = torch.tensor([[0.7, 0.2, 0.05, 0.05], [0.1, 0.6, 0.2, 0.1]], dtype=torch.float64)


def cross_entropy(z: Tensor) -> Tensor:
    return -(WANTED * z.log_softmax(-1)).sum(-1).mean()


def disagreement(z: Tensor) -> Tensor:
    log_p, log_q = z.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum() + (log_q.exp() * (log_q - log_p)).sum()


def minimum(alpha: float) -> Tensor:
    """The logits that minimise CE + alpha * D."""
    z = WANTED.log().clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [z], max_iter=500, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(z) + alpha * disagreement(z)
        loss.backward()
        return loss

    optimizer.step(closure)
    return z.detach()


@pytest.mark.parametrize(
    "make", [lambda z: torch.optim.Adam([z], lr=0.01), lambda z: torch.optim.SGD([z], lr=0.5)]
)
def test_a_softmax_model_reaches_the_optimum_of_a_brute_force_search(
    make: Callable[[Tensor], torch.optim.Optimizer],
):
    nats = 0.02
    initial = cross_entropy(WANTED.log()).item()
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if cross_entropy(minimum(middle)).item() - initial < nats else (low, middle)
        )
    best = minimum(low)

    z = WANTED.log().clone().requires_grad_()
    optimizer, budget = make(z), Budget(nats=nats)
    for _ in range(1500):
        optimizer.zero_grad()
        ce, divergence = cross_entropy(z), disagreement(z)
        (ce + budget.alpha * divergence).backward()
        budget.update(ce.item(), initial, divergence.item())
        optimizer.step()
    assert cross_entropy(z).item() - initial == pytest.approx(nats, rel=0.02)
    assert budget.alpha == pytest.approx(low, rel=0.05)
    assert disagreement(z).item() == pytest.approx(disagreement(best).item(), rel=0.02)


def test_its_state_survives_json():
    budget = Budget(nats=0.01, ceiling=0.4)
    rng = random.Random(0)
    for _ in range(7):
        budget.update(3 + rng.random() / 100, 3.0, 0.3)
    again = Budget.from_dict(json.loads(json.dumps(budget.to_dict())))
    assert again == budget
    assert again.update(3.02, 3.0, 0.1) == budget.update(3.02, 3.0, 0.1)
    with pytest.raises(UsageError, match="alhpa"):
        Budget.from_dict({"nats": 0.01, "alhpa": 1.0})
    other = Budget(nats=0.02)
    other.resume(budget)
    assert other == replace(budget, nats=0.02, ceiling=None)


class Line(nn.Module):
    """y = w x, with x as the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        ce = (self.w - 0.1 * x).square().mean()
        divergence = (self.w - 1).square().mean()
        return {"loss": ce, "divergence": divergence}


class Weighted(Trainer):
    """Minimises CE + alpha * D with the alpha of its budget, as `AlignmentMixin` is to do."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        budget = budget_of(self)
        assert budget is not None
        output = model(**inputs)
        loss = output["loss"] + budget.alpha * output["divergence"]
        x = inputs["x"]
        budget.update(output["loss"].item(), (0.1 * x).square().mean().item(), output["divergence"].item())
        return loss


def weighted(folder: Path, *, steps: int, budget: Budget | None, **settings: Any) -> Weighted:
    data = [{"x": row} for row in torch.randn(20, 4, generator=torch.Generator().manual_seed(0))]
    arguments = TrainingArguments(
        str(folder),
        max_steps=steps,
        save_steps=5,
        per_device_train_batch_size=2,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        **settings,
    )
    kind: Any = Weighted if budget is not None else Trainer
    trainer = kind(Line(), arguments, train_dataset=data)
    if budget is not None:
        trainer.add_callback(BudgetState(budget))
    return trainer


@pytest.mark.parametrize("restore", [False, True])
def test_a_resumed_run_continues_with_the_same_weights_to_the_bit(restore: bool, tmp_path: Path):
    settings = {"restore_callback_states_from_checkpoint": restore}
    whole = weighted(tmp_path / "whole", steps=12, budget=Budget(nats=0.05))
    whole.train()
    first = weighted(tmp_path / "cut", steps=5, budget=Budget(nats=0.05))
    first.train()
    resumed = weighted(tmp_path / "cut", steps=12, budget=Budget(nats=0.05), **settings)
    resumed.train(resume_from_checkpoint=True)
    found, expected = budget_of(resumed), budget_of(whole)
    assert found is not None
    assert found == expected
    assert found.steps == 12
    assert len({budget_of(first).alpha, found.alpha, 0.0}) == 3  # type: ignore[union-attr]
    assert torch.equal(resumed.model.w, whole.model.w)  # type: ignore[union-attr]
    saved = json.loads((tmp_path / "cut" / "checkpoint-10" / "trainer_state.json").read_text())
    assert saved["stateful_callbacks"]["BudgetState"]["args"]["budget"]["steps"] == 10


def test_a_run_may_be_given_another_budget_or_its_first_one_on_resuming(tmp_path: Path):
    weighted(tmp_path, steps=5, budget=Budget(nats=0.05)).train()
    other = weighted(tmp_path, steps=7, budget=Budget(nats=0.1))
    other.train(resume_from_checkpoint=True)
    found = budget_of(other)
    assert found is not None
    assert (found.nats, found.steps) == (0.1, 7)

    plain = weighted(tmp_path / "plain", steps=5, budget=None)
    assert budget_of(plain) is None
    plain.compute_loss = lambda model, inputs, *_, **__: model(**inputs)["loss"]  # type: ignore[method-assign]
    plain.train()
    late = weighted(tmp_path / "plain", steps=10, budget=Budget(nats=0.05))
    late.train(resume_from_checkpoint=True)
    found = budget_of(late)
    assert found is not None
    assert found.steps == 5
