import math
from typing import Any

import pytest
import torch

from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.extending import extend
from lengthwise.positions.clex import ClexFrequencies, clex_time
from lengthwise.positions.rope import ntk_base, plain_frequencies
from tests.architectures import tiny_model


def trained(
    *, theta: float = 10000.0, head_dim: int = 64, seed: int = 0, size: float = 0.05, **options: object
):
    """CLEX with weights as they may be after training."""
    torch.manual_seed(seed)
    module = ClexFrequencies(theta, head_dim, **options)  # type: ignore[arg-type]
    torch.nn.init.normal_(module.down, std=size)
    return module


def embedding(
    name: str = "llama-gqa",
    *,
    original_length: int = 16,
    factor: float = 4.0,
    head_dim: int = 8,
    size: float = 0.05,
) -> Any:
    """That of an extended model, with weights as they may be after training."""
    model = tiny_model(name, head_dim=head_dim, max_position_embeddings=original_length)
    extend(model, "clex", factor=factor)
    [(_, rotary)] = clex_modules(model)
    torch.manual_seed(0)
    torch.nn.init.normal_(rotary.frequencies.down, std=size)
    return rotary


def by_the_paper(module: ClexFrequencies, t: float, steps: int) -> torch.Tensor:
    """The whole equation for ln f, in float64 and with Euler's midpoint rule: no term is integrated by hand."""
    index = torch.arange(0, module.head_dim, 2, dtype=torch.float64)
    up, down = module.up.detach().double(), module.down.detach().double()

    def log_ntk(time: float) -> torch.Tensor:
        base = module.theta * (2 * time - 1) ** (module.head_dim / (module.head_dim - 2))
        return -(index / module.head_dim) * math.log(base)

    def slope(time: float, z: torch.Tensor) -> torch.Tensor:
        return down @ torch.tanh(up @ (z + log_ntk(time))) - 2 * index / (module.head_dim - 2) / (
            2 * time - 1
        )

    z, width = log_ntk(1.0), (t - 1) / steps
    for step in range(steps):
        time = 1 + step * width
        z = z + width * slope(time + width / 2, z + width / 2 * slope(time, z))
    return z.exp()


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("t", [1.0, 2.0, 3.5, 16.0])
def test_untrained_it_is_ntk_of_the_models_own_base(theta: float, t: float) -> None:
    found = ClexFrequencies(theta, 64)(t)
    expected = plain_frequencies(ntk_base(theta, 64, 2 * t - 1), 64)
    torch.testing.assert_close(found, expected.float(), rtol=5e-6, atol=0)


@pytest.mark.parametrize("t", [1.0, 2.0, 8.0])
def test_trained_it_solves_the_papers_equation(t: float) -> None:
    module = trained(size=0.02)
    expected = by_the_paper(module, t, 4000).clamp(max=math.pi)
    with torch.no_grad():
        found = module(t)
    torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=0)
    if t > 1:
        untrained = ClexFrequencies(10000.0, 64)(t)
        assert ((found - untrained) / untrained).abs().max() > 0.05, "the learned part is not tried"


def test_the_coarse_step_is_as_good_as_a_fine_one() -> None:
    coarse, fine = trained(step=0.25), trained(step=0.01)
    torch.testing.assert_close(coarse(16.0), fine(16.0), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 0.02), (torch.bfloat16, 0.02), (torch.float32, 0.5)]
)
def test_gradients_are_finite_far_out(dtype: torch.dtype, size: float) -> None:
    rotary = embedding(original_length=4096, factor=16.0, head_dim=64, size=size)
    x = torch.zeros(1, 1, 64, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cos, sin = rotary(x, torch.arange(16 * 4096)[None])
    assert cos.dtype == dtype
    (cos.float().square().sum() + (sin.float() * torch.randn(sin.shape)).sum()).backward()
    for parameter in rotary.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


def test_within_the_original_length_it_is_plain_and_every_parameter_has_a_gradient() -> None:
    module = trained()
    found = module(1.0)
    torch.testing.assert_close(found, plain_frequencies(10000.0, 64).float(), rtol=2e-6, atol=0)
    found.sum().backward()
    for parameter in module.parameters():
        assert not parameter.grad.any()


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 1), (4096, 1), (4097, 2), (8192, 2), (12289, 4), (16384, 4), (99999, 4)]
)
def test_time_of_a_length(length: int, expected: int) -> None:
    assert clex_time(length, 4096, 4) == expected


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_embedding_rotates_by_position_times_frequency(interleaved: bool) -> None:
    rotary = embedding("cohere-scale" if interleaved else "llama-gqa")
    positions = torch.tensor([[0, 1, 30], [5, 6, 7]])
    cos, sin = rotary(torch.zeros(2, 3, 8), positions)
    assert rotary.time == 2
    angles = positions[..., None] * rotary.frequencies(2.0)
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, 4), slice(4, 8))
    for half in pairs:
        torch.testing.assert_close(cos[..., half], angles.cos())
        torch.testing.assert_close(sin[..., half], angles.sin())
    assert cos.requires_grad


def test_width_and_number_of_weights() -> None:
    module = ClexFrequencies(10000.0, 128)
    assert sum(p.numel() for p in module.parameters()) == 16384
    assert ClexFrequencies(10000.0, 128, param_factor=2.0).up.shape == (256, 64)


def test_after_a_training_step_the_next_forward_pass_sees_it() -> None:
    # The original keeps the frequencies of its first evaluation for ever.
    module = trained()
    with torch.no_grad():
        before = module(3.0)
        module.down.data.mul_(2)
        after = module(3.0)
    assert (after / before - 1).abs().max() > 1e-3


def test_beyond_the_last_time_it_keeps_the_last_frequencies() -> None:
    # The original reads past the end of its table.
    rotary = embedding()
    cos, _ = rotary(torch.zeros(1, 1, 8), torch.tensor([[0, 1000]]))
    assert rotary.time == 4
    torch.testing.assert_close(cos[0, 1, :4], (1000 * rotary.frequencies(4.0)).cos())
