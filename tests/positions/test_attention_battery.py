"""What users assume of a model with an attention method, in three architectures."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from lengthwise.alignment import PairGeometry
from lengthwise.checkpoints import extend
from lengthwise.checkpoints.attention_layers import scale_queries, use_shifted_sparse
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.checkpoints.saving import save_whole
from lengthwise.errors import UsageError
from lengthwise.positions.attention_methods import group_masks
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from tests.architectures import tiny_model
from tests.positions.battery import (
    assert_adapter_goes_on_and_off,
    assert_same_with_checkpointing,
    every_architecture,
    plain,
    share_lost,
    tokens,
    two_pairs,
)

GROUP, HEADS = 0.25, 4
# 22 is no multiple of anything here.
LENGTHS = (16, 22)

every_length = pytest.mark.parametrize("length", LENGTHS)


def sparse(architecture: str, **options: Any) -> Any:
    """In training mode, where it is in force; these models have no dropout."""
    model = plain(architecture)
    use_shifted_sparse(model, **({"group": GROUP} | options))
    return model.train()


@torch.no_grad()
def logits(model: Any, ids: Tensor, **inputs: Tensor) -> Tensor:
    return model(input_ids=ids, use_cache=False, **inputs).logits


def block_masks(length: int, rows: int = 2) -> Tensor:
    return group_masks(length, HEADS, group=GROUP).expand(rows, -1, -1, -1)


@every_length
@every_architecture
def test_it_is_the_model_under_explicit_block_masks(architecture: str, length: int):
    ids = tokens(length)
    expected = logits(plain(architecture), ids, attention_mask=block_masks(length))
    torch.testing.assert_close(logits(sparse(architecture), ids), expected, rtol=1e-4, atol=1e-5)
    assert (expected - logits(plain(architecture), ids))[:, -1].abs().max() > 1e-3


@every_architecture
def test_in_evaluation_it_attends_to_everything(architecture: str):
    model, ids = sparse(architecture).eval(), tokens(22)
    torch.testing.assert_close(logits(model, ids), logits(plain(architecture), ids))


@every_architecture
def test_all_positions_go_along(architecture: str):
    """Sampled positions reach it through rope; the mask of ones does not slow it down or change it."""
    ids = tokens(22)
    positions = torch.arange(22) * 2 + 3
    inputs = {"position_ids": positions.expand(2, -1)}
    expected = logits(plain(architecture), ids, attention_mask=block_masks(22), **inputs)
    found = logits(sparse(architecture), ids, attention_mask=torch.ones_like(ids), **inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@every_architecture
def test_padding_and_eager_attention_are_right(architecture: str):
    ids = tokens(22)
    padding = torch.ones_like(ids)
    padding[1, 17:] = 0
    expected = logits(plain(architecture), ids, attention_mask=block_masks(22))
    model = sparse(architecture)
    found = logits(model, ids, attention_mask=padding)
    for row, length in ((0, 22), (1, 17)):
        torch.testing.assert_close(found[row, :length], expected[row, :length], rtol=1e-4, atol=1e-5)
    eager = plain(architecture)
    eager.set_attn_implementation("eager")
    use_shifted_sparse(eager, group=GROUP)
    torch.testing.assert_close(logits(eager.train(), ids), expected, rtol=1e-4, atol=1e-5)


def test_a_sliding_window_stays_in_force():
    model = tiny_model("mistral")
    ids = tokens(40)
    token = torch.arange(40)
    window = (token[:, None] - token) < 16
    expected = logits(model, ids, attention_mask=block_masks(40)[:, :, :, :] & window)
    wide = group_masks(40, HEADS, group=32).expand(2, -1, -1, -1)
    expected_wide = logits(model, ids, attention_mask=wide & window)
    use_shifted_sparse(model, group=GROUP)
    torch.testing.assert_close(logits(model.train(), ids), expected, rtol=1e-4, atol=1e-5)
    use_shifted_sparse(model, group=32)
    torch.testing.assert_close(logits(model, ids), expected_wide, rtol=1e-4, atol=1e-5)
    assert (expected - expected_wide).abs().max() > 1e-3


@every_architecture
def test_gradients_are_finite_and_the_same_with_checkpointing(architecture: str):
    assert_same_with_checkpointing(lambda: sparse(architecture), *two_pairs(22, 3), PairGeometry(22, 3))


@every_architecture
def test_in_bfloat16_it_loses_no_more_than_full_attention(architecture: str):
    errors = []
    for model in (plain(architecture), sparse(architecture)):
        exact = logits(model, tokens(22))
        errors.append(share_lost(logits(copy.deepcopy(model).to(torch.bfloat16), tokens(22)), exact))
    assert errors[1] <= 2 * errors[0] + 1e-3


@every_architecture
def test_an_adapter_goes_on_and_off(architecture: str):
    assert_adapter_goes_on_and_off(sparse(architecture), lambda model: logits(model, tokens(22)))


@every_architecture
def test_what_is_saved_is_the_plain_model(architecture: str, tmp_path: Path):
    model, ids = sparse(architecture), tokens(22)
    save_whole(model, tiny_tokenizer(), tmp_path / "m")
    with quiet_transformers():
        alone = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert "lengthwise" not in (tmp_path / "m" / "config.json").read_text()
    assert "lengthwise" not in alone.config._attn_implementation
    for again in (alone.train(), load(str(tmp_path / "m")).model.train()):
        torch.testing.assert_close(logits(again, ids), logits(plain(architecture), ids))


@every_architecture
@pytest.mark.parametrize("run_before", [False, True])
def test_it_goes_together_with_scaled_queries(architecture: str, run_before: bool):
    """EABF in training: the queries are scaled once, then the groups attend."""
    ids = tokens(22)
    model = plain(architecture)
    extend(model, "eabf", factor=4.0, original_length=16, skip_layers=0)
    if run_before:
        logits(model, ids)
    expected = logits(model, ids, attention_mask=block_masks(22))
    use_shifted_sparse(model, group=GROUP)
    torch.testing.assert_close(logits(model.train(), ids), expected, rtol=1e-4, atol=1e-5)
    use_shifted_sparse(model, group=GROUP)
    torch.testing.assert_close(logits(model, ids), expected, rtol=1e-4, atol=1e-5)


@every_architecture
def test_scaled_queries(architecture: str):
    """As EABF with the model's own base, which `TestQueryScale` compares with longer queries."""
    scaled, eabf = plain(architecture), plain(architecture)
    scale_queries(scaled, 8, layers=range(1, scaled.config.num_hidden_layers))
    theta = eabf.config.rope_parameters["rope_theta"]
    extend(eabf, "eabf", factor=4.0, original_length=8, skip_layers=1, theta=theta)
    torch.testing.assert_close(logits(scaled, tokens(22)), logits(eabf, tokens(22)), rtol=1e-4, atol=1e-5)
    assert (logits(scaled, tokens(22)) - logits(plain(architecture), tokens(22))).abs().max() > 1e-3


@every_architecture
def test_scaled_queries_keep_every_digit_of_float64(architecture: str):
    """Within the original context the scale is 1."""
    scaled, unscaled = plain(architecture).double(), plain(architecture).double()
    scale_queries(scaled, 22, layers=range(scaled.config.num_hidden_layers))
    torch.testing.assert_close(
        logits(scaled, tokens(22)), logits(unscaled, tokens(22)), rtol=1e-12, atol=1e-12
    )


def test_models_with_another_attention_are_refused():
    with pytest.raises(UsageError):
        use_shifted_sparse(tiny_model("bloom-alibi"))
    capped = tiny_model("gemma2-soft-cap", attn_logit_softcapping=3.0)
    use_shifted_sparse(capped)
    with pytest.raises(UsageError, match="softcap"):
        logits(capped.train(), tokens(16))
