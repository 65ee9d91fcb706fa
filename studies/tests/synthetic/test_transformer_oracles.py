"""Whole models against transformers' own: the same weights in GPT-2, GPT-NeoX and Bloom give the same logits.

So causality, learned positions, rotary positions and ALiBi are theirs, and the rest of the body is a usual one.
"""

import pytest
import torch
from torch import Tensor, nn
from transformers import BloomConfig, BloomModel, GPT2Config, GPT2Model, GPTNeoXConfig, GPTNeoXModel

from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

V, D, H, HIDDEN, LAYERS, TABLE, LENGTH = 7, 16, 4, 24, 2, 32, 11


def _ours(encoding: str) -> tuple[StackedTransformer, dict[str, Tensor], Tensor]:
    """A model with biases that are not 0, its weights, and tokens [2, LENGTH]."""
    sizes = {"width": D, "layers": LAYERS, "heads": H, "hidden": HIDDEN}
    architecture = Architecture(vocabulary=V, encoding=encoding, table=TABLE, tokens=V, **sizes)
    model = StackedTransformer(architecture, [5])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.flat.add_(0.1 * torch.randn(model.flat.shape, generator=generator))
    weights = {name: weight[0].detach() for name, weight in model.weights().items()}
    return model, weights, torch.randint(0, V, (2, LENGTH), generator=generator)


def _blank(model: nn.Module) -> None:
    """Norms without a gain, nothing added anywhere."""
    for name, parameter in model.named_parameters():
        nn.init.constant_(parameter, 1.0 if "ln_" in name or "norm" in name else 0.0)
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


def _by_head(qkv: Tensor) -> Tensor:
    """[D, (3, H, K)] as the [(H, 3, K), D] that Bloom and GPT-NeoX keep."""
    return qkv.unflatten(1, (3, H, -1)).transpose(1, 2).flatten(1).T


def _copy_block(attention: nn.Module, mlp: nn.Module, ours: dict[str, Tensor], layer: int) -> None:
    """The weights of one block into one of Bloom or GPT-NeoX, whose parts have the same names."""
    attention.query_key_value.weight.copy_(_by_head(ours[f"{layer}.qkv"]))
    attention.dense.weight.copy_(ours[f"{layer}.out"].T)
    for linear, name in ((mlp.dense_h_to_4h, "up"), (mlp.dense_4h_to_h, "down")):
        linear.weight.copy_(ours[f"{layer}.{name}"].T)
        linear.bias.copy_(ours[f"{layer}.{name}.bias"])


@torch.no_grad()
def test_learned_positions_are_those_of_gpt2():
    model, ours, tokens = _ours("learned")
    sizes = {"n_positions": TABLE, "n_embd": D, "n_layer": LAYERS, "n_head": H, "n_inner": HIDDEN}
    theirs = GPT2Model(GPT2Config(vocab_size=V, activation_function="relu", **sizes)).eval()
    _blank(theirs)
    theirs.wte.weight.copy_(ours["embedding"])
    theirs.wpe.weight.copy_(ours["encoding.positions"])
    for layer, block in enumerate(theirs.h):
        block.attn.c_attn.weight.copy_(ours[f"{layer}.qkv"])
        block.attn.c_proj.weight.copy_(ours[f"{layer}.out"])
        for linear, name in ((block.mlp.c_fc, "up"), (block.mlp.c_proj, "down")):
            linear.weight.copy_(ours[f"{layer}.{name}"])
            linear.bias.copy_(ours[f"{layer}.{name}.bias"])
    expected = theirs(tokens).last_hidden_state @ ours["tokens"] + ours["tokens.bias"]
    assert torch.allclose(model.heads(tokens[None])[0][0], expected, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("start", [0, 300])
def test_rotary_positions_are_those_of_gpt_neox(start):
    model, ours, tokens = _ours("rotary")
    theirs = GPTNeoXModel(
        GPTNeoXConfig(
            vocab_size=V,
            hidden_size=D,
            num_hidden_layers=LAYERS,
            num_attention_heads=H,
            intermediate_size=HIDDEN,
            hidden_act="relu",
            use_parallel_residual=False,
            # Before transformers 5.5 it overwrites a `partial_rotary_factor` of rope_parameters.
            rotary_pct=1.0,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ).eval()
    _blank(theirs)
    theirs.embed_in.weight.copy_(ours["embedding"])
    for layer, block in enumerate(theirs.layers):
        _copy_block(block.attention, block.mlp, ours, layer)
    # Gaps, and other ones in each sample.
    ids = start + torch.stack([torch.arange(LENGTH) * 2, torch.arange(LENGTH) ** 2])
    hidden = theirs(tokens, position_ids=ids, attention_mask=torch.ones_like(tokens)).last_hidden_state
    expected = hidden @ ours["tokens"] + ours["tokens.bias"]
    found = model.heads(tokens[None], ids[None])[0][0]
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, model.heads(tokens[None], ids[None].flip(1))[0][0], atol=1e-2)


@torch.no_grad()
def test_alibi_is_that_of_bloom():
    model, ours, tokens = _ours("alibi")
    theirs = BloomModel(BloomConfig(vocab_size=V, hidden_size=D, n_layer=LAYERS, n_head=H)).eval()
    for block in theirs.h:
        # Bloom's inner layer is four times as wide and has a GELU.
        block.mlp.dense_h_to_4h = nn.Linear(D, HIDDEN)
        block.mlp.dense_4h_to_h = nn.Linear(HIDDEN, D)
        block.mlp.gelu_impl = nn.ReLU()
    _blank(theirs)
    # Bloom norms its embeddings, which leaves normed ones as they are.
    embedding = nn.functional.layer_norm(ours["embedding"], (D,))
    model.weights()["embedding"][0].copy_(embedding)
    theirs.word_embeddings.weight.copy_(embedding)
    for layer, block in enumerate(theirs.h):
        _copy_block(block.self_attention, block.mlp, ours, layer)
    hidden = theirs(tokens).last_hidden_state
    expected = hidden @ ours["tokens"] + ours["tokens.bias"]
    assert torch.allclose(model.heads(tokens[None])[0][0], expected, atol=1e-4)
