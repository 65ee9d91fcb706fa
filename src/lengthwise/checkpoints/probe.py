"""What a causal language model must be, on a few tokens: blind to later ones, and the same each time.

In texts that are measured it is looked at where they are read (`lengthwise.subjects.proof`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import accepted, is_quantized, running, unwrap, view_arguments
from lengthwise.checkpoints.position_limits import max_positions
from lengthwise.errors import UsageError
from lengthwise.machine import device_of

# What recurrent layers compute at once. Zamba2 before transformers 5.15 carries later tokens into all that is beyond.
_AT_ONCE = ("chunk_size", "mamba_chunk_size")

# Largest difference allowed, as a share of the largest logit: rounding of one matrix product.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def check_causal(model: nn.Module) -> None:
    """Look at the logits before a place, of the same tokens and of others from there on.

    In a short text: those that are measured are looked at where they are read (`check_blind`).
    """
    dtype = torch.bfloat16 if is_quantized(model) else next(model.parameters()).dtype
    # Of the same few ids: some of a vocabulary stand for images.
    config = unwrap(model).config.get_text_config()
    at_once = max(getattr(config, name, None) or 0 for name in _AT_ONCE)
    one, other = probe_tokens(model).repeat(1, 3 + at_once // 6)[:, : max_positions(model)]
    for place in (1, len(one) - 1):
        pair = torch.stack([one, torch.cat([one[:place], other[place:]])])
        logits = at_least_float32(all_logits(model, pair))
        difference = (logits[0, :place] - logits[1, :place]).abs().nan_to_num(0).max().item()
        largest = logits.nan_to_num(0, 0, 0).abs().max().item()
        if difference > TOLERANCE.get(dtype, 1e-4) * largest:
            what = f"a {type(unwrap(model)).__name__}"
            again = (at_least_float32(all_logits(model, pair)) - logits).abs().nan_to_num(0).max().item()
            if again > difference / 10:
                raise unrepeatable(what)
            raise looks_ahead(what)


def check_default_positions(model: nn.Module) -> None:
    """Texts are read here at positions that are given, and elsewhere often at those that the model counts itself."""
    ids, what = probe_tokens(model), f"a {type(unwrap(model)).__name__}"
    own = all_logits(model, ids)
    if apart(all_logits(model, **view_arguments(model, ids, whole=True)), own):
        if apart(all_logits(model, ids), own):
            raise unrepeatable(what)
        raise UsageError(
            f"{what} gives other logits at the positions 0, 1, ... than without positions",
            expected="a model that counts positions from 0, or from behind those of padding in its table",
        )


def all_logits(model: nn.Module, input_ids: Tensor, **more: Tensor) -> Tensor:
    """The model's own, in a forward pass without a cache. UsageError where its code fails."""
    with running(f"a {type(unwrap(model)).__name__}", input_ids.shape[1]):
        return model(input_ids=input_ids, **more, **accepted(model, use_cache=False)).logits


def gives_numbers(model: nn.Module) -> bool:
    """Whether the logits of a few random tokens are numbers, or minus infinity, which bans a token."""
    with torch.no_grad():
        logits = all_logits(model, probe_tokens(model))
    return not bool((logits.isnan() | logits.isposinf()).any())


def unrepeatable(what: str, tokens: int | None = None) -> UsageError:
    """What is said of a model that does not say the same of the same tokens, so many of them."""
    which = "the same tokens" if tokens is None else f"the same {tokens:,} tokens"
    return UsageError(f"{what} gives other numbers each time that it reads {which}")


def looks_ahead(what: str, tokens: int | None = None) -> UsageError:
    """What is said of a model whose predictions depend on later tokens, in texts of so many."""
    where = "" if tokens is None else f" in a text of {tokens:,} tokens"
    return UsageError(
        f"{what} is not a causal language model: a prediction depends on a later token{where}",
        expected="a model whose predictions depend on the tokens before them alone",
    )


def probe_tokens(model: nn.Module) -> Tensor:
    """Two short sequences of random token ids, the same at each call, on the model's device."""
    embedding = unwrap(model).get_input_embeddings()
    assert isinstance(embedding.weight, Tensor)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(embedding.weight.shape[0], (2, 6), generator=generator).to(device_of(embedding))


def apart(found: Tensor, own: Tensor) -> str | None:
    """`differ by ...` where logits are by more than rounding not a model's own; what is infinite in both is equal."""
    one, other = found.double().nan_to_num(), own.double().nan_to_num()
    difference, allowed = (one - other).abs().max().item(), TOLERANCE[own.dtype] * other.abs().max().item()
    return None if difference <= allowed else f"differ by {difference:.3g} where {allowed:.1g} is rounding"


def at_least_float32(tensor: Tensor) -> Tensor:
    """In float64 if it is, else in float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
