from dataclasses import replace
from itertools import combinations

import pytest
import torch

from lengthwise.alignment import Normalizers, chunked, kernels
from lengthwise.alignment.divergences import DIVERGENCES
from lengthwise.errors import UsageError
from tests.alignment.problems import (
    assert_fused_is_plain,
    assert_same_values,
    gradients,
    problem,
    relative_error,
)

TERMS = [(name, detach) for name, divergence in DIVERGENCES.items() for detach in divergence.detach]

HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "scaled": {"logit_scale": 0.6},
    "capped": {"soft_cap": 4.0},
    "all": {"bias": True, "logit_scale": 1.7, "soft_cap": 6.0},
}


def set_tile_rows(monkeypatch, rows, vocabulary=53):
    threads = torch.get_num_threads()
    monkeypatch.setattr(kernels, "_TILE_LOGITS_A_THREAD", -(-rows * vocabulary // threads))


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("min_context", [None, 0])
@pytest.mark.parametrize(("divergence", "detach"), TERMS)
def test_values_and_gradients_are_those_of_the_plain_formulas(
    monkeypatch, divergence, detach, min_context, head
):
    set_tile_rows(monkeypatch, 3)
    data = problem(min_context=min_context, **head)
    term = {"alpha": 0.3, "divergence": divergence, "detach": detach}
    assert assert_fused_is_plain(data, chunk_size=5, **term).keys() == data.leaves().keys()


@pytest.mark.parametrize("ce_on", ["long", "short"])
@pytest.mark.parametrize(("divergence", "detach"), [term for term in TERMS if term[0] != "entropy"])
def test_one_views_cross_entropy_alone(divergence, detach, ce_on):
    term = {"alpha": 0.3, "divergence": divergence, "detach": detach, "ce_on": ce_on}
    assert_fused_is_plain(problem(min_context=2, **HEADS["all"]), chunk_size=5, **term)


@pytest.mark.parametrize(("divergence", "detach"), TERMS)
def test_the_divergence_alone(divergence, detach):
    """Without labels, where a cross entropy a thousand times larger cannot hide an error."""
    data = problem(ignored=1.0, noise=0.01, bias=True)
    term = {"alpha": 1e-3, "divergence": divergence, "detach": detach}
    leaves, plain_leaves = data.leaves(), data.leaves()
    output, truth = data.fused(leaves, **term), data.plain(plain_leaves, **term)
    assert_same_values(output, truth, rtol=1e-11)
    assert output.cross_entropy == 0
    found, expected = gradients(output.loss, leaves), gradients(truth.loss, plain_leaves)
    # In the plain form a side without any gradient has zeros or none.
    scale = max(gradient.norm() for gradient in expected.values())
    for name, leaf in leaves.items():
        truth = expected.get(name, torch.zeros_like(leaf))
        error = (found[name] - truth).norm()
        assert error <= 1e-11 * truth.norm() or error < 1e-13 * scale, name


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 1000, None])
@pytest.mark.parametrize("tile_rows", [1, 4, 100])
def test_the_loss_does_not_depend_on_chunks_and_tiles(monkeypatch, chunk_size, tile_rows):
    data = problem(dtype=torch.float32, min_context=0, bias=True)
    leaves, whole_leaves = data.leaves(), data.leaves()
    whole = data.fused(whole_leaves, alpha=0.3)
    set_tile_rows(monkeypatch, tile_rows)
    output = data.fused(leaves, alpha=0.3, chunk_size=chunk_size)
    assert_same_values(output, whole, rtol=1e-6)
    found, expected = gradients(output.loss, leaves), gradients(whole.loss, whole_leaves)
    for name in leaves:
        assert relative_error(found[name], expected[name]) < 2e-6, name


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_only_what_needs_a_gradient_gets_one(count):
    data = problem(bias=True)
    everything = data.leaves()
    expected = gradients(data.fused(everything, alpha=0.3, chunk_size=5).loss, everything)
    for wanted in combinations(everything, count):
        leaves = data.leaves(wanted)
        loss = data.fused(leaves, alpha=0.3, chunk_size=5).loss
        assert loss.requires_grad == bool(wanted)
        if wanted:
            found = gradients(loss, leaves)
            assert tuple(found) == wanted
            for name in wanted:
                torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("divergence", ["sce", "jeffreys", "js", "entropy"])
@pytest.mark.parametrize("offset", [6, 9, 12])
def test_an_empty_overlap_is_exactly_zero(divergence, offset):
    data = problem(offset=offset)
    leaves, without = data.leaves(), data.leaves()
    output = data.fused(leaves, alpha=0.3, divergence=divergence)
    assert data.geometry.paired_positions == 0
    assert [output.misalignment, output.entropy, output.jeffreys, output.divergence] == [0, 0, 0, 0]
    assert output.loss == output.cross_entropy
    found = gradients(output.loss, leaves)
    expected = gradients(data.fused(without, alpha=0.0).loss, without)
    for name in leaves:
        assert torch.equal(found[name], expected[name]), name


