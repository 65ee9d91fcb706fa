import math
from dataclasses import replace

import pytest
import torch

from lengthwise.alignment import Normalizers, Objective, PairGeometry, alignment_loss_from_logits
from lengthwise.errors import UsageError
from tests.alignment.problems import gradients, problem, relative_error

NAN = float("nan")


@pytest.fixture(params=["fused", "plain"])
def objective(request):
    """Both implementations refuse the same things."""

    def call(data, **options):
        return getattr(data, request.param)(**{"alpha": 0.3, **options})

    return call


@pytest.mark.parametrize("label", [-1, 53, 1000])
@pytest.mark.parametrize("view", ["labels_long", "labels_short"])
def test_a_label_outside_the_vocabulary_is_named(objective, view, label):
    data = problem()
    labels = getattr(data, view).clone()
    labels[1, 4] = label
    with pytest.raises(UsageError, match=f"{view} .*{label}.* 53"):
        objective(replace(data, **{view: labels}))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_labels_of_any_whole_numbers_are_labels(objective, dtype):
    data, names = problem(), ("labels_long", "labels_short")
    if dtype == torch.uint8:
        data = replace(data, **{name: getattr(data, name).clamp(min=0) for name in names})
    given = replace(data, **{name: getattr(data, name).to(dtype) for name in names})
    assert objective(given).loss.item() == objective(data).loss.item()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32])
def test_no_unsigned_label_is_a_row_without_one(objective, dtype):
    """-100 is 156 in 8 bits, 65436 in 16."""
    data = problem(vocabulary=300)
    geometry, ids = data.geometry, torch.full((2, 12), 156)
    given = ids.to(dtype)
    expected = objective(replace(data, labels_long=ids, labels_short=ids)).loss.item()
    assert objective(replace(data, labels_long=given, labels_short=given)).loss.item() == expected
    counts = (Normalizers.count(each, each, geometry=geometry) for each in (given, ids))
    assert len(set(counts)) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"geometry": PairGeometry(11, 2)}, "geometry.length.* 11 .* 12 "),
        ({"labels_long": torch.zeros(2, 11, dtype=torch.long)}, r"labels_long .*\[2, 11\]"),
        ({"hidden_short": torch.zeros(2, 11, 8).double()}, r"\[2, 11, (8|53)\]"),
        ({"labels_long": torch.zeros(2, 12)}, "labels_long is torch.float32"),
        ({"labels_short": torch.zeros(2, 12, dtype=torch.bool)}, "labels_short is torch.bool"),
        ({"labels_short": torch.zeros(2, 12, dtype=torch.complex64)}, "labels_short is torch.complex64"),
    ],
)
def test_views_labels_and_geometry_have_to_fit(objective, change, named):
    with pytest.raises(UsageError, match=named):
        objective(replace(problem(), **change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"hidden_long": torch.zeros(24, 8).double(), "hidden_short": torch.zeros(24, 8).double()},
            r"\[24, 8\]",
        ),
        ({"hidden_short": torch.zeros(2, 12, 8)}, "torch.float32"),
        ({"head_weight": torch.zeros(53, 8)}, "head_weight torch.float32"),
        ({"head_weight": torch.zeros(53 * 8).double()}, r"head_weight .*\[424\]"),
        ({"head_weight": torch.zeros(0).double()}, r"head_weight .*\[0\]"),
        ({"head_weight": torch.zeros(53, 7).double()}, r"head_weight \[53, 7\]"),
        ({"head_weight": torch.zeros(53, 8).long()}, "torch.int64"),
        ({"head_weight": torch.zeros(53, 8).cfloat()}, "torch.complex64"),
        ({"head_bias": torch.zeros(52).double()}, r"head_bias is \[52\]"),
        ({"head_bias": torch.zeros(53, 1).double()}, r"head_bias is \[53, 1\]"),
        *(({"soft_cap": bad}, "soft_cap") for bad in (0, -1.0, NAN, math.inf, True, "30")),
        *(({"logit_scale": bad}, "logit_scale") for bad in (0, NAN, math.inf, True, "1")),
    ],
)
def test_hidden_states_and_head_have_to_fit(change, named):
    with pytest.raises(UsageError, match=named):
        replace(problem(), **change).fused(alpha=0.3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_views_and_head_of_no_floating_dtype_are_refused(dtype):
    with pytest.raises(UsageError, match=str(dtype)):
        problem().to(dtype).fused(alpha=0.3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16])
