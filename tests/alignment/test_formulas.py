import math

import pytest
import torch

from lengthwise.alignment import (
    Normalizers,
    Objective,
    PairGeometry,
    alignment_loss_from_logits,
    cross_entropy,
    divergence_from_logits,
    entropy,
    jeffreys,
    jensen_shannon,
    kl_divergence,
    symmetric_cross_entropy,
)
from lengthwise.errors import UsageError

P = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()
Q = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).log()


def pair(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    p = 3 * torch.randn(*shape, generator=generator, dtype=dtype)
    return p, p + torch.randn(*shape, generator=generator, dtype=dtype)


UNIFORM = torch.zeros(32000, dtype=torch.float64)

# p against q with the mixture m = (.65, .25, .1) between them.
JENSEN_SHANNON = (
    0.7 * math.log(0.7 / 0.65)
    + 0.2 * math.log(0.2 / 0.25)
    + 0.6 * math.log(0.6 / 0.65)
    + 0.3 * math.log(0.3 / 0.25)
) / 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (symmetric_cross_entropy(P, Q), 1.7557258562),
        (kl_divergence(P, Q), 0.0268124543),
        (kl_divergence(Q, P), 0.0291491245),
        (entropy(P), 0.8018185525),
        (entropy(Q), 0.8979457249),
        (jeffreys(P, Q), 0.0268124543 + 0.0291491245),
        (jensen_shannon(P, Q), JENSEN_SHANNON),
        (symmetric_cross_entropy(UNIFORM, UNIFORM), 20.7469823636),
    ],
)
def test_hand_computed_values(value, expected):
    assert value.item() == pytest.approx(expected, abs=2e-10)


@pytest.mark.parametrize("formula", [symmetric_cross_entropy, jeffreys, jensen_shannon])
def test_symmetric_and_invariant_under_shifts(formula):
    p, q = pair(5, 4, 37)
    value = formula(p, q)
    assert value.shape == (5, 4)
    torch.testing.assert_close(formula(q, p), value, rtol=1e-13, atol=0)
    torch.testing.assert_close(formula(p + 40, q - 7), value, rtol=1e-11, atol=0)


def test_jensen_shannon_is_bounded_and_an_eighth_of_jeffreys_nearby():
    far = torch.tensor([60.0, -60.0], dtype=torch.float64)
    assert jensen_shannon(far, -far).item() == pytest.approx(math.log(2))
    p, _ = pair(200, 37)
    q = p + 1e-3 * pair(200, 37, seed=1)[0]
    assert (jeffreys(p, q).sum() / jensen_shannon(p, q).sum()).item() == pytest.approx(8, rel=1e-4)


def test_sixteen_bit_logits_are_evaluated_in_fp32():
    p, q = (logits.bfloat16() for logits in pair(4, 500))
    value = symmetric_cross_entropy(p, q)
    assert value.dtype == torch.float32
    torch.testing.assert_close(
        value.double(), symmetric_cross_entropy(p.double(), q.double()), rtol=2e-6, atol=0
    )


@pytest.mark.parametrize("ce_on", ["both", "long", "short"])
def test_objective_is_the_sum_of_its_formulas(ce_on):
    batch, length, vocabulary = 2, 8, 11
    logits_long, logits_short = pair(batch, length, vocabulary)
    labels = torch.randint(0, vocabulary, (2, batch, length), generator=torch.Generator().manual_seed(3))
    labels[0, 0, :3] = -100
    geometry = PairGeometry(length, 2)
    out = alignment_loss_from_logits(
        logits_long,
        logits_short,
        labels[0],
        labels[1],
        geometry=geometry,
        objective=Objective(alpha=0.3, ce_on=ce_on),
    )
    p, q = logits_long[:, 6:8], logits_short[:, 4:6]
    ce = torch.nn.functional.cross_entropy
    ce_long = ce(logits_long.flatten(0, 1), labels[0].flatten())
    ce_short = ce(logits_short.flatten(0, 1), labels[1].flatten())
    trained = {"both": (ce_long + ce_short) / 2, "long": ce_long, "short": ce_short}[ce_on]
    sce = symmetric_cross_entropy(p, q).mean()
    for name, expected in {
        "cross_entropy_long": ce_long,
        "cross_entropy_short": ce_short,
        "cross_entropy": trained,
        "misalignment": sce,
        "divergence": sce,
        "entropy": (entropy(p) + entropy(q)).mean(),
        "jeffreys": jeffreys(p, q).mean(),
        "loss": trained + 0.3 * sce,
    }.items():
        torch.testing.assert_close(getattr(out, name), expected, rtol=1e-13, atol=0, msg=name)
    assert Normalizers.count(*labels, geometry=geometry) == Normalizers(13, 16, 4)


@pytest.mark.parametrize("divergence", ["sce", "jeffreys"])
def test_both_targets_detached_leave_the_difference_of_the_probabilities(divergence):
    p, q = (logits.requires_grad_() for logits in pair(5, 37))
    value = divergence_from_logits(p, q, Objective(divergence=divergence, detach="both-targets"))
    torch.testing.assert_close(
        value, divergence_from_logits(p, q, Objective(divergence=divergence)), rtol=1e-13, atol=0
    )
    value.sum().backward()
    difference = (p.softmax(-1) - q.softmax(-1)).detach()
    torch.testing.assert_close(p.grad, difference, rtol=0, atol=1e-15)
    torch.testing.assert_close(q.grad, -difference, rtol=0, atol=1e-15)


@pytest.mark.parametrize("divergence", ["sce", "jeffreys", "js", "kl", "reverse_kl", "entropy"])
@pytest.mark.parametrize("detach", ["long", "short"])
def test_the_detached_side_gets_no_gradient(divergence, detach):
    p, q = (logits.requires_grad_() for logits in pair(5, 37))
    value = divergence_from_logits(p, q, Objective(divergence=divergence, detach=detach))
    teacher, student = (p, q) if detach == "long" else (q, p)
    if divergence == "kl":
        torch.testing.assert_close(value, kl_divergence(teacher, student))
    if divergence == "reverse_kl":
        torch.testing.assert_close(value, kl_divergence(student, teacher))
    value.sum().backward()
    assert teacher.grad is None
    assert student.grad.norm() > 1e-3


@pytest.mark.parametrize(
    "formula", [cross_entropy, kl_divergence, symmetric_cross_entropy, jeffreys, jensen_shannon]
)
@pytest.mark.parametrize("shape", [(2, 4, 1), (1, 4, 7), (4, 7), (2, 4, 8)])
def test_logits_of_two_shapes_are_refused(formula, shape):
    """Broadcast, a vocabulary of one entry gave a negative divergence."""
    with pytest.raises(UsageError, match=r"\[2, 4, 7\]"):
        formula(torch.randn(2, 4, 7), torch.randn(shape))


def test_logits_are_floating():
    with pytest.raises(UsageError, match=r"torch\.int64"):
        entropy(torch.zeros(2, 7, dtype=torch.long))
