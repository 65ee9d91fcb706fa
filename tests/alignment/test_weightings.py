"""The view whose cross entropy is trained on, and the weights of its tokens, against formulas written out here."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lengthwise.alignment import WEIGHTINGS, Normalizers, Objective, PairGeometry
from lengthwise.alignment.weightings import ByPosition, LongCE, PairedTokens, Sparse, Weighting, describe
from lengthwise.errors import UsageError

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
OPTIONS = {"longce": {"cap": 1.5}, "dense": {"floor": 0.3}, "sparse": {"share": 0.4}}


def written_weights(name, gains, contexts):
    """The weights of one window's tokens from loss_short - loss_long (floats) and their contexts."""
    n, sizes = len(gains), [abs(gain) for gain in gains]
    match name:
        case "none":
            return [1.0] * n
        case "longce":
            return [min(math.exp(gain), 1.5) for gain in gains]
        case "dense":
            return [0.3 + 0.7 * n * size / sum(sizes) for size in sizes]
        case "sparse":
            largest = sorted(range(n), key=lambda i: -sizes[i])[: max(1, math.floor(0.4 * n + 0.5))]
            return [n / len(largest) if i in largest else 0.0 for i in range(n)]
        case "position":
            buckets = [context.bit_length() for context in contexts]
            return [n * bucket / sum(buckets) for bucket in buckets]


def written_cross_entropy(data, leaves, weighting, ce_on):
    """The trained cross entropy, and the weights of paired rows, row by row from the definition."""
    labels = data.labels_long, data.labels_short
    losses = [
        -logits.log_softmax(-1).gather(-1, label.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        for logits, label in zip(data.logits(leaves), labels, strict=True)
    ]
    weights, geometry = [torch.ones_like(loss) for loss in losses], data.geometry
    for window, (long, short) in enumerate(zip(*labels, strict=True)):
        rows = [
            (row + geometry.offset, row)
            for row in range(geometry.min_context, geometry.length)
            if row + geometry.offset in range(geometry.length)
        ]
        rows = [(one, other) for one, other in rows if long[one] == short[other] != -100]
        gains = [(losses[1][window, other] - losses[0][window, one]).item() for one, other in rows]
        found = written_weights(weighting, gains, [one + 1 for one, _ in rows])
        for (one, other), weight in zip(rows, found, strict=True):
            weights[0][window, one] = weights[1][window, other] = weight
    means = [
        (weight * loss)[label != -100].sum() / (label != -100).sum()
        for weight, loss, label in zip(weights, losses, labels, strict=True)
    ]
    return {"both": sum(means) / 2, "long": means[0], "short": means[1]}[ce_on], weights[0][
        :, geometry.long_rows
    ]


def assert_same_gradients(found, expected, leaves, relative_error):
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
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("divergence", "detach"), TERMS)
def test_fused_and_plain_are_the_written_formula(
    problem, gradients, relative_error, assert_same_values, divergence, detach, weighting, ce_on, head
):
    data = problem(shared=0.8, min_context=2, **head)
    term = {"divergence": divergence, "detach": detach, "ce_on": ce_on, "weighting": weighting}
    term |= {"alpha": 0.3, "weighting_options": OPTIONS.get(weighting, {})}
    leaves, plain_leaves, written_leaves, unweighted_leaves = (data.leaves() for _ in range(4))
    output, truth = data.fused(leaves, chunk_size=5, **term), data.plain(plain_leaves, **term)
    assert_same_values(output, truth, rtol=1e-12)
    found, expected = gradients(output.loss, leaves, 0.7), gradients(truth.loss, plain_leaves, 0.7)
    assert_same_gradients(found, expected, leaves, relative_error)

    trained, weights = written_cross_entropy(data, written_leaves, weighting, ce_on)
    torch.testing.assert_close(output.cross_entropy, trained.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(output.weight, weights.mean(), rtol=1e-12, atol=0)
    assert output.weight_capped == pytest.approx((weights == 1.5).double().mean() * (weighting == "longce"))
    # The divergence is that of the objective without weights and with both cross entropies.
    plain = data.plain(unweighted_leaves, alpha=0.3, divergence=divergence, detach=detach)
    torch.testing.assert_close(output.loss, (trained + 0.3 * plain.divergence).detach(), rtol=1e-12, atol=0)
    for name in ("cross_entropy_long", "cross_entropy_short"):
        torch.testing.assert_close(getattr(output, name), getattr(plain, name), rtol=1e-12, atol=0)
    (trained + plain.loss - plain_cross_entropy(data, unweighted_leaves)).backward(
        torch.full_like(output.loss, 0.7)
    )
    written = {name: sum_of(leaf.grad, unweighted_leaves[name].grad) for name, leaf in written_leaves.items()}
    assert_same_gradients(found, written, leaves, relative_error)


def plain_cross_entropy(data, leaves):
    """(CE_long + CE_short) / 2 by torch's own function."""
    views = zip(data.logits(leaves), (data.labels_long, data.labels_short), strict=True)
    return sum(nn.functional.cross_entropy(z.flatten(0, 1), y.flatten()) for z, y in views) / 2


def sum_of(*gradients):
    present = [gradient for gradient in gradients if gradient is not None]
    return sum(present) if present else None


@pytest.mark.parametrize("offset", [-5, -1, 0, 11, 12])
@pytest.mark.parametrize("weighting", ["longce", "dense", "sparse", "position"])
def test_other_geometries(problem, gradients, relative_error, assert_same_values, weighting, offset):
    data = problem(offset=offset, min_context=0, shared=0.9)
    leaves, plain_leaves = data.leaves(), data.leaves()
    term = {"alpha": 0.3, "weighting": weighting}
    output, truth = data.fused(leaves, chunk_size=3, **term), data.plain(plain_leaves, **term)
    assert_same_values(output, truth, rtol=1e-12)
    found, expected = gradients(output.loss, leaves), gradients(truth.loss, plain_leaves)
    assert_same_gradients(found, expected, leaves, relative_error)
    assert bool(output.weight) == bool(data.geometry.paired_positions)


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 1000])
@pytest.mark.parametrize("weighting", ["longce", "dense", "sparse", "position"])
def test_chunks_do_not_matter(problem, gradients, relative_error, assert_same_values, weighting, chunk_size):
    data = problem(min_context=0, shared=0.9, soft_cap=5.0)
    leaves, whole_leaves = data.leaves(), data.leaves()
    term = {"alpha": 0.3, "weighting": weighting, "ce_on": "long"}
    output, whole = data.fused(leaves, chunk_size=chunk_size, **term), data.fused(whole_leaves, **term)
    assert_same_values(output, whole, rtol=1e-12)
    found, expected = gradients(output.loss, leaves), gradients(whole.loss, whole_leaves)
    assert_same_gradients(found, expected, leaves, relative_error)