def test_the_gradient_of_a_head_is_summed_in_its_own_dtype_or_fp32(dtype):
    with pytest.raises(UsageError, match=f"accumulate_dtype is {dtype}"):
        problem().fused(alpha=0.3, accumulate_dtype=dtype)


def test_a_zero_3_parameter_is_refused_while_it_is_gathered():
    leaves = problem().leaves()
    leaves["head_weight"].ds_id = 7
    with pytest.raises(UsageError, match="head_weight"):
        problem().fused(leaves, alpha=0.3)


def test_a_sharded_head_is_gathered_and_its_gradient_handed_back(process_group):
    """With two processes in tests/training/test_sharded.py."""
    tensors = pytest.importorskip("torch.distributed.tensor")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    data = problem(bias=True)
    leaves, shards = data.leaves(), data.leaves()
    for name in ("head_weight", "head_bias"):
        shards[name] = tensors.distribute_tensor(shards[name].detach(), mesh, [tensors.Shard(0)])
        shards[name].requires_grad_()
    expected = gradients(data.fused(leaves, alpha=0.3).loss, leaves)
    found = gradients(data.fused(shards, alpha=0.3).loss, shards)
    for name in ("head_weight", "head_bias"):
        assert found[name].placements == (tensors.Shard(0),)
        found[name] = found[name].full_tensor()
    for name in leaves:
        assert relative_error(found[name], expected[name]) < 1e-14, name
    assert data.fused({**data.leaves(()), "head_weight": shards["head_weight"].detach()}, alpha=0.3).loss > 0


TRANSFORMS = {
    "grad": lambda loss, weight: torch.func.grad(loss)(weight),
    "jvp": lambda loss, weight: torch.func.jvp(loss, (weight,), (weight,)),
    "vmap": lambda loss, weight: torch.func.vmap(loss)(torch.stack([weight, weight])),
}


# What torch itself loads for these derivatives.
jit_warns = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


@jit_warns
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_functional_transforms_are_refused(transform):
    data = problem()
    tensors = data.leaves(())

    def loss(weight):
        return data.fused({**tensors, "head_weight": weight}, alpha=0.3).loss

    with pytest.raises(UsageError, match=r"torch.func"):
        transform(loss, data.head_weight)


@jit_warns
@pytest.mark.parametrize("name", ["hidden_long", "hidden_short", "head_weight", "head_bias"])
def test_forward_mode_is_refused(name):
    data = problem(bias=True)
    with torch.autograd.forward_ad.dual_level():
        tensors = data.leaves(())
        tensors[name] = torch.autograd.forward_ad.make_dual(tensors[name], torch.ones_like(tensors[name]))
        with pytest.raises(UsageError, match="forward-mode"):
            data.fused(tensors, alpha=0.3)
        # A level without a dual tensor changes nothing.
        assert data.fused(alpha=0.3).loss > 0


@jit_warns
def test_the_plain_form_has_the_derivatives_that_the_fused_one_refuses():
    data = problem(batch=1, length=6, offset=1, vocabulary=11)
    labels = data.labels_long, data.labels_short
    long, short = data.logits()
    direction = torch.randn_like(long)

    def loss(logits):
        return alignment_loss_from_logits(
            logits, short, *labels, geometry=data.geometry, objective=Objective(alpha=0.3)
        ).loss

    gradient = torch.func.grad(loss)(long)
    _, forward = torch.func.jvp(loss, (long,), (direction,))
    torch.testing.assert_close(forward, (gradient * direction).sum(), rtol=1e-10, atol=0)
    torch.autograd.gradgradcheck(loss, long[:, :, :].clone().requires_grad_(), atol=1e-6)


@pytest.mark.parametrize("value", [0, -1, NAN, math.inf])
@pytest.mark.parametrize("name", ["labels_long", "labels_short", "paired_positions"])
def test_a_normalizer_is_a_positive_number(objective, name, value):
    counts = {"labels_long": 4, "labels_short": 4, "paired_positions": 4, name: value}
    with pytest.raises(UsageError, match=f"normalizers.{name}"):
        objective(problem(), normalizers=Normalizers(**counts))


def test_a_normalizer_of_zero_is_right_for_nothing(objective):
    output = objective(problem(offset=12), normalizers=Normalizers(10, 10, 0))
    assert output.misalignment == 0


@pytest.mark.parametrize("chunk_size", [0, -3, 1.5, "64", True])
def test_a_chunk_has_pairs(chunk_size):
    with pytest.raises(UsageError, match=f"chunk_size .*{chunk_size}"):
        problem().fused(alpha=0.3, chunk_size=chunk_size)
