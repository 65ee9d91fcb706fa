"""Every rope method against numbers computed apart from this code, and against transformers."""

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
SLOWEST_LINEAR = (7.905694e-5, 5.928434e-5, 4.445699e-5, 3.333804e-5)
FASTEST_PLAIN = (1, 0.7498942, 0.5623413, 0.4216965)
YARN_SCALE = 1.138629436

# Method -> w_0..w_3, w_15 and w_16, w_28..w_31, their sum, scale on cos and sin.
# d = 64, theta = 10000, L0 = 4096, factor 4, an input of the extended length. CLEX is untrained.
VECTORS: dict[str, tuple[Any, Any, Any, float, float]] = {
    "plain": (
        FASTEST_PLAIN,
        (0.01333521, 0.01),
        (3.162278e-4, 2.371374e-4, 1.778279e-4, 1.333521e-4),
        3.997908,
        1,
    ),
    "pi": ((0.25, 0.1874736, 0.1405853, 0.1054241), (0.003333804, 0.0025), SLOWEST_LINEAR, 0.9994771, 1),
    "ntk": (
        (1, 0.7170983, 0.51423, 0.3687535),
        (0.006818371, 0.004889443),
        (9.040738e-5, 6.483098e-5, 4.649019e-5, 3.333804e-5),
        3.534713,
        1,
    ),
    "dynamic_ntk": (
        (1, 0.6903453, 0.4765766, 0.3290024),
        (0.003854741, 0.002661102),
        (3.117867e-5, 2.152405e-5, 1.485902e-5, 1.025786e-5),
        3.22938,
        1,
    ),
    "abf": (
        (1, 0.6636012, 0.4403666, 0.2922278),
        (0.00213112, 0.001414214),
        (1.031339e-5, 6.843975e-6, 4.54167e-6, 3.013858e-6),
        2.972657,
        1,
    ),
    "yarn": (FASTEST_PLAIN, (0.009488518, 0.006538462), SLOWEST_LINEAR, 3.960237, YARN_SCALE),
    "yarn not truncated": (FASTEST_PLAIN, (0.009574461, 0.006556972), SLOWEST_LINEAR, 3.962335, YARN_SCALE),
    "yarn_revised": (FASTEST_PLAIN, (0.00619135, 0.004193548), SLOWEST_LINEAR, 3.928789, YARN_SCALE),
    "ntk_by_parts": (FASTEST_PLAIN, (0.01116293, 0.007728641), SLOWEST_LINEAR, 3.976352, 1),
    "llama3": (FASTEST_PLAIN, (0.01333521, 0.01), SLOWEST_LINEAR, 3.98817, 1),
    "llama3 as released": (
        (1, 0.6636012, 0.4403666, 0.2922278),
        (0.001371894, 5.248462e-4),
        (1.289173e-6, 8.554969e-7, 5.677088e-7, 3.767323e-7),
        2.968633,
        1,
    ),
    "clex": (
        (1, 0.7042693, 0.4959953, 0.3493143),
        (0.005200937, 0.00366286),
        (5.45363e-5, 3.840824e-5, 2.704975e-5, 1.905031e-5),
        3.38141,
        1,
    ),
}
CHANGED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "plain": ("pi", {}, {"factor": 1}),
    "yarn not truncated": ("yarn", {"truncate": False}, {}),
    "llama3 as released": ("llama3", {}, {"factor": 8, "original_length": 8192, "theta": 500000.0}),
}
"""Method, its options and other settings, of the entries that are not a method as it is."""


def frequencies(
    name: str, options: dict[str, Any] | None = None, **settings: Any
) -> tuple[torch.Tensor, float]:
    arguments = {"theta": 10000.0, "head_dim": DIM, "original_length": LENGTH, "factor": 4} | settings
    found = rope_method(name, options)(Rope(**arguments))
    return found.frequencies.float(), found.scaling


