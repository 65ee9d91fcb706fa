"""The view whose cross entropy is trained on, against formulas written out here."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.alignment.problems import assert_same_values, gradients, problem, relative_error

TERMS = [
    ("sce", "none"),
    ("sce", "both-targets"),
    ("jeffreys", "short"),
    ("js", "long"),
    ("kl", "long"),
    ("reverse_kl", "long"),
    ("reverse_kl", "short"),
]
HEADS = {"plain": {}, "all": {"bias": True, "logit_scale": 1.7, "soft_cap": 6.0}}


def cross_entropies(data, leaves):
    """CE_long and CE_short by torch's own function."""
    views = zip(data.logits(leaves), (data.labels_long, data.labels_short), strict=True)
    return [nn.functional.cross_entropy(z.flatten(0, 1), y.flatten()) for z, y in views]


def assert_same_gradients(found, expected, leaves):
    """None is as good as zeros."""
    for name, leaf in leaves.items():
        one, other = found.get(name), expected.get(name)
        if other is None or other.count_nonzero() == 0:
            assert one is None or one.count_nonzero() == 0, name
        else:
            assert one is not None
            assert one.shape == leaf.shape
            assert relative_error(one, other) < 1e-11, name


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("ce_on", ["both", "long", "short"])
@pytest.mark.parametrize(("divergence", "detach"), TERMS)
def test_fused_and_plain_are_the_written_formula(divergence, detach, ce_on, head):
    data = problem(min_context=2, **head)
    term = {"alpha": 0.3, "divergence": divergence, "detach": detach}
    leaves, plain_leaves, written_leaves = (data.leaves() for _ in range(3))
    output = data.fused(leaves, chunk_size=5, ce_on=ce_on, **term)
    truth = data.plain(plain_leaves, ce_on=ce_on, **term)
    assert_same_values(output, truth, rtol=1e-12)
    found, expected = gradients(output.loss, leaves, 0.7), gradients(truth.loss, plain_leaves, 0.7)
    assert_same_gradients(found, expected, leaves)

    # The objective with both cross entropies, with the mean of both exchanged for the one that is trained on.
    long, short = cross_entropies(data, written_leaves)
    trained = {"both": (long + short) / 2, "long": long, "short": short}[ce_on]
    written = data.plain(written_leaves, **term).loss - (long + short) / 2 + trained
    torch.testing.assert_close(output.cross_entropy, trained.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(output.cross_entropy_long, long.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(output.cross_entropy_short, short.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(output.loss, written, rtol=1e-12, atol=0)
    assert_same_gradients(found, gradients(written, written_leaves, 0.7), leaves)


class Products(TorchDispatchMode):
    """Counts the multiplications in matrix products."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
            (n, inner), (_, m) = (tensor.shape for tensor in arguments[-2:])
            self.count += n * inner * m
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("detach", ["none", "short"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("short_needs", [True, False])
def test_a_view_that_is_not_trained_costs_no_gradient(alpha, detach, short_needs):
    data = problem(min_context=0)
    wanted = ("hidden_long", "hidden_short", "head_weight") if short_needs else ("hidden_long", "head_weight")
    leaves = data.leaves(wanted)
    with Products() as products:
        output = data.fused(leaves, alpha=alpha, divergence="jeffreys", detach=detach, ce_on="long")
    output.loss.backward()
    trained = alpha > 0 and detach == "none"
    assert (leaves["hidden_short"].grad is not None) == (trained and short_needs)
    pairs = len(data.labels_long) * data.geometry.paired_positions
    unpaired = [
        (labels != -100).sum() - (labels[:, rows] != -100).sum()
        for labels, rows in (
            (data.labels_long, data.geometry.long_rows),
            (data.labels_short, data.geometry.short_rows),
        )
    ]
    long, short = (pairs + int(rows) for rows in unpaired)
    # Forward for all rows, then hidden states' and the head's gradients for those that are trained.
    rows = 3 * long + (1 + trained * (1 + short_needs)) * short
    assert products.count == rows * 53 * 8
