"""Final hidden states, from which the output head computes the logits."""

from __future__ import annotations

import contextlib
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.errors import UsageError

if TYPE_CHECKING:
    from peft import PeftModel


class CapturedHiddenStates:
    """Filled by one forward pass inside `capture_hidden_states`."""

    def __init__(self) -> None:
        self._passes: list[Tensor] = []

    @property
    def hidden_states(self) -> Tensor:
        """The final hidden states [B, T, d] of the one forward pass, with their graph.

        Raises:
            UsageError: the model was compiled and run before, and its compiled code ignores the hook.
        """
        if not self._passes:
            raise UsageError(
                "the compiled model gave no hidden states: it first ran before lengthwise prepared it",
                expected="a model that lengthwise runs first, or one that is not compiled",
                fix="call find_head(model) before its first run, or torch.compiler.reset() before this call",
            )
        assert len(self._passes) == 1, f"{len(self._passes)} forward passes, expected one"
        return self._passes[0]

    def add(self, hidden_states: Tensor) -> None:
        """Keep one pass."""
        self._passes.append(hidden_states)


def unwrap(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside DDP, FSDP, torch.compile and PEFT wrappers.

    PEFT's layers stay where they are; only the outer shell is removed.

    Raises:
        UsageError: there is none.
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
            raise UsageError(
                f"a {type(model).__name__} is not a transformers model",
                expected="a transformers causal language model, bare or wrapped",
            )
        model = inner
        shells.append(model)
    return shells


def is_peft_model(model: nn.Module) -> TypeGuard[PeftModel]:
    """Whether PEFT wraps this model. PEFT is not imported for it, which takes longer than torch with bitsandbytes."""
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def is_fsdp2(module: nn.Module) -> bool:
    """Whether FSDP2 (`fully_shard`) manages the parameters of this module."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def runnable(model: nn.Module) -> nn.Module:
    """The model without wrappers, which may wait for other processes, as far as it still runs.

    That is the transformers model, or the outermost FSDP2 module around it, which alone gathers parameters.
    """
    return next((shell for shell in shells_of(model) if is_fsdp2(shell)), unwrap(model))


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put the modules that train into evaluation mode, and back at the end."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextlib.contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Run a model without its compiled code, which ignores hooks that are added later.

    Compiled code that exists is neither dropped nor added to.
    """
    compiled = has_compiled_code(model)
    with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
        yield


def has_compiled_code(model: nn.Module) -> bool:
    """Whether torch.compile runs the model or any part of it."""
    return any(
        module._compiled_call_impl is not None or hasattr(module, "_orig_mod") for module in model.modules()
    )


def is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile runs the model as a whole (single blocks may be compiled)."""
    return any(
        shell._compiled_call_impl is not None or hasattr(shell, "_orig_mod")
        for shell in (*shells_of(model), decoder_of(model))
    )


def decoder_of(model: nn.Module) -> nn.Module:
    """The module whose output is the final hidden states.

    Raises:
        UsageError: the model has no such part.
    """
    base = unwrap(model)
    decoder = base.get_decoder()
    if decoder is base:
        raise UsageError(
            f"no decoder is found in a {type(base).__name__}",
            expected="a transformers causal language model",
        )
    return decoder


@contextlib.contextmanager
def capture_hidden_states(
    model: nn.Module, *, passed_on: Callable[[Tensor], Tensor] | None = None
) -> Iterator[CapturedHiddenStates]:
    """Keep the final hidden states of the forward pass made inside.

    A hook on the decoder keeps its output, with gradients. The model runs through all of its wrappers, so DDP's
    reducer, autocast and PEFT apply.

    Args:
        model: the model, wrapped or not.
        passed_on: if given, the rest of the model sees `passed_on(hidden_states)`, the caller all of them. Not for a
            model that torch.compile runs.
    """
    captured = CapturedHiddenStates()
    if passed_on is None and is_compiled(model):
        tap = tap_of(model)
        tap.append(captured)
        try:
            yield captured
        finally:
            tap.clear()
        return

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        hidden = output if isinstance(output, Tensor) else output[0]
        captured.add(hidden)
        if passed_on is None:
            return None
        rest = passed_on(hidden)
        if isinstance(output, Tensor):
            return rest
        if isinstance(output, tuple):
            return (rest, *output[1:])
        output["last_hidden_state"] = rest
        return output

    handle = decoder_of(model).register_forward_hook(hook)
    try:
        yield captured
    finally:
        handle.remove()


def passed_to_head(model: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What a frozen head reads instead of all hidden states: the last position, in memory of its own; else None.

    For a part of a greater tensor, torch multiplies row by row if the weight has no gradient: 0.3 s of a CPU for each
    row of a batch in bfloat16, where one product of all rows takes 0.01 s.
    """
    head = unwrap(model).get_output_embeddings()
    if (
        is_compiled(model)
        or not isinstance(head, nn.Module)
        or any(p.requires_grad for p in head.parameters())
    ):
        return None
    return lambda hidden: hidden[:, -1:].clone(memory_format=torch.contiguous_format)


_TAPS: weakref.WeakKeyDictionary[nn.Module, list[CapturedHiddenStates]] = weakref.WeakKeyDictionary()


def tap_of(model: nn.Module) -> list[CapturedHiddenStates]:
    """What the permanent hook on a compiled model's decoder fills, if anything; installed at the first call.

    torch.compile assumes that hooks do not change after it compiles. So this one stays, and is compiled with the
    model, without a graph break.
    """
    decoder = decoder_of(model)
    if decoder not in _TAPS:
        tap = _TAPS[decoder] = list[CapturedHiddenStates]()

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for captured in tap:
                captured.add(output if isinstance(output, Tensor) else output[0])

        decoder.register_forward_hook(hook)
    return _TAPS[decoder]


def forward_arguments(model: nn.Module, *, last_logits_only: bool) -> dict[str, Any]:
    """Arguments that save work in a forward pass, as far as this model takes them.

    No key-value cache; and logits of the last position only. One position rather than none, so that the
    output still depends on every parameter, which DDP looks at.
    """
    parameters = inspect.signature(unwrap(model).forward).parameters
    arguments: dict[str, Any] = {}
    if "use_cache" in parameters:
        arguments["use_cache"] = False
    if last_logits_only and "logits_to_keep" in parameters:
        arguments["logits_to_keep"] = 1
    return arguments


def view_arguments(
    input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
) -> dict[str, Tensor]:
    """The tensors of one forward pass.

    Position ids always travel with an attention mask: without one, transformers takes every step other
    than +1 for the border of packed documents and silently cuts attention there.
    """
    arguments = {"input_ids": input_ids}
    if position_ids is not None:
        arguments["position_ids"] = position_ids
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
    if attention_mask is not None:
        arguments["attention_mask"] = attention_mask
    return arguments


def final_hidden_states(
    model: nn.Module,
    input_ids: Tensor,
    *,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Run the model and return its final hidden states [B, T, d], with gradients if they are enabled."""
    with capture_hidden_states(model, passed_on=passed_to_head(model)) as captured:
        model(
            **view_arguments(input_ids, position_ids, attention_mask),
            **forward_arguments(model, last_logits_only=True),
        )
    hidden = captured.hidden_states
    _gather_again(model)
    if hidden.shape[:2] != input_ids.shape:
        raise UsageError(
            f"the model gives {hidden.shape[1]} positions for {input_ids.shape[1]} tokens",
            expected="one hidden state for each token (prompt tuning, which adds tokens, is not supported)",
        )
    return hidden


def _gather_again(model: nn.Module) -> None:
    """Make FSDP2 keep the parameters after the decoder unsharded until the backward pass or the next pass ends.

    The loss needs the head, in the dtype of the products. FSDP2 would gather freed parameters again only in the
    backward pass of the model's own output, which such a loss does not use.

    Raises:
        UsageError: a model in FSDP1.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return
    base: Any = unwrap(model)
    head = base.get_output_embeddings()
    modules: list[Any] = [*shells_of(model), *(head.modules() if isinstance(head, nn.Module) else ())]
    for module in modules:
        if isinstance(module, fsdp.FullyShardedDataParallel):
            raise UsageError(
                "FSDP1 does not pass the gradient of the output head back to its shards",
                expected="FSDP2 (fully_shard), DDP, or one process",
            )
        if isinstance(module, fsdp.FSDPModule):
            module.unshard()


def full_logits(
    model: nn.Module,
    input_ids: Tensor,
    *,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Run the model and return its own logits [B, T, V]."""
    return model(
        **view_arguments(input_ids, position_ids, attention_mask),
        **forward_arguments(model, last_logits_only=False),
    ).logits
