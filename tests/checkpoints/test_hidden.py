import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from transformers import ModernBertDecoderConfig, ModernBertDecoderForCausalLM

from lengthwise.checkpoints import (
    FullLogits,
    capture_hidden_states,
    final_hidden_states,
    find_head,
    hidden_states_for,
    unwrap,
)
from lengthwise.checkpoints.hidden import decoder_of
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from tests.architectures import TINY_ARCHITECTURES, random_ids, tiny_model


def gradients(model: nn.Module, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a loss on the hidden states that also uses the head's weight outside of the forward pass."""
    model.zero_grad()
    weight = unwrap(model).get_output_embeddings().weight
    (hidden @ weight.T).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in unwrap(model).named_parameters()}


@pytest.mark.parametrize("name", TINY_ARCHITECTURES)
def test_only_the_last_logits_are_formed_and_no_cache(name: str):
    model = tiny_model(name)
    shapes: list[tuple[int, ...]] = []
    model.get_output_embeddings().register_forward_hook(lambda *a: shapes.append(tuple(a[2].shape)))
    hidden = final_hidden_states(model, random_ids())
    assert hidden.shape == (2, 12, 32)
    assert hidden.requires_grad
    assert shapes == [(2, 1, 320)]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_head_reads_the_last_position_from_memory_of_its_own(batch: int):
    # A part of the whole batch would be multiplied row by row where the head is frozen.
    model = tiny_llama().requires_grad_(False)
    seen: list[torch.Tensor] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with capture_hidden_states(model) as captured:
        model(input_ids=random_ids(batch), use_cache=False)
    hidden = final_hidden_states(model, random_ids(batch))
    torch.testing.assert_close(hidden, *captured)
    assert torch.equal(seen[-1], hidden[:, -1:])
    assert seen[-1].stride() == (32, 32, 1)


def test_the_hook_is_removed_after_an_error():
    model = tiny_llama()
    with pytest.raises(KeyboardInterrupt), capture_hidden_states(model):
        raise KeyboardInterrupt
    assert all(not module._forward_hooks for module in model.modules())


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("find_unused", [False, True])
def test_through_ddp_with_all_gradients(find_unused: bool):
    model = tiny_llama().double()
    expected = gradients(model, final_hidden_states(model, random_ids()))
    wrapped = DistributedDataParallel(model, find_unused_parameters=find_unused)
    assert unwrap(wrapped) is model
    for _ in range(2):  # the second pass fails if the reducer missed a parameter in the first
        found = gradients(wrapped, final_hidden_states(wrapped, random_ids()))
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-14, msg=name)


@pytest.mark.usefixtures("process_group")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`:UserWarning")
def test_fsdp1_is_refused():
    wrapped = FullyShardedDataParallel(tiny_llama(), device_id=torch.device("cpu"))
    with pytest.raises(UsageError, match="FSDP1"):
        final_hidden_states(wrapped, random_ids())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_positions_with_a_gap_keep_all_attention(attention: str):
    model = tiny_llama(attn_implementation=attention, max_position_embeddings=256).double()
    ids = random_ids()
    positions = torch.tensor([*range(6), *range(100, 106)]).expand(2, -1)
    causal = torch.full((12, 12), -torch.inf, dtype=torch.float64).triu(1).expand(2, 1, 12, 12)
    with torch.no_grad():
        expected = model.model(input_ids=ids, position_ids=positions, attention_mask=causal).last_hidden_state
        found = final_hidden_states(model, ids, position_ids=positions)
        # What transformers does without a mask: two documents. If this ever changes, we want to know.
        packed = model.model(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
        alone = model.model(input_ids=ids[:, 6:], position_ids=positions[:, 6:]).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    # Eager attention has its softmax in float32, which other shapes may round otherwise.
    tolerance = 1e-12 if attention == "sdpa" else 64 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(packed[:, 6:], alone, rtol=tolerance, atol=tolerance)
    assert (found[:, 6:] - alone).abs().max() > 0.01


def test_padding_is_passed_on():
    model = tiny_llama().double()
    ids = random_ids(1)
    mask = torch.tensor([[0] * 4 + [1] * 8])
    positions = torch.tensor([[0] * 4 + list(range(8))])
    with torch.no_grad():
        padded = final_hidden_states(model, ids, position_ids=positions, attention_mask=mask)
        alone = final_hidden_states(model, ids[:, 4:])
    torch.testing.assert_close(padded[:, 4:], alone, rtol=1e-12, atol=1e-12)


def test_what_is_no_transformers_model_is_refused():
    with pytest.raises(UsageError, match="Linear"):
        unwrap(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="LlamaModel"):
        final_hidden_states(tiny_llama().model, random_ids())


def test_virtual_tokens_are_refused():
    with quiet_transformers():
        model = get_peft_model(tiny_llama(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(UsageError, match=r"15.*12"):
        final_hidden_states(model, random_ids())


def test_the_decoder_is_found_where_transformers_names_another_part():
    """ModernBERT's `decoder` is its output layer, and Llama 4 gives itself."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {
        "vocab_size": 320,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    bert = ModernBertDecoderForCausalLM(ModernBertDecoderConfig(**sizes, **ids)).eval()
    llama = tiny_model("llama-gqa")
    llama.get_decoder = lambda: llama
    for model in (bert, llama):
        assert decoder_of(model) is model.model
        head = find_head(model)
        with torch.no_grad():
            found = head.logits(hidden_states_for(model, head, random_ids()))
            torch.testing.assert_close(found, model(input_ids=random_ids()).logits, rtol=1e-4, atol=1e-4)


def test_a_decoder_that_gives_no_hidden_states_leaves_full_logits():
    model = tiny_model("llama-gqa")
    model.get_decoder = lambda: model.model.layers
    assert isinstance(find_head(model), FullLogits)
    model.get_decoder = lambda: model.model.layers[0]
    assert isinstance(find_head(model), FullLogits)