@pytest.mark.parametrize("ce_on", ["both", "short"])
@pytest.mark.parametrize("weighting", ["longce", "dense", "sparse", "position"])
def test_micro_batches_add_up(problem, gradients, relative_error, weighting, ce_on):
    data = problem(batch=4, min_context=0, shared=0.9)
    slices = (slice(0, 1), slice(1, 4))
    parts = [
        replace(data, labels_long=data.labels_long[rows], labels_short=data.labels_short[rows])
        for rows in slices
    ]
    counts = [
        Normalizers.count(part.labels_long, part.labels_short, geometry=part.geometry) for part in parts
    ]
    leaves, whole_leaves = data.leaves(), data.leaves()
    term = {"alpha": 0.3, "weighting": weighting, "ce_on": ce_on}
    whole = data.fused(whole_leaves, **term)
    expected = gradients(whole.loss, whole_leaves)
    outputs = []
    for part, rows in zip(parts, slices, strict=True):
        tensors = {name: leaf[rows] if name.startswith("hidden") else leaf for name, leaf in leaves.items()}
        outputs.append(part.fused(tensors, normalizers=counts[0] + counts[1], **term))
        outputs[-1].loss.backward()
    for name, value in vars(whole).items():
        total = sum(float(torch.as_tensor(getattr(output, name)).detach()) for output in outputs)
        assert total == pytest.approx(float(torch.as_tensor(value).detach()), rel=1e-12), name
    assert_same_gradients(
        {name: leaf.grad for name, leaf in leaves.items()}, expected, leaves, relative_error
    )


