"""A transformers model inside its wrappers; its final hidden states, from which the head computes."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.checkpoints.position_modules import position_tables
from lengthwise.errors import LengthwiseError, UsageError, is_bug, is_out_of_memory, reason

if TYPE_CHECKING:
    from peft import PeftModel


@contextlib.contextmanager
def running(
    name: str,
    tokens: int,
    *,
    through: str = "",
    expected: str = "settings with which transformers runs the model",
    fix: str | None = "compare its config.json with its authors', name another dtype, or leave out quantize",
) -> Iterator[None]:
    """A forward pass over so many tokens. UsageError where the code of the model fails, as by untried settings."""
    try:
        yield
    except Exception as error:
        if isinstance(error, LengthwiseError) or is_out_of_memory(error) or is_bug(error):
            raise
        problem = f"{name} cannot read {tokens:,} tokens{through}: {reason(error)}"
        raise UsageError(problem, expected=expected, fix=fix) from error


def unwrap(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside DDP, FSDP, torch.compile and PEFT wrappers; UsageError if there is none.

    PEFT's layers stay where they are; only the outer shell is removed.
    """
    return shells_of(model)[-1]


def shells_of(model: nn.Module) -> list[Any]:
    """The model, the content of each of its wrappers, and last the transformers model."""
    shells = [model]
    while not isinstance(model, PreTrainedModel):
        if is_peft_model(model):
            inner = model.get_base_model()
        else:
            # torch.compile keeps the model under the first name, DDP and FSDP under the second.
            inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            raise UsageError(f"a {type(model).__name__} is not a transformers model, bare or wrapped")
        model = inner
        shells.append(model)
    return shells


def is_peft_model(model: nn.Module) -> TypeGuard[PeftModel]:
    """Whether PEFT wraps this model. PEFT is not imported for it, which takes longer than torch with bitsandbytes."""
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def unwrap_saved(module: Any) -> Any:
    """The active layer inside PEFT's `modules_to_save`; any other module as it is."""
    peft = sys.modules.get("peft.utils.other")
    if peft is None or not isinstance(module, peft.ModulesToSaveWrapper):
        return module
    if module.disable_adapters or not module.active_adapters:
        return module.original_module
    return module.modules_to_save[module.active_adapters[0]]


def parameter_counts(model: Any) -> tuple[int, int]:
    """How many parameters a model has, and how many of them are trained; of 4 bits, two are kept in a byte."""
    sizes = [
        (math.prod(packed.shape) if (packed := getattr(each, "quant_state", None)) else each.numel(), each)
        for each in model.parameters()
    ]
    return sum(size for size, _ in sizes), sum(size for size, each in sizes if each.requires_grad)


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile runs the model as a whole (single layers may be compiled)."""
    return any(map(runs_compiled, (*shells_of(model), decoder_of(model))))


def has_compiled_part(model: nn.Module) -> bool:
    """Whether torch.compile runs the model or any part of it."""
    return any(map(runs_compiled, model.modules()))


def runs_compiled(module: nn.Module) -> bool:
    """Whether torch.compile runs this module."""
    return module._compiled_call_impl is not None or hasattr(module, "_orig_mod")


def decoder_of(model: nn.Module) -> nn.Module:
    """The module whose output is the final hidden states; UsageError if the model has no such part."""
    base = unwrap(model)
    # transformers takes what has a likely name: that may be the output layer (ModernBERT), or there is none, and it
    # gives the model itself (Llama 4, whose prefix is not the name of its part).
    none = base, base.get_output_embeddings()
    for found in (base.get_decoder(), base.base_model, getattr(base, "model", None)):
        if isinstance(found, nn.Module) and not any(found is each for each in none):
            return found
    raise UsageError(f"a {type(base).__name__} is not a transformers causal language model")


def _last_hidden_states(decoder: nn.Module, output: Any) -> Tensor:
    if isinstance(output, Mapping) and "last_hidden_state" in output:
        return output["last_hidden_state"]
    raise UsageError(
        f"the {type(decoder).__name__} gives no final hidden states",
        expected="a decoder whose output has a last_hidden_state",
    )


@contextlib.contextmanager
def capture_hidden_states(
    model: nn.Module, *, passed_on: Callable[[Tensor], Tensor] | None = None
) -> Iterator[list[Tensor]]:
    """Keep the final hidden states [B, T, d] of every forward pass made inside, with their graph.

    A hook on the decoder keeps its output. The model runs through all of its wrappers, so DDP's reducer, autocast and
    PEFT apply.

    Args:
        model: the model, wrapped or not.
        passed_on: if given, the rest of the model sees `passed_on(hidden_states)`, the caller all of them. Not for a
            model that torch.compile runs.

    Raises:
        UsageError: the model was compiled and run before, and its compiled code ignores the hook.
    """
    captured: list[Tensor] = []
    if passed_on is None and is_compiled(model):
        tap = tap_of(model)
        tap.append(captured)
        try:
            yield captured
        finally:
            tap.clear()
        if not captured:
            raise UsageError(
                "the compiled model gave no hidden states: it first ran before lengthwise prepared it",
                expected="a model that lengthwise runs first, or one that is not compiled",
                fix="call find_head(model) before its first run, or torch.compiler.reset() before this call",
            )
        return

    def hook(module: nn.Module, _inputs: Any, output: Any) -> Any:
        captured.append(_last_hidden_states(module, output))
        if passed_on is not None:
            output["last_hidden_state"] = passed_on(captured[-1])
        return output

    handle = decoder_of(model).register_forward_hook(hook)
    try:
        yield captured
    finally:
        handle.remove()


_TAPS: weakref.WeakKeyDictionary[nn.Module, list[list[Tensor]]] = weakref.WeakKeyDictionary()


def tap_of(model: nn.Module) -> list[list[Tensor]]:
    """The lists that the permanent hook on a compiled model's decoder fills; installed at the first call.

    torch.compile assumes that hooks do not change after it compiles. So this one stays, and is compiled with the
    model, without a graph break.
    """
    decoder = decoder_of(model)
    if decoder not in _TAPS:
        tap = _TAPS[decoder] = list[list[Tensor]]()

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for captured in tap:
                captured.append(output["last_hidden_state"])

        decoder.register_forward_hook(hook)
    return _TAPS[decoder]


def accepted(model: nn.Module, **arguments: Any) -> dict[str, Any]:
    """The arguments that the model's forward pass has by name."""
    parameters = inspect.signature(unwrap(model).forward).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


