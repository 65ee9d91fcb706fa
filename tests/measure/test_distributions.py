from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.alignment import entropy, jeffreys, jensen_shannon
from lengthwise.checkpoints import NonFiniteLogits
from lengthwise.measure.distributions import compare, distributions, own_rounding
from lengthwise.measure.perplexity import KNOTS, _weights, fitted_temperature, tempered_losses
from lengthwise.measure.repeated_windows import Layout
from lengthwise.subjects import LoadedModel, Read, Reading, Rows, Want
from lengthwise.subjects.rounding import LEAST, beginning
from lengthwise.testing import tiny_llama, tiny_tokenizer


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


def logits_like_a_model(rows: int, *, vocabulary: int = 500, scale: float = 1.0, seed: int = 0):
    """Logits with a few likely tokens and a long tail, and labels drawn from their softmax."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.arange(1, vocabulary + 1, dtype=torch.float64).log()
    sharpness = 0.8 + torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64)
    logits = -1.5 * sharpness * ranks + noise
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    return scale * logits, labels


def totals_of(logits: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    scores = tempered_losses(logits, labels, KNOTS)
    return np.concatenate([[len(labels)], scores.sum(dim=0).flatten().numpy()])[None]


def direct(logits: torch.Tensor, labels: torch.Tensor, b: float) -> float:
    return torch.nn.functional.cross_entropy(b * logits, labels).item()


@pytest.mark.parametrize("b", [0.5, 0.6, 0.75, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0])
def test_loss_between_the_knots_is_the_loss(b: float):
    logits, labels = logits_like_a_model(200)
    totals = totals_of(logits, labels)[0]
    loss = (_weights(np.log([b])) @ totals[1:])[0] / totals[0]
    assert loss == pytest.approx(direct(logits, labels, b), abs=1e-4)


@pytest.mark.parametrize("scale", [0.7, 0.9, 1.0, 1.2, 1.6])
def test_best_temperature_is_that_of_a_direct_minimisation(scale: float):
    logits, labels = logits_like_a_model(400, scale=scale)
    log_b = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_b], max_iter=50, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(log_b.exp() * logits, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    b, loss = fitted_temperature(totals_of(logits, labels))
    assert loss[0] == pytest.approx(closure().item(), abs=1e-4)
    assert b[0] == pytest.approx(log_b.exp().item(), abs=5e-3)


def test_totals_of_several_samples_are_fitted_one_by_one():
    samples = [totals_of(*logits_like_a_model(100, scale=scale, seed=1))[0] for scale in (0.8, 1.2)]
    together, _ = fitted_temperature(np.array(samples))
    assert together[0] == pytest.approx(fitted_temperature(np.array(samples[:1]))[0][0])
    assert together[0] / together[1] == pytest.approx(1.5, abs=0.01)


LAYOUT = Layout(768)
BY_LENGTH = {"rope_parameters": {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 1e4}}


class Wavers(LoadedModel):
    """It answers otherwise each time."""

    calls = 0

    def hidden_states(self, input_ids: Any, **how: Any) -> Any:
        self.calls += 1
        return super().hidden_states(input_ids, **how) * (1 + 0.2 * self.calls)


def found_of(cls: type[LoadedModel], **settings: Any) -> tuple[LoadedModel, Reading, dict[str, Any]]:
    """A side, what it reads, and how far it is from itself."""
    model = cls(tiny_llama(max_position_embeddings=64, **settings), tiny_tokenizer(), "tiny", "memory")
    ids = np.random.default_rng(0).integers(320, size=LAYOUT.length + 1)
    reading = Reading(tokens=ids[:-1], labels=ids[1:], want=Want.ROWS)
    found = own_rounding(model, reading, model.read([reading])[0], LAYOUT.edges)
    return model, reading, found


def mean_of(found: dict[str, Any]) -> float:
    return sum(found["sums"]) / sum(found["tokens"])


def test_what_more_text_changes_is_no_rounding() -> None:
    model, reading, found = found_of(LoadedModel, **BY_LENGTH)
    short = beginning(reading)
    losses = []
    for tokens in (reading.tokens, short.tokens):
        # A fresh model: this rope keeps the frequencies of the longest input so far.
        plain = tiny_llama(max_position_embeddings=64, **BY_LENGTH)
        with torch.no_grad():
            log_p = plain(torch.from_numpy(np.array(tokens))[None]).logits[0].double().log_softmax(-1)
        labels = torch.from_numpy(np.array(short.labels))[:, None]
        losses.append(-log_p[: len(labels)].gather(1, labels)[:, 0])
    expected = (losses[1] - losses[0]).abs().mean().item()
    assert expected > 0.01
    assert found["by_length"] == pytest.approx(expected, rel=1e-3)
    assert mean_of(found) < LEAST["float32"]
    assert model.rope_by_length == "dynamic"


def test_a_sound_side_depends_on_nothing() -> None:
    _, _, found = found_of(LoadedModel)
    assert "by_length" not in found
    assert mean_of(found) < LEAST["float32"]


def test_a_side_that_does_not_repeat_itself_says_nothing_about_lengths() -> None:
    _, _, found = found_of(Wavers)
    assert "by_length" not in found
    assert mean_of(found) > 0.01


def test_rounding_is_summed_by_bin_from_the_first_row_that_counts() -> None:
    """In the pair that is furthest apart, the largest single one beside it."""
    edges, labels = (2, 4, 8), [3, 1, 4, 1, 5, 0]
    logits = [random_logits(8, 6, seed=seed) for seed in range(2)]
    near = logits[0] + 1e-3 * logits[1]
    reads = [Read(rows=Rows(each.__getitem__, 8, 6)) for each in (*logits, near)]

    class Side:
        dtype = None

        def again(self, *_: Any, **__: Any) -> Any:
            return [(reads[0], reads[2]), (reads[0], reads[1]), (reads[2], reads[0])]

    reading = Reading(tokens=np.arange(8), labels=np.array(labels), want=Want.ROWS)
    found = own_rounding(Side(), reading, reads[0], edges)  # type: ignore[arg-type]
    apart = [
        abs(float(logits[0].log_softmax(-1)[row, label] - logits[1].log_softmax(-1)[row, label]))
        for row, label in zip(range(2, 8), labels, strict=True)
    ]
    assert found is not None
    assert found["tokens"] == [2, 4]
    assert found["sums"] == pytest.approx([sum(apart[:2]), sum(apart[2:])], rel=1e-12)
    assert found["largest"] == pytest.approx(max(apart), rel=1e-12)
