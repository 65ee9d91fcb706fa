"""Which views are read, and with which gradients: against the plain formula on the logits of both views."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn

from lengthwise.alignment import Objective, PairGeometry, alignment_loss_from_logits
from lengthwise.checkpoints import find_head
from lengthwise.testing import tiny_llama
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter
from lengthwise.training.trainer import logged_parts

LENGTH = 16


def batch(seed: int = 0) -> dict[str, Any]:
    """Gap views: the same tokens, the second view behind a gap of 20 from row 5 on."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 320, (2, LENGTH), generator=generator).repeat(2, 1)
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    positions = torch.arange(LENGTH).repeat(4, 1)
    positions[2:, 5:] += 20
    return {
        "input_ids": ids,
        "labels": labels,
        "position_ids": positions,
        "attention_mask": torch.ones_like(ids),
        "geometry": PairGeometry(LENGTH, 0, 5),
    }


def with_lora(model: nn.Module) -> Any:
    return add_adapter(model, Adapter(target_modules=["q_proj", "v_proj"]))


class Reads:
    """The rows of every forward pass of a model, and whether it was recorded for gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.passes: list[tuple[torch.Tensor, bool]] = []
        embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        embedding.register_forward_hook(self._note)

    def _note(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.passes.append((inputs[0], torch.is_grad_enabled()))


OBJECTIVES = [
    {"alpha": alpha, "divergence": divergence, "detach": detach, "ce_on": ce_on}
    for alpha, (divergence, detach), ce_on in itertools.product(
        (0.0, 0.7),
        (("kl", "long"), ("reverse_kl", "long"), ("kl", "short"), ("jeffreys", "none")),
        ("both", "long", "short"),
    )
]


@pytest.mark.parametrize("terms", OBJECTIVES, ids=lambda terms: "-".join(map(str, terms.values())))
def test_loss_and_gradients_are_those_of_both_views_logits(terms: dict[str, Any]):
    objective, inputs = Objective(**terms), batch()
    model = tiny_llama().double()
    plain = copy.deepcopy(model)
    placed = {name: inputs[name] for name in ("input_ids", "position_ids", "attention_mask")}
    expected = alignment_loss_from_logits(
        *plain(**placed).logits.chunk(2),
        *inputs["labels"].chunk(2),
        geometry=inputs["geometry"],
        objective=objective,
    )
    expected.loss.backward()
    head, reads = find_head(model), Reads(model)
    found = model_alignment_loss(model, head, **inputs, objective=objective)
    found.loss.backward()
    for part in ("loss", "cross_entropy", *logged_parts(objective)):
        assert getattr(found, part).item() == pytest.approx(getattr(expected, part).item(), rel=1e-10), part
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-9, atol=1e-12)
    rows = sum(len(ids) for ids, _ in reads.passes)
    recorded = sum(len(ids) for ids, gradients in reads.passes if gradients)
    assert rows == 2 * sum(objective.reads)
    assert recorded == 2 * sum(objective.trains)


def test_a_view_that_is_not_read_gives_no_parts():
    assert Objective(alpha=0, ce_on="short").reads == (False, True)
    assert Objective(alpha=0, ce_on="long").reads == (True, False)
    assert "cross_entropy_long" not in logged_parts(Objective(alpha=0, ce_on="short"))
    assert "jeffreys" not in logged_parts(Objective(alpha=0, ce_on="long"))
    assert "jeffreys" in logged_parts(Objective(alpha=0))


def test_a_frozen_long_pass_under_autocast_leaves_the_adapter_its_gradients():
    model = with_lora(tiny_llama())
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data.normal_(std=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model_alignment_loss(
            model,
            find_head(model),
            **batch(),
            objective=Objective(alpha=1.0, divergence="kl", detach="long", ce_on="short"),
        ).loss
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)