@pytest.mark.parametrize("weighting", ["longce", "dense", "sparse", "position"])
@pytest.mark.parametrize(("ce_on", "alpha"), [("both", 0.3), ("long", 0.0)])
def test_sixteen_bits(problem, gradients, relative_error, weighting, ce_on, alpha):
    data = problem(vocabulary=300, width=32, shared=1.0, min_context=0, dtype=torch.bfloat16)
    leaves, exact = data.leaves(), data.to(torch.float64).leaves()
    term = {"alpha": alpha, "ce_on": ce_on, "weighting": weighting}
    output = data.fused(leaves, chunk_size=5, accumulate_dtype=torch.float32, **term)
    truth = data.to(torch.float64).plain(exact, **term)
    assert output.loss.item() == pytest.approx(truth.loss.item(), rel=1e-2)
    found, expected = gradients(output.loss, leaves), gradients(truth.loss, exact)
    for name, gradient in found.items():
        assert gradient.dtype == torch.bfloat16
        assert relative_error(gradient, expected[name]) < 4e-2, name


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
def test_a_view_that_is_not_trained_costs_no_gradient(problem, alpha, detach, short_needs):
    data = problem(shared=1.0, min_context=0)
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


def test_losses_of_whole_windows_cost_one_more_product_over_the_pairs(problem):
    data = problem(shared=1.0, min_context=0)
    counts = {}
    for weighting in WEIGHTINGS:
        with Products() as products:
            data.fused(data.leaves(), alpha=0.3, weighting=weighting)
        counts[weighting] = products.count
    pairs = len(data.labels_long) * data.geometry.paired_positions
    assert counts["none"] == counts["longce"] == counts["position"]
    assert counts["dense"] == counts["sparse"] == counts["none"] + 2 * pairs * 53 * 8


def tokens(long, short, weighted=None):
    long, short = (torch.tensor([values], dtype=torch.float64) for values in (long, short))
    weighted = torch.ones_like(long, dtype=torch.bool) if weighted is None else torch.tensor([weighted])
    return PairedTokens(weighted, torch.arange(1.0, 1 + long.shape[1]).double().expand_as(long), long, short)


def test_equal_losses_and_ties():
    same = tokens([2.0] * 5, [2.0] * 5)
    for name in ("longce", "dense", "position"):
        assert WEIGHTINGS[name]()(same).mean() == pytest.approx(1)
    assert WEIGHTINGS["dense"]()(same).tolist() == [[1.0] * 5]
    assert Sparse(share=0.4)(same).tolist() == [[2.5, 2.5, 0, 0, 0]]
    # 0.5 * 5 is rounded up, and 0.01 * 5 is at least one token.
    assert Sparse(share=0.5)(same).count_nonzero() == 3
    assert Sparse(share=0.01)(same).tolist() == [[5.0, 0, 0, 0, 0]]
    assert ByPosition()(same).tolist() == [pytest.approx([5 * b / 11 for b in (1, 2, 2, 3, 3)])]


def test_rows_without_a_common_label_weigh_one_and_do_not_count():
    some = tokens([1.0, 9.0, 2.0, 0.5], [2.0, 0.0, 2.5, 0.5], [True, False, True, True])
    for name, kind in WEIGHTINGS.items():
        if kind is not None:
            weights = kind()(some)
            assert weights[0, 1] == 1
            if name != "longce":
                assert weights[0, [0, 2, 3]].mean() == pytest.approx(1), name
    assert LongCE()(some)[0].tolist() == pytest.approx([math.e, 1, math.exp(0.5), 1])
    none = tokens([1.0, 2.0], [2.0, 1.0], [False, False])
    for kind in WEIGHTINGS.values():
        assert kind is None or kind()(none).tolist() == [[1.0, 1.0]]


def test_the_cap_of_longce_counts_weighted_rows_alone():
    some = tokens([0.0, 0.0, 9.0, 0.0], [2.0, 1e4, 0.0, 2.0], [True, True, True, False])
    weighting = LongCE()
    weights = weighting(some)
    assert weights[0, :2].tolist() == [5.0, 5.0]
    assert weighting.count_capped(weights, some) == 2
    assert LongCE(cap=1.0).count_capped(LongCE(cap=1.0)(some), some) == 2


