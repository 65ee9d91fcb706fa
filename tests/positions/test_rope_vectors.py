"""Every rope method against closed forms, numbers computed apart from this code, and transformers."""

import math
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import UsageError
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.attention_methods import query_scale
from lengthwise.positions.rope import Rope, plain_frequencies

LENGTH, DIM = 4096, 64


def powers(base: float) -> torch.Tensor:
    """Plain rope of a base, w_k = base^(-2k/d)."""
    return torch.tensor([base ** (-2 * k / DIM) for k in range(DIM // 2)], dtype=torch.float64)


# Of d = 64, theta = 10000, L0 = 4096, factor 4 and an input of the extended length. NTK multiplies the base by
# alpha^(d / (d - 2)): its alpha is the factor, that of dynamic NTK 4 * 4 - 3, that of untrained CLEX 2 * 4 - 1.
CLOSED: dict[str, torch.Tensor] = {
    "pi": powers(10_000) / 4,
    "ntk": powers(10_000 * 4 ** (64 / 62)),
    "dynamic_ntk": powers(10_000 * 13 ** (64 / 62)),
    "abf": powers(500_000),
    "eabf": powers(500_000),
    "clex": powers(10_000 * 7 ** (64 / 62)),
}
BY_PARTS = {15: 0.01116293, 16: 0.007728641}
"""Of `ntk_by_parts`, computed apart from this code: two frequencies of the ramp. Above it is plain, below linear."""
FROM_TRANSFORMERS: list[tuple[str, dict[str, Any]]] = [
    ("pi", {}),
    ("dynamic_ntk", {}),
    ("yarn", {}),
    ("yarn", {"beta_fast": 24.0, "truncate": False}),
    ("longrope", {"long_factor": [1 + 0.1 * k for k in range(32)], "short_factor": [1.0] * 31 + [1.5]}),
    ("llama3", {}),
]


def frequencies(
    name: str, options: dict[str, Any] | None = None, **settings: Any
) -> tuple[torch.Tensor, float]:
    arguments = {"theta": 10000.0, "head_dim": DIM, "original_length": LENGTH, "factor": 4} | settings
    found = rope_method(name, options)(Rope(**arguments))
    return found.frequencies.float(), found.scaling


@pytest.mark.parametrize("name", CLOSED)
def test_the_closed_form(name: str) -> None:
    found, scaling = frequencies(name)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), CLOSED[name], rtol=2e-6, atol=0)
    assert scaling == 1


def test_by_parts() -> None:
    found, scaling = frequencies("ntk_by_parts")
    assert {k: found[k].item() for k in BY_PARTS} == pytest.approx(BY_PARTS, rel=2e-6)
    torch.testing.assert_close(found[:4].double(), powers(10_000)[:4], rtol=2e-6, atol=0)
    torch.testing.assert_close(found[-4:].double(), powers(10_000)[-4:] / 4, rtol=2e-6, atol=0)
    assert (found.double().sum().item(), scaling) == (pytest.approx(3.976352, rel=1e-6), 1)


def test_every_method_has_an_oracle() -> None:
    # Of the revised YaRN it is YaRN, below.
    others = {"ntk_by_parts", "yarn_revised", *(name for name, _ in FROM_TRANSFORMERS)}
    assert {*CLOSED} | others == set(ROPE_METHODS)


@pytest.mark.parametrize(("name", "options"), FROM_TRANSFORMERS)
@pytest.mark.parametrize("partial", [1.0, 0.5])
@pytest.mark.parametrize("tokens", [1000, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_transformers_computes_the_same(
    name: str, options: dict[str, Any], partial: float, tokens: int
) -> None:
    dim = int(DIM * partial)
    options = {key: value[: dim // 2] if isinstance(value, list) else value for key, value in options.items()}
    method = rope_method(name, options)
    parameters = method(Rope(50000.0, dim, LENGTH, 4.0)).config
    assert parameters is not None
    config = LlamaConfig(
        hidden_size=4 * DIM,
        num_attention_heads=4,
        max_position_embeddings=LENGTH if name == "dynamic_ntk" else 4 * LENGTH,
        rope_parameters=parameters | {"partial_rotary_factor": partial},
    )
    theirs, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"), seq_len=tokens)
    ours, _, scaling = method(Rope(50000.0, dim, LENGTH, 4.0, tokens))
    torch.testing.assert_close(ours.float(), theirs, rtol=2e-6, atol=0)
    assert scaling == pytest.approx(scale, rel=1e-9)


@pytest.mark.parametrize("alpha", [1.5, 4, 8.25])
def test_ntk_divides_the_last_frequency_by_alpha_and_keeps_the_first(alpha: float) -> None:
    found, _ = frequencies("ntk", {"alpha": alpha})
    plain = plain_frequencies(10000.0, DIM)
    assert found[0].item() == 1
    assert found[-1].item() == pytest.approx(plain[-1].item() / alpha, rel=1e-6)


def test_longrope_divides_each_frequency_and_switches_after_the_original_length() -> None:
    long = [1 + k / 8 for k in range(32)]
    plain = plain_frequencies(10000.0, DIM)
    for length, divisors in ((LENGTH, [1.0] * 32), (LENGTH + 1, long), (None, long)):
        found, scaling = frequencies("longrope", {"long_factor": long}, length=length)
        torch.testing.assert_close(found, (plain / torch.tensor(divisors)).float(), rtol=1e-6, atol=0)
        assert scaling == pytest.approx(1.0801234497, rel=1e-10)


def test_revised_yarn_is_not_yarn() -> None:
    (yarn, scaling), (revised, own) = frequencies("yarn"), frequencies("yarn_revised")
    assert own == scaling
    assert ((yarn - revised) / yarn).max().item() == pytest.approx(0.36, abs=0.01)
    plain, linear = plain_frequencies(10000.0, DIM), plain_frequencies(10000.0, DIM) / 4
    # Both lie between the two; YaRN blends the frequencies, the revised form their inverses.
    share = (plain - yarn) / (plain - linear)
    torch.testing.assert_close(
        revised.double(), 1 / (share / linear + (1 - share) / plain), rtol=1e-5, atol=0
    )


def test_the_query_scale_of_eabf() -> None:
    positions = torch.tensor([[0, 1, 4095, 4096, 8191, 8192, 16383, 32767]])
    expected = [1, 1, 1, 1.0000293481, 1.0833333333, 1.0833480083, 1.1666666667, 1.25]
    torch.testing.assert_close(query_scale(positions, 4096), torch.tensor([expected]), rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("yarrn", {}, "did you mean 'yarn'"),
        ("yarn", {"beta_fats": 2.0}, "did you mean 'beta_fast'"),
        ("yarn", {"beta_fast": 0.5}, "beta_slow = 1.0, beta_fast = 0.5"),
        ("yarn", {"truncate": "sometimes"}, "truncate is 'sometimes'"),
        ("yarn", {"attention_factor": 0.0}, "attention_factor is 0.0"),
        ("ntk", {"alpha": 0.5}, "alpha is 0.5"),
        ("abf", {"theta": 1.0}, "theta is 1.0"),
        ("abf", {"theta": math.inf}, "theta is inf"),
        ("yarn", {"beta_fast": math.inf}, "beta_fast is inf"),
        ("eabf", {"skip_layers": -1}, "skip_layers is -1"),
        ("llama3", {"low_freq_factor": 5.0}, "high_freq_factor = 4.0"),
        ("clex", {"step": 0.0}, "step is 0.0"),
        # 3e30 steps of the solver; a layer of 1e30 rows.
        ("clex", {"step": 1e-30}, "step is 1e-30"),
        ("clex", {"param_factor": 1e30}, "param_factor is 1e"),
        ("clex", {"activation": "relu"}, "unknown key 'activation'"),
        ("pi", {"factor": 2.0}, "unknown key 'factor'"),
        ("longrope", {}, "no long_factor"),
        ("longrope", {"long_factor": [2.0] * 31}, "has 31 numbers"),
        (
            "longrope",
            {"long_factor": [2.0] * 32, "short_factor": [0.5] * 32},
            "has 32 numbers, the least is 0.5",
        ),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        frequencies(name, options)


def test_tiny_heads_have_a_ramp_too() -> None:
    # The range of YaRN's ramp falls together to one point: the step is there, nothing is NaN.
    found, _ = frequencies("yarn", head_dim=4, original_length=8, factor=2.0)
    assert found.isfinite().all()
    assert math.isclose(found[1].item(), 0.01 / 2, rel_tol=1e-6)
