"""The compiled tile gives what the torch tile gives: statistics, gradients, and the loss they make."""

from __future__ import annotations

import pytest
import torch

from lengthwise.alignment import PairGeometry, alignment_loss
from lengthwise.alignment.compiled import CompiledTiles
from lengthwise.alignment.tile import Activation, Tiles, gradient_rule, wide_dtype

CASES = [
    ("sce", "none", Activation(), torch.float64),
    ("sce", "both-targets", Activation(scale=1.5), torch.bfloat16),
    ("jeffreys", "long", Activation(scale=0.5, soft_cap=20.0), torch.float64),
    ("js", "none", Activation(), torch.bfloat16),
    ("entropy", "short", Activation(soft_cap=10.0), torch.bfloat16),
    ("kl", "long", Activation(), torch.float64),
]

# torch's own compiler uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")

# Of the largest gradient; bf16 results are rounded once more, on the way back into the logits.
TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}


@pytest.mark.parametrize(
    ("divergence", "detach", "activation", "dtype"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_pairs_as_the_torch_tile(
    divergence: str, detach: str, activation: Activation, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    count, vocabulary = 5, 203
    logits = (3 * torch.randn(count, 2, vocabulary, generator=generator, dtype=torch.float64)).to(dtype)
    labels = torch.randint(vocabulary, (count, 2, 1), generator=generator)
    weights = torch.rand(count, 2, 1, generator=generator).to(wide_dtype(dtype))
    weights[1, 0] = 0.0
    settings = {
        "dtype": dtype,
        "device": torch.device("cpu"),
        "activation": activation,
        "rule": gradient_rule(divergence, detach),
        "weight": 0.3,
        "mixture": divergence == "js",
        "gradient": True,
    }
    plain, compiled = logits.clone(), logits.clone()
    expected = Tiles(2, vocabulary, **settings).pairs(plain, labels, weights)
    found = CompiledTiles(vocabulary, **settings).pairs(compiled, labels, weights)
    for name in ("top", "total", "own", "cross", "mixture"):
        one, other = getattr(expected, name), getattr(found, name)
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(other, one, rtol=1e-5 if dtype == torch.bfloat16 else 1e-12, atol=1e-6)
    error = (compiled.double() - plain.double()).abs().max() / plain.double().abs().max()
    assert error < TOLERANCE[dtype]


def test_the_whole_objective_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several calls with a remainder, so that shapes change.
    monkeypatch.setattr("lengthwise.alignment.compiled._LOGITS_IN_A_CALL", 4 * 101)
    generator = torch.Generator().manual_seed(1)
    batch, length, width, vocabulary = 2, 13, 16, 101
    leaves = [
        torch.randn(*shape, generator=generator, dtype=torch.float32)
        for shape in ((batch, length, width), (batch, length, width), (vocabulary, width))
    ]
    labels = torch.randint(vocabulary, (2, batch, length), generator=generator)
    labels[0, 0, :3] = -100

    def run(dtype: torch.dtype, *, compiled: bool) -> tuple[torch.Tensor, ...]:
        mine = [leaf.to(dtype).requires_grad_() for leaf in leaves]
        output = alignment_loss(
            *mine, *labels, geometry=PairGeometry(length, 4), alpha=0.3, compiled=compiled, chunk_size=7
        )
        output.loss.backward()
        return (output.loss.detach(), output.jeffreys, *(leaf.grad for leaf in mine))

    truth = run(torch.float64, compiled=False)
    for name, one, other in zip(
        ("loss", "jeffreys", "long", "short", "head"), truth, run(torch.float32, compiled=True), strict=True
    ):
        assert (other.double() - one).norm() / one.norm() < 5e-6, name
