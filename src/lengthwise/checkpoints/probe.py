"""What a causal language model must be: blind to later tokens, and the same each time, at positions from 0.

On a few tokens before a model is used. In texts that are measured it is looked at where they are read
(`lengthwise.subjects.weights`): hashing, sorting or pooling of tokens often begins beyond a length, and a model may
look ahead farther than any short text is long.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import accepted, running, unwrap, view_arguments
from lengthwise.checkpoints.position_limits import max_positions
from lengthwise.errors import UsageError
from lengthwise.machine import device_of

# What recurrent layers compute at once. Zamba2 before transformers 5.15 carries later tokens into all that is beyond.
_AT_ONCE = ("chunk_size", "mamba_chunk_size")

TOLERANCE = {
    torch.float64: (1e-10, 1e-9),
    torch.float32: (1e-4, 1e-4),
    torch.float16: (5e-3, 2e-2),
    torch.bfloat16: (3e-2, 6e-2),
}
"""Largest difference that is rounding, as a share of the largest value: of one matrix product, and of a whole pass.

SmolLM2-135M, read on from its cache, differs by 7e-7, 0.002 and 0.027 in float32, float16 and bfloat16.
"""
_FAR = 1000
"""How many times its row's median a number is that is no part of the row's size; in SmolLM2 one is 54 times."""
_MOVED = 1e-3
"""The share of its size by which a row of a product moves with others of its call, that is no rounding. It has the
same bits in sound products, and moves by 0.006 in LLM.int8."""
_BLOCK = 16
_AT_ONCE_VALUES = 1 << 24
_TINY = torch.finfo(torch.float64).tiny


def differs(found: Tensor, expected: Tensor, *, product: bool = False) -> str | None:
    """`by ... of its size where ... is rounding`, if two computations of the same numbers [T, ..., d] differ by more.

    That of a whole pass, or of one `product`. Rounding is a share of the largest value, and of each row's own size
    (sum |found - expected| / sum |expected|): one of SmolLM2's 576 dimensions reaches 53, and hides the others, near
    0.6. A row's share is the mean of 16 rows, or an eighth of its own: 16 bits send single tokens to another expert.
    What is NaN, or the same infinity, in both is equal. Numbers that are far larger than the rest of their row, as
    -1e9 that bans a token, are compared among themselves: beside them any difference of the rest is small.
    """
    assert found.shape == expected.shape
    pairs = found.flatten(0, -2), expected.flatten(0, -2)
    # Whole blocks, of few values: in float64, logits of a long text are large.
    at_once = _BLOCK * max(1, _AT_ONCE_VALUES // (_BLOCK * found.shape[-1]))
    parts = [_apart(*pair) for pair in zip(*(each.split(at_once) for each in pairs), strict=True)]
    difference, size = torch.stack([sizes for sizes, _ in parts]).amax(0)
    rows = torch.cat([shares for _, shares in parts])
    # Zeros that should be zeros have no size.
    shares = [
        *(difference / size.clamp(min=_TINY)),
        rows.max() / 8,
        *(block.mean() for block in rows.split(_BLOCK)),
    ]
    share = torch.stack(shares).max().item()
    allowed = TOLERANCE.get(expected.dtype, TOLERANCE[torch.float32])[not product]
    # NaN is no less.
    return None if share <= allowed else f"by {share:.3g} of its size where {allowed:.1g} is rounding"


def _apart(found: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Of rows [N, d] the largest difference and the largest finite value, of the far numbers and of the rest [2, 2].

    And of each row, without its far numbers, the share of its size [N].
    """
    one, other = found.double(), expected.double()
    same = (one == other) | (one.isnan() & other.isnan())
    difference = (one - other).abs_().masked_fill_(same, 0)
    size = other.abs().masked_fill_(~other.isfinite(), 0)
    # Few rows have a far number: where most others reach a thousandth of the largest, the median does, too.
    small = (size < size.amax(-1, keepdim=True) / _FAR) & (size > 0)
    rows = 2 * small.sum(-1) >= (size > 0).sum(-1)
    kinds = [[size.new_zeros(1)] * 2, [difference, size]]
    if rows.any():
        far, some = torch.zeros_like(same), size[rows]
        far[rows] = some > _FAR * some.masked_fill(some == 0, torch.nan).nanmedian(-1, keepdim=True).values
        kinds = [[each.masked_fill(kind, 0) for each in (difference, size)] for kind in (~far, far)]
    largest = torch.stack([torch.stack([each.max() for each in some]) for some in zip(*kinds, strict=True)])
    _, (rest, sizes) = kinds
    return largest.cpu(), (rest.sum(-1) / sizes.sum(-1).clamp(min=_TINY)).cpu()