@pytest.mark.parametrize("as_tensor", [False, True])
def test_parts_of_a_batch_add_up_to_the_whole(as_tensor):
    data = problem(batch=4, bias=True)
    parts = [
        replace(
            data,
            **{
                name: getattr(data, name)[rows]
                for name in ("hidden_long", "hidden_short", "labels_long", "labels_short")
            },
        )
        for rows in (slice(0, 1), slice(1, 4))
    ]
    counts = [
        Normalizers.count(part.labels_long, part.labels_short, geometry=part.geometry) for part in parts
    ]
    step = counts[0] + counts[1]
    if as_tensor:
        step = Normalizers(**{name: torch.tensor(value) for name, value in vars(step).items()})

    whole_leaves, leaves = data.leaves(), data.leaves()
    whole = data.fused(whole_leaves, alpha=0.3)
    expected = gradients(whole.loss, whole_leaves)
    outputs = []
    for part, rows in zip(parts, (slice(0, 1), slice(1, 4)), strict=True):
        tensors = {name: leaf[rows] if name.startswith("hidden") else leaf for name, leaf in leaves.items()}
        outputs.append(part.fused(tensors, alpha=0.3, normalizers=step))
        outputs[-1].loss.backward()
    for name, value in vars(whole).items():
        total = sum(getattr(output, name).item() for output in outputs)
        assert total == pytest.approx(value.item(), rel=1e-12), name
    for name in leaves:
        assert relative_error(leaves[name].grad, expected[name]) < 1e-12, name


def test_values_without_gradient():
    data = problem(bias=True, soft_cap=5.0)
    with torch.no_grad():
        output = data.fused(data.leaves(), alpha=0.3)
    assert not output.loss.requires_grad
    assert_same_values(output, data.plain(alpha=0.3), rtol=1e-12)
    with torch.inference_mode():
        assert_same_values(data.fused(alpha=0.3), output, rtol=1e-15)


def test_only_the_loss_has_a_gradient():
    output = problem().fused(problem().leaves(), alpha=0.3)
    assert [name for name, value in vars(output).items() if value.requires_grad] == ["loss"]


def test_input_is_left_as_it_was_and_gradients_are_new():
    data = problem(bias=True, soft_cap=5.0)
    leaves, before = data.leaves(), data.leaves(())
    versions = {name: leaf._version for name, leaf in leaves.items()}
    found = gradients(data.fused(leaves, alpha=0.3).loss, leaves)
    for name, leaf in leaves.items():
        assert torch.equal(leaf, before[name])
        assert leaf._version == versions[name]
        assert found[name].data_ptr() != leaf.data_ptr()


def test_layouts_do_not_matter():
    """Hidden states as views of one batch, a head that is a transposed matrix, a cut of a padded
    vocabulary."""
    data = problem(vocabulary=53)
    leaves = data.leaves()
    expected = gradients(data.fused(leaves, alpha=0.3).loss, leaves)

    both = torch.stack((data.hidden_long, data.hidden_short), dim=2).requires_grad_()
    padding = torch.full((8, 11), 1e4, dtype=torch.float64)
    padded = torch.cat((data.head_weight.T, padding), dim=1).requires_grad_()
    tensors = {"hidden_long": both[:, :, 0], "hidden_short": both[:, :, 1], "head_weight": padded.T[:53]}
    data.fused(tensors, alpha=0.3).loss.backward()
    assert relative_error(both.grad[:, :, 0], expected["hidden_long"]) < 1e-12
    assert relative_error(both.grad[:, :, 1], expected["hidden_short"]) < 1e-12
    assert relative_error(padded.grad[:, :53].T, expected["head_weight"]) < 1e-12
    assert padded.grad[:, 53:].count_nonzero() == 0


def test_a_second_backward_and_a_second_derivative_are_refused():
    leaves = problem().leaves()
    loss = problem().fused(leaves, alpha=0.3).loss
    with pytest.raises(UsageError, match="cannot be differentiated again"):
        torch.autograd.grad(loss, leaves["head_weight"], create_graph=True)
    loss = problem().fused(leaves, alpha=0.3).loss
    loss.backward(retain_graph=True)
    first = leaves["head_weight"].grad.clone()
    with pytest.raises(UsageError, match="differentiated before"):
        loss.backward()
    assert torch.equal(leaves["head_weight"].grad, first)


@pytest.mark.parametrize("name", ["hidden_long", "hidden_short", "head_weight"])
def test_nan_goes_through_to_the_loss(name):
    data = problem(ignored=0.0)
    spoiled = getattr(data, name).clone()
    spoiled.view(-1)[0] = float("nan")
    assert replace(data, **{name: spoiled}).fused(alpha=0.0).loss.isnan()


@pytest.mark.parametrize(
    ("device", "vocabulary", "dtype", "pairs"),
    [
        # 96 MiB of logits of both views.
        ("cpu", 49152, torch.float32, 256),
        ("cpu", 128256, torch.bfloat16, 196),
        # Off the CPU the rows decide, until logits reach 1 GiB.
        ("cuda", 32000, torch.bfloat16, 2048),
        ("cuda", 128256, torch.bfloat16, 2048),
        ("cuda", 131072, torch.bfloat16, 2048),
        ("cuda", 262144, torch.bfloat16, 1024),
        ("cuda", 128256, torch.float32, 1046),
        ("mps", 262144, torch.float32, 512),
        # Never fewer than 16, whatever they take.
        ("cpu", 2**24, torch.float32, 16),
        ("cuda", 2**28, torch.float32, 16),
    ],
)
def test_the_default_chunk(device, vocabulary, dtype, pairs):
    found = chunked.default_chunk_size(vocabulary, dtype, torch.device(device))
    assert found == pairs
    room = 96 * 2**20 if device == "cpu" else 2**30
    assert found == 16 or 2 * found * vocabulary * dtype.itemsize <= room
