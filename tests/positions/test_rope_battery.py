"""What users assume of an extended model, for every rope method, and of each mechanism in three architectures.

A new method gets all of it: one entry in ROPE_METHODS, and one in OPTIONS if it needs options.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.extending import find_rotary
from lengthwise.checkpoints.extension import Extension
from lengthwise.checkpoints.hidden import cache_among, cache_argument
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.positions import ROPE_METHODS
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from lengthwise.training import PairCollator, View
from tests.positions import battery
from tests.positions.battery import (
    assert_adapter_goes_on_and_off,
    assert_same_with_checkpointing,
    share_lost,
)

ORIGINAL, FACTOR = 32, 2.0
LONGER = 48
"""Tokens: more than the model was trained for, within what it is extended to."""

# The heads have 8 dimensions, the models 2 layers.
OPTIONS: dict[str, dict[str, Any]] = {
    "longrope": {"long_factor": [1.0, 1.5, 2.0, 2.5]},
    "eabf": {"skip_layers": 1},
}
# Keys in a cache keep the rotation of the step that made them, so a method whose frequencies change
# from one token to the next cannot agree with itself there.
CHANGES_WITH_EVERY_TOKEN = {"dynamic_ntk"}

# Other frequencies, learned ones in a module of their own, and queries that are scaled.
MECHANISMS = ("yarn", "clex", "eabf")
every_method = pytest.mark.parametrize(
    ("method", "architecture"), battery.in_architectures(ROPE_METHODS, MECHANISMS)
)


# With a sliding window that is shorter than the rows, and longer than the original length.
plain = partial(battery.plain, window=40)


def extended(method: str, architecture: str) -> tuple[Any, Extension]:
    model = plain(architecture)
    extension = extend(model, method, factor=FACTOR, original_length=ORIGINAL, **OPTIONS.get(method, {}))
    return model, extension


def learned(method: str, architecture: str) -> Any:
    """An extended model whose extension was trained, where it can be."""
    model, _ = extended(method, architecture)
    generator = torch.Generator().manual_seed(1)
    for _, module in clex_modules(model):
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    return model


def ids(length: int) -> Tensor:
    return battery.tokens(length, rows=1)


@torch.no_grad()
def logits(model: Any, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, use_cache=False).logits


@every_method
def test_factor_one_is_identity(method: str, architecture: str) -> None:
    model = plain(architecture)
    extension = extend(model, method, factor=1.0, original_length=ORIGINAL)
    tokens = ids(LONGER)
    torch.testing.assert_close(logits(model, tokens), logits(plain(architecture), tokens))
    assert model.config.rope_parameters["rope_type"] == "default"
    assert extension.extended_length == ORIGINAL


@every_method
def test_longer_than_trained_it_has_the_frequencies_of_the_formula(method: str, architecture: str) -> None:
    # The scaling of EABF's queries, tested by itself, begins after the original length.
    tokens = ids(ORIGINAL if method == "eabf" else LONGER)
    model, extension = extended(method, architecture)
    by_hand = plain(architecture)
    [(_, _, rotary)] = find_rotary(by_hand)
    frequencies, rotary.attention_scaling = extension.inverse_frequencies(tokens.shape[1])
    rotary.inv_freq.copy_(frequencies)
    expected = logits(by_hand, tokens)
    torch.testing.assert_close(logits(model, tokens), expected, rtol=1e-4, atol=1e-4)
    assert (expected - logits(plain(architecture), tokens)).abs().max() > 1e-2


def lost_in_bfloat16(model: Any, folder: Path, expected: Tensor) -> float:
    """The error of the saved model in bfloat16, whose frequencies stay as they are."""
    half = load(str(folder), dtype="bfloat16").model
    found = logits(half, ids(LONGER))
    for (_, _, ours), (_, _, theirs) in zip(find_rotary(model), find_rotary(half), strict=True):
        torch.testing.assert_close(theirs.inv_freq, ours.inv_freq, rtol=0, atol=0)
    return share_lost(found, expected).item()


@pytest.fixture(scope="module")
def lost_by_plain_rope(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], float]:
    @cache
    def lost(architecture: str) -> float:
        folder, model = tmp_path_factory.mktemp("plain"), plain(architecture)
        save_whole(model, tiny_tokenizer(), folder / "m")
        return lost_in_bfloat16(model, folder / "m", logits(model, ids(LONGER)))

    return lost


@every_method
def test_saved_and_loaded_it_is_the_same(method, architecture, tmp_path, lost_by_plain_rope):
    """And in bfloat16 it loses no more than plain rope."""
    model, extension = learned(method, architecture), extended(method, architecture)[1]
    tokens = ids(LONGER)
    expected = logits(model, tokens)
    save_whole(model, tiny_tokenizer(), tmp_path / "m")
    loaded = load(str(tmp_path / "m"))
    assert loaded.extension == extension
    torch.testing.assert_close(logits(loaded.model, tokens), expected)
    for (_, _, ours), (_, _, theirs) in zip(find_rotary(model), find_rotary(loaded.model), strict=True):
        torch.testing.assert_close(theirs.inv_freq, ours.inv_freq, rtol=0, atol=0)
    if extension.to_hf_config() is not None:
        with quiet_transformers():
            alone = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
        torch.testing.assert_close(logits(alone, tokens), expected)
    error = lost_in_bfloat16(model, tmp_path / "m", expected)
    assert error <= 2 * lost_by_plain_rope(architecture) + 1e-3


@every_method
def test_an_adapter_goes_on_and_off(method: str, architecture: str) -> None:
    model, _ = extended(method, architecture)
    adapted = assert_adapter_goes_on_and_off(model, lambda model: logits(model, ids(LONGER)))
    trainable = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert any("lora_" in name for name in trainable)
    assert any("frequencies" in name for name in trainable) == (method == "clex")


@every_method
def test_gradients_are_finite_and_the_same_with_checkpointing(method: str, architecture: str) -> None:
    batch = PairCollator(View(LONGER))([{"input_ids": ids(LONGER + 7)[0]}])
    assert_same_with_checkpointing(
        lambda: learned(method, architecture), batch["input_ids"], batch["labels"], batch["geometry"]
    )


@every_method
def test_generation_with_a_cache_is_generation_without(method: str, architecture: str) -> None:
    model = learned(method, architecture)
    length = ORIGINAL - 8 if method in CHANGES_WITH_EVERY_TOKEN else ORIGINAL + 4
    runs = [
        model.generate(
            input_ids=ids(length),
            attention_mask=torch.ones(1, length, dtype=torch.long),
            max_new_tokens=6,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            use_cache=use_cache,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for use_cache in (True, False)
    ]
    torch.testing.assert_close(runs[0].sequences, runs[1].sequences)
    for cached, uncached in zip(runs[0].logits, runs[1].logits, strict=True):
        torch.testing.assert_close(cached, uncached, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", sorted(CHANGES_WITH_EVERY_TOKEN))
def test_frequencies_that_change_with_every_token_disagree_with_their_cache(method: str) -> None:
    model = learned(method, "llama-gqa")
    tokens = ids(LONGER)
    with torch.no_grad():
        first = model(input_ids=tokens[:, :-4], use_cache=True)
        cached = model(input_ids=tokens[:, -4:], **{cache_argument(model): cache_among(first)}).logits
    assert (cached - logits(model, tokens)[:, -4:]).abs().max() > 1e-2
