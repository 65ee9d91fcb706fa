"""Where only one view's cross entropy is trained on; its formula is in test_formulas.py."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.alignment.problems import assert_fused_is_plain, problem

TERMS = [
    ("sce", "none"),
    ("sce", "both-targets"),
    ("jeffreys", "short"),
    ("js", "long"),
    ("kl", "long"),
    ("reverse_kl", "long"),
    ("reverse_kl", "short"),
]
HEAD = {"bias": True, "logit_scale": 1.7, "soft_cap": 6.0}


@pytest.mark.parametrize("ce_on", ["long", "short"])
@pytest.mark.parametrize(("divergence", "detach"), TERMS)
def test_fused_is_plain(divergence, detach, ce_on):
    term = {"alpha": 0.3, "divergence": divergence, "detach": detach}
    assert_fused_is_plain(problem(min_context=2, **HEAD), chunk_size=5, ce_on=ce_on, **term)


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
