from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lengthwise.alignment import (
    AlignmentLoss,
    Normalizers,
    Objective,
    PairGeometry,
    alignment_loss_from_logits,
)
from lengthwise.errors import UsageError

NAN = float("nan")


@pytest.fixture(params=["fused", "plain"])
def objective(request):
    """Both implementations refuse the same things."""

    def call(data, **options):
        terms = {"alpha": 0.3, **options}
        # An alpha of None leaves it out.
        return getattr(data, request.param)(**{k: v for k, v in terms.items() if v is not None})

    return call


@pytest.mark.parametrize("label", [-1, 53, 1000])
@pytest.mark.parametrize("view", ["labels_long", "labels_short"])
def test_a_label_outside_the_vocabulary_is_named(problem, objective, view, label):
    data = problem()
    labels = getattr(data, view).clone()
    labels[1, 4] = label
    with pytest.raises(UsageError, match=f"{view} .*{label}.* 53"):
        objective(replace(data, **{view: labels}))


def test_another_ignore_index(problem, objective):
    data = problem()
    expected = objective(data)
    negative = {
        name: getattr(data, name).where(getattr(data, name) >= 0, -1)
        for name in ("labels_long", "labels_short")
    }
    found = objective(replace(data, **negative), ignore_index=-1)
    assert found.loss == expected.loss
    assert found.label_positions_long == expected.label_positions_long < 24


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"geometry": PairGeometry(11, 2)}, "geometry.length.* 11 .* 12 "),
        ({"labels_long": torch.zeros(2, 11, dtype=torch.long)}, r"labels_long .*\[2, 11\]"),
        ({"labels_short": torch.zeros(2, 12, dtype=torch.int32)}, "labels_short .*torch.int32"),
        ({"labels_short": torch.zeros(2, 12, dtype=torch.long, device="meta")}, "labels_short .*meta"),
    ],
)
def test_labels_and_geometry_have_to_fit(problem, objective, change, named):
    with pytest.raises(UsageError, match=named):
        objective(replace(problem(), **change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_short": torch.zeros(2, 11, 8).double()}, r"hidden_short \[2, 11, 8\]"),
        (
            {"hidden_long": torch.zeros(24, 8).double(), "hidden_short": torch.zeros(24, 8).double()},
            r"\[24, 8\]",
        ),
        ({"hidden_short": torch.zeros(2, 12, 8)}, "hidden_short torch.float32"),
        ({"head_weight": torch.zeros(53, 9).double()}, r"head_weight .*\[53, 9\].* 8"),
        ({"head_weight": torch.zeros(53 * 8).double()}, r"head_weight .*\[424\]"),
        ({"head_weight": torch.zeros(0).double()}, r"head_weight .*\[0\]"),
        ({"head_weight": torch.zeros(53, 8, dtype=torch.long)}, "head_weight .*torch.int64"),
        (
            {"head_weight": torch.zeros(53, 8, device="meta").double()},
            "head_weight on meta",
        ),
        ({"head_bias": torch.zeros(52).double()}, r"head_bias .*\[52\].* 53"),
        ({"soft_cap": 0.0}, "soft_cap .*0.0"),
        ({"soft_cap": NAN}, "soft_cap .*nan"),
        ({"logit_scale": 0}, "logit_scale .*0"),
        ({"logit_scale": math.inf}, "logit_scale .*inf"),
    ],
)
def test_hidden_states_and_head_have_to_fit(problem, change, named):
    with pytest.raises(UsageError, match=named):
        replace(problem(), **change).fused(alpha=0.3)


def test_tensors_without_numbers_are_refused(problem):
    data = problem().to(torch.float32)
    tensors = {name: leaf.to("meta") for name, leaf in data.leaves(()).items()}
    labels = {name: getattr(data, name).to("meta") for name in ("labels_long", "labels_short")}
    with pytest.raises(UsageError, match=r"hidden_long .*meta"):
        replace(data, **labels).fused(tensors, alpha=0.3)


def test_counts_of_one_process_are_those_of_all():
    assert Normalizers(3, 4.0, 5).over_ranks("cpu") == Normalizers(3, 4, 5)


def test_a_zero_3_parameter_is_refused_while_it_is_gathered(problem):
    leaves = problem().leaves()
    leaves["head_weight"].ds_id = 7
    with pytest.raises(UsageError, match="head_weight"):
        problem().fused(leaves, alpha=0.3)