@pytest.mark.parametrize("case", VECTORS)
def test_the_reference_numbers(case: str) -> None:
    name, options, settings = CHANGED.get(case, (case, {}, {}))
    first, middle, last, total, scale = VECTORS[case]
    found, scaling = frequencies(name, options, **settings)
    assert found.dtype == torch.float32
    for expected, actual in ((first, found[:4]), (middle, found[15:17]), (last, found[28:])):
        torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float32), rtol=2e-6, atol=0)
    assert found.double().sum().item() == pytest.approx(total, rel=1e-6)
    assert scaling == pytest.approx(scale, rel=1e-9)


def test_every_method_has_its_numbers() -> None:
    # LongRoPE has no formula, EABF has ABF's frequencies: both are compared below.
    assert VECTORS.keys() - CHANGED.keys() | {"longrope", "eabf"} == set(ROPE_METHODS)


HF_OPTIONS: dict[str, dict[str, Any]] = {
    "longrope": {"long_factor": [1 + 0.1 * k for k in range(32)], "short_factor": [1.0] * 31 + [1.5]},
    "yarn": {"beta_fast": 24.0, "truncate": False},
}


@pytest.mark.parametrize("name", ["pi", "dynamic_ntk", "yarn", "longrope", "llama3"])
@pytest.mark.parametrize("partial", [1.0, 0.5])
@pytest.mark.parametrize("tokens", [1000, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_transformers_computes_the_same(name: str, partial: float, tokens: int) -> None:
    dim = int(DIM * partial)
    options = dict(HF_OPTIONS.get(name, {}))
    options |= {key: value[: dim // 2] for key, value in options.items() if isinstance(value, list)}
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


@pytest.mark.parametrize("name", ROPE_METHODS)
def test_factor_one_is_plain_rope(name: str) -> None:
    method = rope_method(name)
    for length in (None, 100, LENGTH, 2 * LENGTH):
        found, config, scaling = method(Rope(10000.0, DIM, LENGTH, 1.0, length))
        torch.testing.assert_close(found, plain_frequencies(10000.0, DIM), rtol=1e-7, atol=0)
        assert scaling == 1
        assert config == {"rope_type": "default", "rope_theta": 10000.0}


def test_longrope_divides_each_frequency_and_switches_after_the_original_length() -> None:
    long = [1 + k / 8 for k in range(32)]
    plain = plain_frequencies(10000.0, DIM)
    for length, divisors in ((LENGTH, [1.0] * 32), (LENGTH + 1, long), (None, long)):
        found, scaling = frequencies("longrope", {"long_factor": long}, length=length)
        torch.testing.assert_close(found, (plain / torch.tensor(divisors)).float(), rtol=1e-6, atol=0)
        assert scaling == pytest.approx(1.0801234497, rel=1e-10)


def test_revised_yarn_is_not_yarn() -> None:
    yarn, revised = frequencies("yarn")[0], frequencies("yarn_revised")[0]
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
    torch.testing.assert_close(frequencies("eabf")[0], frequencies("abf")[0], rtol=0, atol=0)


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
        ("eabf", {"skip_layers": -1}, "skip_layers is -1"),
        ("llama3", {"low_freq_factor": 5.0}, "high_freq_factor = 4.0"),
        ("clex", {"step": 0.0}, "step is 0.0"),
        ("clex", {"activation": "relu"}, "unknown key 'activation'"),
        ("pi", {"factor": 2.0}, "unknown key 'factor'"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        rope_method(name, options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no long_factor"),
        ({"long_factor": [2.0] * 31}, "has 31 numbers"),
        (
            {"long_factor": [2.0] * 32, "short_factor": [0.5] * 32},
            "short_factor has 32 numbers, the least is 0.5",
        ),
    ],
)
def test_longrope_says_which_factors_it_needs(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        frequencies("longrope", options)


def test_tiny_heads_have_a_ramp_too() -> None:
    # The range of YaRN's ramp falls together to one point: the step is there, nothing is NaN.
    found, _ = frequencies("yarn", head_dim=4, original_length=8, factor=2.0)
    assert found.isfinite().all()
    assert math.isclose(found[1].item(), 0.01 / 2, rel_tol=1e-6)