_CACHE_NAMES = "cache", "past_key_values"
"""What a forward pass calls its key-value cache, as argument and in its output: since transformers 5.24, before."""


def cache_argument(model: nn.Module) -> str | None:
    """The argument of the model's forward pass that takes a key-value cache; None if it takes none."""
    return next(iter(accepted(model, **dict.fromkeys(_CACHE_NAMES))), None)


def cache_among(values: Any) -> Any:
    """The key-value cache among the arguments or in the output of a forward pass; None if there is none."""
    if not isinstance(values, Mapping):
        return None
    return next((value for name, value in values.items() if name in _CACHE_NAMES and value is not None), None)


def view_arguments(
    model: nn.Module,
    input_ids: Tensor,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    *,
    whole: bool = False,
) -> dict[str, Tensor]:
    """The tensors of one forward pass over tokens [B, T].

    Position ids always travel with an attention mask: without one, transformers takes every step other
    than +1 for the border of packed documents and silently cuts attention there.

    `whole` texts are given the positions 0, 1, ... where the forward pass takes any; they are otherwise left to the
    model. Their steps are all +1, and a mask of ones would make kernels slower.
    """
    if position_ids is not None and attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    arguments = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
    if whole:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device) + first_position(model)
        arguments |= accepted(model, position_ids=positions.expand_as(input_ids))
    return {name: value for name, value in arguments.items() if value is not None}


_FIRST: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def first_position(model: nn.Module) -> int:
    """The position of a text's first token: 0, but where a table of positions begins with padding (RoBERTa)."""
    base = unwrap(model)
    if base not in _FIRST:
        padding = [-1 if table.padding_idx is None else table.padding_idx for table in position_tables(base)]
        _FIRST[base] = max(padding, default=-1) + 1
    return _FIRST[base]


def additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """`allowed` [N, K] as an attention mask [1, 1, N, K] that every attention takes; eager takes no other."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min)[None, None]


def final_hidden_states(model: nn.Module, input_ids: Tensor, **views: Any) -> Tensor:
    """Run the model and return its final hidden states [B, T, d], with gradients if they are enabled.

    `views` are the other arguments of `view_arguments`.
    """
    return final_states_and_output(model, input_ids, **views)[0]


def final_states_and_output(model: nn.Module, input_ids: Tensor, **views: Any) -> tuple[Tensor, Any]:
    """As `final_hidden_states`, and the output of the forward pass, as `hidden_states_and_output`."""
    arguments = view_arguments(model, input_ids, **views)
    hidden, output = hidden_states_and_output(model, **arguments, **accepted(model, use_cache=False))
    _gather_again(model)
    if hidden.shape[:2] != input_ids.shape:
        raise UsageError(
            f"the model gives {hidden.shape[1]} positions for {input_ids.shape[1]} tokens",
            expected="one hidden state for each token (prompt tuning, which adds tokens, is not supported)",
        )
    return hidden, output


def hidden_states_and_output(model: nn.Module, **arguments: Any) -> tuple[Tensor, Any]:
    """The final hidden states of one forward pass, and its output, with logits of the last position alone.

    One position rather than none, so that the output still depends on every parameter, which DDP looks at.

    A frozen head reads this position from memory of its own. For a part of a greater tensor, torch multiplies row by
    row if the weight has no gradient: 0.3 s of a CPU for each row of a batch in bfloat16, where one product of all
    rows takes 0.01 s.
    """
    head = unwrap(model).get_output_embeddings()
    frozen = isinstance(head, nn.Module) and not any(p.requires_grad for p in head.parameters())
    passed_on = _last_position if frozen and not is_compiled(model) else None
    with capture_hidden_states(model, passed_on=passed_on) as captured:
        output = model(**arguments, **accepted(model, logits_to_keep=1))
    [hidden] = captured
    return hidden, output


def _last_position(hidden: Tensor) -> Tensor:
    return hidden[:, -1:].clone(memory_format=torch.contiguous_format)


def _gather_again(model: nn.Module) -> None:
    """Make FSDP2 keep the parameters after the decoder unsharded until the backward pass or the next pass ends.

    The loss needs the head, in the dtype of the products. FSDP2 would gather freed parameters again only in the
    backward pass of the model's own output, which such a loss does not use. UsageError for a model in FSDP1.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    head = unwrap(model).get_output_embeddings()
    modules: list[Any] = [*shells_of(model), *(head.modules() if isinstance(head, nn.Module) else ())]
    for module in modules:
        if isinstance(module, fsdp.FullyShardedDataParallel):
            raise UsageError(
                "FSDP1 does not pass the gradient of the output head back to its shards",
                expected="FSDP2 (fully_shard), DDP, or one process",
            )
        if isinstance(module, fsdp.FSDPModule):
            module.unshard()
