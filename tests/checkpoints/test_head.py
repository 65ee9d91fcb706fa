import logging
from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertLMHeadModel

from lengthwise.checkpoints import FullLogits, Head, find_head, hidden_states_for
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from tests.architectures import TINY_ARCHITECTURES, random_ids, tiny_model, with_lora


def difference(model: nn.Module, head: Head | FullLogits) -> float:
    """Largest difference from the model's own logits, as a share of the largest of them."""
    with torch.no_grad():
        own = model(input_ids=random_ids()).logits.double()
        ours = head.logits(hidden_states_for(model, head, random_ids())).double()
    assert ours.shape == own.shape
    return ((ours - own).abs().max() / own.abs().max()).item()


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 0.02)]
)
def test_head_gives_the_models_own_logits(name: str, dtype: torch.dtype, tolerance: float):
    model = tiny_model(name).to(dtype)
    head = find_head(model)
    assert isinstance(head, Head), head
    assert head.weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    # GPT-J attends in float32, whatever its dtype.
    assert difference(model, head) <= max(tolerance, 1e-6 if name == "gptj-bias" else 0)


# What a model may do to its logits that no configuration records.
OWN_LOGITS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scale": lambda logits: logits * 1.01,
    "cap": lambda logits: 100 * torch.tanh(logits / 100),
    "banned": lambda logits: logits.index_fill(-1, torch.tensor([7]), -torch.inf),
}


@pytest.mark.parametrize("kind", OWN_LOGITS)
def test_an_unknown_head_is_found_out_and_full_logits_are_used(kind: str, caplog):
    model = tiny_llama(initializer_range=0.1)
    own_forward = model.forward

    def forward(*args, **kwargs):
        output = own_forward(*args, **kwargs)
        output.logits = OWN_LOGITS[kind](output.logits)
        return output

    model.forward = forward
    with caplog.at_level(logging.WARNING):
        head = find_head(model)
    assert isinstance(head, FullLogits)
    assert ("not all finite" if kind == "banned" else "differ by") in head.reason
    assert caplog.text.count("full logits are used") == 1
    with torch.no_grad():
        own = model(input_ids=random_ids()).logits
        ours = head.logits(hidden_states_for(model, head, random_ids()))
    torch.testing.assert_close(ours, own, equal_nan=True)


def test_finding_changes_neither_modes_nor_random_state():
    model = tiny_llama(attention_dropout=0.5)
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    assert isinstance(find_head(model), Head)
    assert torch.equal(torch.rand(4), expected)
    assert [module.training for module in model.modules()] == modes
    assert all(not module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("zero", [False, True])
def test_lora_on_the_head_goes_through_full_logits_even_while_it_is_zero(zero: bool):
    model = with_lora(tiny_model("llama-gqa"), target_modules=["lm_head"], init_lora_weights=zero)
    head = find_head(model)
    assert isinstance(head, FullLogits)
    assert "not a plain linear layer" in head.reason
    assert difference(model, head) < 1e-6


def test_a_trained_copy_of_the_head_is_the_head():
    model = with_lora(tiny_model("llama-gqa"), modules_to_save=["lm_head"])
    head = find_head(model)
    assert isinstance(head, Head)
    with torch.no_grad():
        head.weight.mul_(2.0)
    assert head.weight.requires_grad
    assert difference(model, head) < 1e-6
    with model.disable_adapter():
        assert difference(model, head) < 1e-6


def test_a_model_that_looks_ahead_is_refused():
    config = BertConfig(
        vocab_size=320, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    )
    with pytest.raises(UsageError, match="BertLMHeadModel"):
        find_head(BertLMHeadModel(config).eval())


@pytest.mark.parametrize("name", ["chunk_size", "mamba_chunk_size"])
def test_a_model_that_looks_ahead_beyond_what_it_computes_at_once_is_refused(name):
    """As Zamba2 before transformers 5.15: rows beyond the first chunk have something of the last token."""
    model = tiny_llama()
    model.model.embed_tokens.register_forward_hook(
        lambda module, args, states: torch.cat([states[:, :64], states[:, 64:] + states[:, -1:]], dim=1)
    )
    find_head(model)
    setattr(model.config, name, 64)
    with pytest.raises(UsageError, match="later token"):
        find_head(model)


def test_a_model_with_dropout_left_on_does_not_look_ahead():
    model = tiny_llama()
    forward = model.model.layers[0].mlp.forward
    model.model.layers[0].mlp.forward = lambda hidden: nn.functional.dropout(forward(hidden), 0.2, True)
    with pytest.raises(UsageError, match="other numbers each time that it reads the same 18 tokens"):
        find_head(model)


def test_flash_attention_does_not_get_a_single_row_whose_positions_begin_again(monkeypatch):
    """transformers would read such a row as two texts; two rows, and positions that skip, it reads whole."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model, ids = tiny_llama().eval(), random_ids(1)
    head = find_head(model)
    cyclic = (torch.arange(12)[None] + 5) % 12
    skipped = torch.arange(12)[None] + 40 * (torch.arange(12) > 4)
    (starts, _), _ = prepare_fa_kwargs_from_position_ids(cyclic)
    assert starts.tolist() == [7, 12]
    (starts, _), _ = prepare_fa_kwargs_from_position_ids(skipped)
    assert starts.tolist() == [0, 12]

    with torch.no_grad():
        expected = hidden_states_for(model, head, ids, position_ids=skipped)
        both = hidden_states_for(model, head, ids.expand(2, -1), position_ids=cyclic.expand(2, -1))
        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "flash_stand_in", sdpa_attention_forward)
        masks = ALL_MASK_ATTENTION_FUNCTIONS
        monkeypatch.setitem(masks._local_mapping, "flash_stand_in", masks["sdpa"])
        model.config._attn_implementation = "flash_stand_in"
        with pytest.raises(UsageError, match="as two texts"):
            hidden_states_for(model, head, ids, position_ids=cyclic)
        torch.testing.assert_close(hidden_states_for(model, head, ids, position_ids=skipped), expected)
        rows = hidden_states_for(model, head, ids.expand(2, -1), position_ids=cyclic.expand(2, -1))
        torch.testing.assert_close(rows, both)