def test_one_more_weighting_is_one_class_and_one_entry(
    monkeypatch, problem, gradients, relative_error, assert_same_values
):
    @dataclass(frozen=True)
    class Halved(Weighting):
        what = "tokens that the short view knows better count half"
        reads = "pair"

        def weights(self, tokens):
            return torch.ones_like(tokens.gain).where(tokens.gain > 0, 0.5)

    monkeypatch.setitem(WEIGHTINGS, "halved", Halved)
    data = problem(shared=1.0)
    leaves, plain_leaves = data.leaves(), data.leaves()
    output = data.fused(leaves, alpha=0.3, weighting="halved")
    truth = data.plain(plain_leaves, alpha=0.3, weighting="halved")
    assert 0.5 < output.weight < 1
    assert_same_values(output, truth, rtol=1e-12)
    found, expected = gradients(output.loss, leaves), gradients(truth.loss, plain_leaves)
    assert_same_gradients(found, expected, leaves, relative_error)


def test_the_gradient_is_the_slope_of_the_loss(problem):
    """Of weights that are constants: no gradient goes through the others."""
    data = problem(
        batch=1, length=5, offset=1, width=3, vocabulary=7, logit_std=1.0, shared=1.0, min_context=0
    )
    leaves = data.leaves()
    for ce_on in ("both", "long", "short"):
        found = data.fused(leaves, alpha=0.2, weighting="position", ce_on=ce_on, chunk_size=2).loss
        gradient = torch.autograd.grad(found, leaves["head_weight"])[0]
        direction = torch.randn_like(gradient)
        values = [
            data.fused(
                {**data.leaves(()), "head_weight": data.head_weight + step * direction},
                alpha=0.2,
                weighting="position",
                ce_on=ce_on,
            ).loss
            for step in (1e-6, -1e-6)
        ]
        slope = (values[0] - values[1]) / 2e-6
        torch.testing.assert_close(slope, (gradient * direction).sum(), rtol=1e-7, atol=1e-9)


def test_every_weighting_says_what_it_does():
    assert list(WEIGHTINGS) == ["none", "longce", "dense", "sparse", "position"]
    assert all(len(describe(name)) > 20 for name in WEIGHTINGS)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"weighting": "longcee"}, "longce"),
        ({"weighting": "none", "weighting_options": {"cap": 5}}, "cap"),
        ({"weighting": "longce", "weighting_options": {"capp": 5}}, "cap"),
        ({"weighting": "longce", "weighting_options": {"cap": 0}}, "0"),
        ({"weighting": "longce", "weighting_options": {"cap": math.nan}}, "nan"),
        ({"weighting": "dense", "weighting_options": {"floor": 1.5}}, "1.5"),
        ({"weighting": "sparse", "weighting_options": {"share": 0}}, "0"),
        ({"weighting": "sparse", "weighting_options": {"share": "much"}}, "much"),
        ({"weighting": "position", "weighting_options": {"cap": 5}}, "cap"),
        ({"ce_on": "lnog"}, "long"),
    ],
)
def test_impossible_terms_are_refused(terms, named):
    with pytest.raises(UsageError) as caught:
        Objective(alpha=0.1, **terms)
    assert named in str(caught.value)


def test_an_objective_is_a_value():
    one = Objective(alpha=0.1, weighting="longce", weighting_options={"cap": 3.0})
    assert one == Objective(**asdict(one))
    assert len({one, Objective(**asdict(one)), Objective(alpha=0.1, weighting="longce")}) == 2
    assert one.token_weighting == LongCE(cap=3.0)
    assert Objective(alpha=0.1).token_weighting is None


def test_a_label_in_one_view_alone(problem, assert_same_values):
    data = problem(shared=1.0, ignored=0.0)
    data.labels_short[:, data.geometry.short_rows.start] = -100
    output = data.fused(alpha=0.3, weighting="sparse", ce_on="both")
    assert_same_values(output, data.plain(alpha=0.3, weighting="sparse", ce_on="both"), rtol=1e-12)
    assert output.weight == pytest.approx(1)


def test_a_loss_that_is_not_a_number_is_no_number_with_weights(problem):
    data = problem(ignored=0.0, shared=1.0)
    hidden = data.hidden_long.clone()
    hidden[0, -1, 0] = math.nan
    for weighting in WEIGHTINGS:
        assert replace(data, hidden_long=hidden).fused(alpha=0.0, weighting=weighting).loss.isnan()


def test_a_geometry_without_pairs_leaves_the_cross_entropy(problem, assert_same_values):
    data = replace(problem(offset=12), geometry=PairGeometry(12, 12))
    for weighting in WEIGHTINGS:
        output = data.fused(alpha=0.3, weighting=weighting)
        assert_same_values(output, data.fused(alpha=0.3), rtol=0)
