"""`limit` on models whose limits are known because they were built with them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from lengthwise.errors import UsageError
from lengthwise.measure import Limit
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise.subjects.branches import TOGETHER
from tests.measure.copying import VOCABULARY, counting, knowing, reading, without_repetition
from tests.readings import in_memory, token_losses

SETTINGS: dict[str, Any] = {"reference": 64, "passage": 16, "scored": 12, "windows": 6}
CODE = 80
"""Dimensions of a token's code; four pairs of codes of 1024 are never alike."""
HEAD = 128


def measured(model, text, **settings):
    return measure(Limit(**settings), model, text)


def codes() -> torch.Tensor:
    """Random codes of length 1: [VOCABULARY, CODE]."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(2, (VOCABULARY, CODE), generator=generator).mul(2).sub(1) / math.sqrt(CODE)


@torch.no_grad()
def transformer(*, window: int | None) -> MistralForCausalLM:
    """A Mistral with weights set by hand.

    Its stream holds [1, token, previous token, output]. Layer 0 attends to the token before (by rope's fast
    frequencies) and writes it down. Layer 1 attends to where the previous token is this one (by the slow
    frequencies, which hardly turn) and outputs that token: an induction head.
    """
    width = 256
    config = MistralConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1,
        num_key_value_heads=1, head_dim=HEAD, max_position_embeddings=256, sliding_window=window,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
    )  # fmt: skip
    model = MistralForCausalLM(config)
    for parameter in model.parameters():
        parameter.zero_()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.fill_(1)
    token, previous, output = (slice(1 + CODE * place, 1 + CODE * (place + 1)) for place in range(3))
    model.model.embed_tokens.weight[:, 0] = 1
    model.model.embed_tokens.weight[:, token] = codes()
    one = torch.eye(CODE)
    half, fast = HEAD // 2, 24
    frequencies = 1e12 ** (-torch.arange(fast) / half)
    slow = [pair + offset for offset in (0, half) for pair in range(fast, half)]
    # What RMSNorm makes of a part of length 1 when the stream has length sqrt(parts).
    first, second, last = (math.sqrt(width / parts) for parts in (2, 3, 4))
    looking, copying = (layer.self_attn for layer in model.model.layers)
    looking.q_proj.weight[:fast, 0] = frequencies.cos() * 30 / first
    looking.q_proj.weight[half : half + fast, 0] = -frequencies.sin() * 30 / first
    looking.k_proj.weight[:fast, 0] = 30 / first
    looking.v_proj.weight[:CODE, token] = one / first
    looking.o_proj.weight[previous, :CODE] = one
    copying.q_proj.weight[slow, token] = one * math.sqrt(60 * math.sqrt(HEAD)) / second
    copying.k_proj.weight[slow, previous] = one * math.sqrt(60 * math.sqrt(HEAD)) / second
    copying.v_proj.weight[:CODE, token] = one / second
    copying.o_proj.weight[output, :CODE] = one
    model.lm_head.weight[:, output] = codes() * 20 / last
    return model.eval()


def one(rows: list[Row], metric: str) -> Row:
    (row,) = [r for r in rows if r.metric == metric and r.position is None and r.distance is None]
    return row


def assert_found(row: Row, limit: int) -> None:
    assert row.value == pytest.approx(limit, rel=0.1)
    assert row.ci_low <= limit <= row.ci_high
    assert not row.at_least
    assert row.unit == "tokens"


@pytest.mark.parametrize("window", [60, 301])
def test_an_attention_window(window: int):
    model = in_memory(transformer(window=window), "window")
    found = measured(model, without_repetition(), max_length=512, **SETTINGS)
    assert_found(one(found.rows, "used_up_to"), window)


def test_without_a_window_there_is_no_end():
    model = in_memory(transformer(window=None), "copies")
    found = measured(model, without_repetition(), max_length=512, **SETTINGS)
    row = one(found.rows, "used_up_to")
    assert row.at_least
    assert row.value == 512 - 16
    assert any("used_up_to: no end was found up to 496 tokens" in note for note in found.notes)


@pytest.mark.parametrize("good", [131, 420])
def test_positions_of_which_only_the_first_are_good(fake: Any, good: int):
    found = measured(reading(fake, knowing(good)), counting(6), max_length=512, **SETTINGS)
    assert_found(one(found.rows, "sound_up_to"), good)


def test_a_table_of_positions_ends(fake: Any):
    model = reading(fake, knowing(400))
    model.max_positions = 400
    found = measured(model, counting(6), max_length=4096, **SETTINGS)
    row = one(found.rows, "sound_up_to")
    assert row.value == pytest.approx(400, rel=0.1)
    assert not row.at_least
    assert any("Sound to the end: the model's table of 400 positions" in note for note in found.notes)


def test_the_numbers_are_those_of_whole_forward_passes(model, documents):
    """Cached texts, branches and short contexts against one pass each, for a rope model with random weights."""
    settings = {**SETTINGS, "max_length": 256, "windows": 2}
    found = measured(model, documents, **settings)
    assert model.proofs.up_to[TOGETHER] == 240 + 15
    twice, once = found.records.values()
    assert "different" not in once
    document = next(d for d in documents if d.id == twice["document"])
    ids = torch.from_numpy(document.ids[twice["start"] : twice["start"] + 256 + 1 + 32].astype(np.int64))

    def losses(context: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits = model.model(context[None]).logits[0].double()[-len(targets) :]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    whole = losses(ids[:256], ids[65:257])
    short = torch.cat(
        [losses(ids[first - 16 : first + 48], ids[first + 1 : first + 49]) for first in range(64, 256, 48)]
    )
    assert twice["excess"] == pytest.approx((whole - short).view(-1, 8).sum(1).tolist(), abs=1e-3)
    assert twice["loss"] == pytest.approx(whole.view(-1, 8).sum(1).tolist(), abs=1e-3)
    start, inside = Limit(**settings).inside
    assert (start, inside) == (64, [32, 51, 81, 128])
    other = ids.clone()
    other[:16], other[start : start + 16] = ids[-16:], ids[-32:-16]
    asked = [(0, distance) for distance in Limit(**settings).distances]
    asked += [(start, distance) for distance in inside]
    for index, (begin, distance) in enumerate(asked):
        question = ids[begin : begin + 16]
        for name, text in (("same", ids), ("different", other)):
            context = torch.cat([text[: begin + distance], question[:-1]])
            expected = losses(context, question[-12:]).sum().item()
            assert twice[name][index] == pytest.approx(expected, abs=1e-3)


def test_the_last_short_context_ends_with_the_window(model, documents):
    """Where three quarters of R do not divide what is compared."""
    settings = {**SETTINGS, "max_length": 288, "windows": 1}
    [record] = measured(model, documents, **settings).records.values()
    document = next(d for d in documents if d.id == record["document"])
    ids = document.ids[record["start"] : record["start"] + 289]
    whole, short = token_losses(model, [ids[:288], ids[224:288]], [ids[257:]] * 2)
    assert record["excess"][-4:] == pytest.approx((whole - short).view(4, 8).sum(1).tolist(), abs=1e-3)


def test_length_and_reference_follow_from_the_trained_length(model):
    found = Limit(passage=16, scored=12).resolved(model, model)
    assert (model.trained_length, found.max_length, found.reference) == (128, 1024, 32)
    with pytest.raises(UsageError, match="100 tokens is too short"):
        Limit(**SETTINGS, max_length=100).resolved(model, model)