def check_blind(
    text: Tensor,
    rows: Tensor,
    run: Callable[[Tensor], Tensor],
    size: int,
    *,
    name: str,
    dtype: torch.dtype | None = None,
    product: bool = False,
) -> None:
    """Compare the first `size` rows of a text with those of its beginning, which is read alone.

    `text` are its tokens [1, T], `rows` [T, ...] what `run` gives for them, as [1, T, ...], in one pass. Numbers that
    are kept more finely than they are computed are compared in `dtype`. UsageError where they differ by more than
    rounding (`product`: that of `differs`): rows change with the tokens that follow them, or each time.
    """

    def first(rows: Tensor) -> Tensor:
        return rows[:size] if dtype is None else rows[:size].to(dtype)

    def apart(found: Tensor, expected: Tensor) -> bool:
        return differs(first(found), first(expected), product=product) is not None

    if not apart(run(text[:, :size])[0], rows):
        return
    # In one shape, kernels round alike.
    length = text.shape[1]
    other = torch.cat([text[:, :size], text[:, :1].expand(1, length - size)], dim=1)
    again = run(text)[0]
    if not apart(run(other)[0], again):
        return
    if apart(run(text)[0], again):
        raise unrepeatable(name, length)
    where = f"in a text of {length:,} tokens"
    raise UsageError(
        f"{name} is not a causal language model: a prediction depends on a later token {where}",
        expected="a model whose predictions depend on the tokens before them alone",
    )


def check_causal(model: nn.Module) -> None:
    """Look at the logits of a few tokens before a place, with what follows there and without."""
    # Of the same few ids: some of a vocabulary stand for images.
    config = unwrap(model).config.get_text_config()
    at_once = max(getattr(config, name, None) or 0 for name in _AT_ONCE)
    text = probe_tokens(model)[:1].repeat(1, 3 + at_once // 6)[:, : max_positions(model)]
    run, name = partial(all_logits, model), f"a {type(unwrap(model)).__name__}"
    dtype = torch.bfloat16 if rounds_together(model) else next(model.parameters()).dtype
    for place in {1, text.shape[1] - 1} - {0}:
        check_blind(text, run(text)[0], run, place, name=name, dtype=dtype, product=True)


def check_default_positions(model: nn.Module) -> None:
    """Texts are read here at positions that are given, and elsewhere often at those that the model counts itself."""
    ids, what = probe_tokens(model), f"a {type(unwrap(model)).__name__}"
    own = all_logits(model, ids)
    if differs(all_logits(model, **view_arguments(model, ids, whole=True)), own, product=True):
        if differs(all_logits(model, ids), own, product=True):
            raise unrepeatable(what, ids.shape[1])
        raise UsageError(
            f"{what} gives other logits at the positions 0, 1, ... than without positions",
            expected="a model that counts positions from 0, or from behind those of padding in its table",
        )


_TOGETHER: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def rounds_together(model: nn.Module) -> bool:
    """Whether products are rounded by scales, or outliers, of all tokens that are read at once (LLM.int8).

    Proven on each quantized model, in evaluation mode: every innermost module is called again in a pass over two
    short sequences, with the second a hundred times as large, and must give the same of the first.
    """
    base: Any = unwrap(model)
    if getattr(base, "hf_quantizer", None) is None:
        return False
    if base in _TOGETHER:
        return _TOGETHER[base]
    called, moved = set[nn.Module](), list[bool]()

    def call_again(module: nn.Module, given: tuple[Any, ...], more: dict[str, Any], found: Any) -> None:
        inner = called.isdisjoint(module.modules())
        called.add(module)
        rows = given[0] if given else None
        if not (
            inner and isinstance(rows, Tensor) and isinstance(found, Tensor) and rows.dtype.is_floating_point
        ):
            return
        half = len(rows) // 2
        if half and rows.shape[:-1] == found.shape[:-1]:
            other = torch.cat([rows[:half], 100 * rows[half:]])
            same = at_least_float32(found[:half])
            apart = at_least_float32(module(other, *given[1:], **more)[:half]) - same
            # NaN is no less.
            moved.append(not apart.abs().sum() <= _MOVED * same.abs().sum())

    hooks = [each.register_forward_hook(call_again, with_kwargs=True) for each in base.modules()]
    try:
        with torch.no_grad():
            all_logits(base, probe_tokens(base))
    finally:
        for hook in hooks:
            hook.remove()
    return _TOGETHER.setdefault(base, any(moved))


def all_logits(model: nn.Module, input_ids: Tensor, **more: Tensor) -> Tensor:
    """The model's own, in a forward pass without a cache. UsageError where its code fails or gives others."""
    name = f"a {type(unwrap(model)).__name__}"
    with running(name, input_ids.shape[1]):
        logits = model(input_ids=input_ids, **more, **accepted(model, use_cache=False)).logits
    if logits.shape[:2] != input_ids.shape:
        raise UsageError(
            f"{name} gives logits of the shape {list(logits.shape)} for {list(input_ids.shape)} tokens",
            expected="a causal language model, which gives logits for every token",
        )
    return logits


def gives_numbers(model: nn.Module) -> bool:
    """Whether the logits of a few random tokens are numbers, or minus infinity, which bans a token."""
    with torch.no_grad():
        logits = all_logits(model, probe_tokens(model))
    return not bool((logits.isnan() | logits.isposinf()).any())


def unrepeatable(what: str, tokens: int) -> UsageError:
    """What is said of a model that does not say the same of the same tokens, so many of them."""
    return UsageError(f"{what} gives other numbers each time that it reads the same {tokens:,} tokens")


def probe_tokens(model: nn.Module) -> Tensor:
    """Two short sequences of random token ids, the same at each call, on the model's device."""
    embedding = unwrap(model).get_input_embeddings()
    assert isinstance(embedding.weight, Tensor)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(embedding.weight.shape[0], (2, 6), generator=generator).to(device_of(embedding))


def at_least_float32(tensor: Tensor) -> Tensor:
    """In float64 if it is, else in float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
