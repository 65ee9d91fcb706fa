"""Input of the objective and what tests compare of its output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.alignment import (
    AlignmentOutput,
    Objective,
    PairGeometry,
    alignment_loss,
    alignment_loss_from_logits,
)

GRADIENTS = ("hidden_long", "hidden_short", "head_weight", "head_bias")


@dataclass(frozen=True)
class Problem:
    """Small input of the objective, with rows that have no label; the fused and the plain objective on it."""

    hidden_long: Tensor
    hidden_short: Tensor
    head_weight: Tensor
    head_bias: Tensor | None
    labels_long: Tensor
    labels_short: Tensor
    geometry: PairGeometry
    soft_cap: float | None = None
    logit_scale: float = 1.0

    def to(self, dtype: torch.dtype) -> Problem:
        tensors = {name: getattr(self, name) for name in GRADIENTS}
        return replace(self, **{k: v.to(dtype) for k, v in tensors.items() if v is not None})

    def on(self, device: torch.device) -> Problem:
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)

    def leaves(self, wanted: tuple[str, ...] = GRADIENTS) -> dict[str, Tensor]:
        """Fresh copies of the differentiable input; those wanted get gradients."""
        tensors = {name: getattr(self, name) for name in GRADIENTS}
        return {
            name: tensor.detach().clone().requires_grad_(name in wanted)
            for name, tensor in tensors.items()
            if tensor is not None
        }

    def fused(self, leaves: dict[str, Tensor] | None = None, **options) -> AlignmentOutput:
        tensors = leaves or self.leaves(())
        return alignment_loss(
            tensors["hidden_long"],
            tensors["hidden_short"],
            tensors["head_weight"],
            self.labels_long,
            self.labels_short,
            geometry=self.geometry,
            head_bias=tensors.get("head_bias"),
            soft_cap=self.soft_cap,
            logit_scale=self.logit_scale,
            **_with_objective(options),
        )

    def logits(self, leaves: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        tensors = leaves or self.leaves(())

        def head(hidden: Tensor) -> Tensor:
            linear = F.linear(hidden, tensors["head_weight"], tensors.get("head_bias"))
            scaled = self.logit_scale * linear
            return scaled if self.soft_cap is None else self.soft_cap * torch.tanh(scaled / self.soft_cap)

        return head(tensors["hidden_long"]), head(tensors["hidden_short"])

    def plain(self, leaves: dict[str, Tensor] | None = None, **options) -> AlignmentOutput:
        return alignment_loss_from_logits(
            *self.logits(leaves),
            self.labels_long,
            self.labels_short,
            geometry=self.geometry,
            **_with_objective(options),
        )


def problem(
    *,
    batch: int = 2,
    length: int = 12,
    offset: int = 3,
    min_context: int | None = None,
    width: int = 8,
    vocabulary: int = 53,
    bias: bool = False,
    soft_cap: float | None = None,
    logit_scale: float = 1.0,
    logit_std: float = 3.0,
    noise: float = 0.3,
    ignored: float = 0.2,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden_long, hidden_short = normal(batch, length, width), normal(batch, length, width)
    common = PairGeometry(length, offset, 0)
    noise_short = noise * normal(batch, common.paired_positions, width)
    hidden_short[:, common.short_rows] = hidden_long[:, common.long_rows] + noise_short
    labels = torch.randint(0, vocabulary, (2, batch, length), generator=generator)
    labels[torch.rand(2, batch, length, generator=generator) < ignored] = -100
    return Problem(
        hidden_long,
        hidden_short,
        normal(vocabulary, width) * logit_std / width**0.5,
        normal(vocabulary) if bias else None,
        labels[0],
        labels[1],
        PairGeometry(length, offset, min_context),
        soft_cap,
        logit_scale,
    ).to(dtype)


def _with_objective(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the fields of an Objective made into one."""
    terms = {name: value for name, value in options.items() if name in Objective.model_fields}
    others = {name: value for name, value in options.items() if name not in terms}
    return {"objective": Objective(**terms), **others}


def gradients(loss: Tensor, leaves: dict[str, Tensor], upstream: float = 1.0) -> dict[str, Tensor]:
    """Backward from a loss; the gradients of the leaves that got one, by name."""
    loss.backward(torch.full_like(loss, upstream))
    return {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def relative_error(value: Tensor, truth: Tensor) -> float:
    """Frobenius norm of the difference over that of the truth, in fp64."""
    return ((value.double() - truth.double()).norm() / truth.double().norm()).item()


def assert_same_values(output: AlignmentOutput, truth: AlignmentOutput, *, rtol: float) -> None:
    """Every field of two outputs agrees."""
    for name, expected in vars(truth).items():
        value = getattr(output, name)
        assert value.shape == (), name
        torch.testing.assert_close(
            value.detach().double(),
            expected.detach().double(),
            rtol=rtol,
            atol=0,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def assert_fused_is_plain(
    data: Problem, *, tolerance: float = 1e-12, chunk_size: int | None = None, **term: Any
) -> dict[str, Tensor]:
    """Values and every gradient of the fused objective are those of the plain one; its gradients."""
    leaves, plain_leaves = data.leaves(), data.leaves()
    output, truth = data.fused(leaves, chunk_size=chunk_size, **term), data.plain(plain_leaves, **term)
    assert_same_values(output, truth, rtol=tolerance)
    found, expected = gradients(output.loss, leaves, 0.7), gradients(truth.loss, plain_leaves, 0.7)
    assert found.keys() == expected.keys()
    for name in expected:
        assert relative_error(found[name], expected[name]) < tolerance, name
    return found