@pytest.fixture
def mesh(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_a_sharded_head_is_gathered_and_its_gradient_handed_back(problem, gradients, relative_error, mesh):
    """With two processes in tests/training/test_sharded.py."""
    tensors = pytest.importorskip("torch.distributed.tensor")
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


def test_sharded_hidden_states_are_refused(problem, mesh):
    tensors = pytest.importorskip("torch.distributed.tensor")
    data = problem()
    shard = tensors.distribute_tensor(data.hidden_long, mesh, [tensors.Shard(1)])
    with pytest.raises(UsageError, match=r"hidden_long .*DTensor"):
        data.fused({**data.leaves(()), "hidden_long": shard}, alpha=0.3)


TRANSFORMS = {
    "grad": lambda loss, weight: torch.func.grad(loss)(weight),
    "vjp": lambda loss, weight: torch.func.vjp(loss, weight),
    "jvp": lambda loss, weight: torch.func.jvp(loss, (weight,), (weight,)),
    "hessian": lambda loss, weight: torch.func.hessian(loss)(weight),
    "vmap": lambda loss, weight: torch.func.vmap(loss)(torch.stack([weight, weight])),
    "functional_call": lambda loss, weight: torch.func.grad(lambda w: loss(2 * w))(weight),
}


# What torch itself loads for these derivatives.
jit_warns = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@jit_warns
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_functional_transforms_are_refused(problem, transform):
    data = problem()
    tensors = data.leaves(())

    def loss(weight):
        return data.fused({**tensors, "head_weight": weight}, alpha=0.3).loss

    with pytest.raises(UsageError, match=r"torch.func"):
        transform(loss, data.head_weight)


@jit_warns
@pytest.mark.parametrize("name", ["hidden_long", "hidden_short", "head_weight", "head_bias"])
def test_forward_mode_is_refused(problem, name):
    data = problem(bias=True)
    with torch.autograd.forward_ad.dual_level():
        tensors = data.leaves(())
        tensors[name] = torch.autograd.forward_ad.make_dual(tensors[name], torch.ones_like(tensors[name]))
        with pytest.raises(UsageError, match="forward-mode"):
            data.fused(tensors, alpha=0.3)
        # A level without a dual tensor changes nothing.
        assert data.fused(alpha=0.3).loss > 0


@jit_warns
def test_the_plain_form_has_the_derivatives_that_the_fused_one_refuses(problem):
    data = problem()
    labels = data.labels_long, data.labels_short
    long, short = data.logits()
    direction = torch.randn_like(long)

    def loss(logits):
        return alignment_loss_from_logits(logits, short, *labels, geometry=data.geometry, alpha=0.3).loss

    gradient = torch.func.grad(loss)(long)
    _, forward = torch.func.jvp(loss, (long,), (direction,))
    torch.testing.assert_close(forward, (gradient * direction).sum(), rtol=1e-10, atol=0)
    torch.autograd.gradgradcheck(loss, long[:, :, :].clone().requires_grad_(), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda logits: logits[:, :-1], r"logits_short \[2, 11, 53\]"),
        (lambda logits: logits.float(), "logits_short torch.float32"),
        (lambda logits: logits.to("meta"), "logits_short on meta"),
    ],
)
def test_logits_have_to_fit(problem, change, named):
    data = problem()
    long, short = data.logits()
    with pytest.raises(UsageError, match=named):
        alignment_loss_from_logits(
            long, change(short), data.labels_long, data.labels_short, geometry=data.geometry, alpha=0.3
        )


@pytest.mark.parametrize("value", [0, -1, NAN, math.inf])
@pytest.mark.parametrize("name", ["labels_long", "labels_short", "paired_positions"])
def test_a_normalizer_is_a_positive_number(problem, objective, name, value):
    counts = {"labels_long": 4, "labels_short": 4, "paired_positions": 4, name: value}
    with pytest.raises(UsageError, match=f"normalizers.{name}"):
        objective(problem(), normalizers=Normalizers(**counts))


def test_a_normalizer_of_zero_is_right_for_nothing(problem, objective):
    output = objective(problem(offset=12), normalizers=Normalizers(10, 10, 0))
    assert output.misalignment == 0


def test_chunk_size_and_accumulation_are_checked(problem):
    for value in (0, -3, 2.5, True):
        with pytest.raises(UsageError, match=f"chunk_size .*{value}"):
            problem().fused(alpha=0.3, chunk_size=value)
    with pytest.raises(UsageError, match=r"accumulate_dtype .*torch.float16"):
        problem().fused(alpha=0.3, accumulate_dtype=torch.float16)


def test_the_module_is_the_function_with_its_settings_bound(problem, assert_same_values):
    data = problem(bias=True, soft_cap=5.0, logit_scale=0.7)
    settings = {"alpha": 0.3, "divergence": "js", "detach": "short", "chunk_size": 3}
    module = AlignmentLoss(**settings, soft_cap=5.0, logit_scale=0.7)
    output = module(
        data.hidden_long,
        data.hidden_short,
        data.head_weight,
        data.labels_long,
        data.labels_short,
        geometry=data.geometry,
        head_bias=data.head_bias,
        normalizers=Normalizers(40, 50, 7),
    )
    assert_same_values(output, data.fused(**settings, normalizers=Normalizers(40, 50, 7)), rtol=0)
    assert repr(module) == "AlignmentLoss(alpha=0.3, divergence='js', detach='short')"
    assert repr(AlignmentLoss(0.3, ce_on="long")).endswith("detach='none', ce_on='long')")
    assert not list(module.parameters())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"alpha": -1}, "alpha .*-1"),
        ({"alpha": 0.1, "soft_cap": -1.0}, "soft_cap .*-1.0"),
        ({"alpha": 0.1, "chunk_size": 0}, "chunk_size .*0"),
        ({"objective": Objective(alpha=0.1), "divergence": "js"}, "js"),
        ({}, "alpha"),
    ],
)
def test_the_module_refuses_its_settings_when_made(settings, named):
    with pytest.raises(UsageError, match=named):
        AlignmentLoss(**settings)


def test_an_objective_or_its_terms(problem, assert_same_values, objective):
    data, chosen = problem(), Objective(alpha=0.3, divergence="js", min_context=6)
    assert_same_values(
        objective(data, alpha=None, objective=chosen), objective(data, divergence="js"), rtol=0
    )
    assert AlignmentLoss(objective=chosen).objective == chosen
    for wrong in ({"objective": chosen, "alpha": 0.3}, {"objective": chosen, "divergence": "js"}, {}):
        with pytest.raises(UsageError):
            objective(data, **{"alpha": None, **wrong})


def test_a_geometry_with_less_context_than_the_objective_allows(problem, objective):
    with pytest.raises(UsageError, match=r"min_context.* 7 .* 6"):
        objective(problem(), alpha=None, objective=Objective(alpha=0.3, min_context=7))
