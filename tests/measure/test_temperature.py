import numpy as np
import pytest
import torch

from lengthwise.measure.perplexity import KNOTS, _weights, fitted_temperature, tempered_losses


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
