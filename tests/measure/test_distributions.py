import pytest
import torch

from lengthwise.alignment import entropy, jeffreys, jensen_shannon
from lengthwise.checkpoints import NonFiniteLogits
from lengthwise.measure.distributions import compare, distributions
from lengthwise.measure.perplexity import tempered_losses


def random_logits(rows: int, vocabulary: int, *, seed: int = 0, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, vocabulary, generator=generator, dtype=dtype)


@pytest.mark.parametrize("vocabulary", [2, 7, 1000])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3, 5.0])
def test_comparison_equals_the_plain_formulas(vocabulary: int, noise: float):
    p = random_logits(5, vocabulary)
    q = p + noise * random_logits(5, vocabulary, seed=1)
    a, b = distributions(p), distributions(q)
    found, js, agreement = compare(a, b)
    torch.testing.assert_close(a[2], entropy(p), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found, jeffreys(p, q), rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(js, jensen_shannon(p, q), rtol=1e-9, atol=1e-14)
    assert torch.equal(agreement == 1, p.argmax(-1) == q.argmax(-1))


def test_fp32_is_no_worse_than_the_plain_formulas():
    p = random_logits(64, 2000)
    q = p + 0.02 * random_logits(64, 2000, seed=1)
    truth = {"jeffreys": jeffreys(p, q), "js": jensen_shannon(p, q)}
    naive = {"jeffreys": jeffreys(p.float(), q.float()), "js": jensen_shannon(p.float(), q.float())}
    ours = compare(distributions(p.float()), distributions(q.float()))
    for (name, true), found in zip(truth.items(), ours[:2], strict=True):
        error = (found.double() - true).abs().max()
        assert error <= (naive[name].double() - true).abs().max() + 1e-7 * true.max(), name


def test_tempered_losses_and_their_derivatives():
    logits, labels = random_logits(40, 300), torch.arange(40) * 7 % 300
    knots = (0.5, 1.0, 2.0)
    scores = tempered_losses(logits, labels, knots)
    for index, knot in enumerate(knots):
        b = torch.tensor(knot, dtype=torch.float64, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(b * logits, labels, reduction="sum")
        expected = [loss]
        for _ in range(3):
            expected.append(torch.autograd.grad(expected[-1], b, create_graph=True)[0])
        for order, value in enumerate(expected):
            assert scores[:, index, order].sum().item() == pytest.approx(value.item(), rel=1e-8), order
    plain = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(scores[:, 1, 0], plain)


def test_tempered_losses_in_fp32_with_a_vocabulary_larger_than_a_block():
    logits, labels = random_logits(3, 200_000), torch.tensor([5, 0, 199_999])
    exact = tempered_losses(logits, labels, (0.5, 2.0))
    rounded = tempered_losses(logits.float(), labels, (0.5, 2.0))
    torch.testing.assert_close(rounded, exact, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_logits_are_found_and_their_row_is_named(bad: float):
    logits = random_logits(6, 20)
    logits[4, 3] = bad
    for score in (
        lambda: distributions(logits),
        lambda: tempered_losses(logits, torch.zeros(6, dtype=torch.long), (0.5, 1.0)),
    ):
        with pytest.raises(NonFiniteLogits) as caught:
            score()
        assert caught.value.position == 4
