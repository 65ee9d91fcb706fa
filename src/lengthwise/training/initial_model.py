"""The model as it was before training: a frozen teacher, and the reference of a budget."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.alignment.tile import sum_dtype
from lengthwise.errors import UsageError
from lengthwise.models.extension import before_extension
from lengthwise.models.head import TOLERANCE, FullLogits, Head, hidden_states_for, probe_tokens
from lengthwise.models.hidden import (
    evaluation_mode,
    forward_arguments,
    is_peft_model,
    runnable,
    shells_of,
    uncompiled,
    unwrap,
)
from lengthwise.models.local_positions import local_positions
from lengthwise.models.losses import chunks

logger = logging.getLogger(__name__)

_NO_ADAPTER = "it has no adapter"


class InitialModel:
    """The model as it was before training: frozen, in eval mode, at the positions that it had before `extend`.

        initial = InitialModel(model, find_head(model))
        with initial.active(model) as original:
            hidden = hidden_states_for(original, initial.head, input_ids)

    The logits equal, to the bit, those of the untouched model, on its original rope and without scaled queries.
    So feed it positions within its original length. A model that was *loaded* extended keeps its extension.

    An adapter of PEFT is switched off, and `modules_to_save` and trained tokens give way to the original ones: no
    second copy. That is right only if the adapter holds everything that is trained and changes no prediction at
    the start, which is checked with two forward passes of a few tokens. It does not hold without an adapter, for
    an adapter that was trained before or that starts from the weights (PiSSA, OLoRA), with trained biases or
    unfrozen weights. Then the model is copied, which takes `bytes` more in each process; with an adapter the
    reason is logged.

    Make it after `extend` and the adapter, before the first step, before a checkpoint is loaded into the model (a
    Trainer does that in `train`), and before accelerate, DDP or FSDP2 prepares a model that has to be copied.
    Parts in float32 beside a bfloat16 base may need autocast, as in `find_head`.

    Args:
        model: a transformers causal LM with its adapter, bare or wrapped.
        head: what `find_head(model)` found.

    Attributes:
        head: the head of the initial model, for its hidden states. Use it inside `active`: outside, an adapter's
            trained head (`modules_to_save`) takes its place. A weight that was read inside stays the initial one.
        own_head: whether that head has weights of its own: of a copy, or of an adapter that trains the head. Then the
            head of the trained model does not give the initial model's logits.
        reason: why the model was copied; None if its adapter is switched off.

    Raises:
        UsageError: the model has to be copied, and its weights are sharded or not loaded.
    """

    def __init__(self, model: nn.Module, head: Head | FullLogits) -> None:
        self.head = head
        self.reason = _obstacle(model)
        self._copy: nn.Module | None = None
        base = unwrap(model)
        self.own_head = self.reason is not None
        if self.reason is None:
            if isinstance(head, Head):
                trained = head.weight
                with _switched_off(_adapter_layers(base)):
                    self.own_head = head.weight is not trained
            return
        if any(p.is_meta or hasattr(p, "full_tensor") for p in base.parameters()):
            raise UsageError(
                f"the initial model has to be copied ({self.reason}), and its weights are sharded or not loaded",
                expected="InitialModel before FSDP2 prepares the model, or an adapter that can be switched off",
            )
        self._copy = copy.deepcopy(base).requires_grad_(False).eval()
        if isinstance(head, Head):
            self.head = replace(head, module=unwrap(self._copy).get_output_embeddings())
        if self.reason != _NO_ADAPTER:
            logger.warning("The initial model takes %d MB more: %s", self.bytes // 10**6, self.reason)

    @property
    def bytes(self) -> int:
        """Memory of the copy, weights and buffers; 0 if there is none."""
        return 0 if self._copy is None else copied_bytes(self._copy)

    @contextlib.contextmanager
    def active(self, model: nn.Module, *, extended: bool = False) -> Iterator[nn.Module]:
        """The initial model, for forward passes without gradients, on the device of `model`.

        Inside, `model` itself may be switched to its initial state, so run what is given and no other pass of
        `model`. Outside everything is as before, also after an error: weights, modes, `requires_grad`, positions,
        compiled code, random numbers. It may be used between a forward pass of `model` and its backward pass. The
        given model is bare, so DDP takes no notice; under FSDP2 all processes have to make the pass. What
        torch.compile runs is run without it. Run it under the same autocast as the model.

        Args:
            model: the model that is trained, wrapped or not.
            extended: keep the extension and scaled queries, as they were before the first step. That is where
                training starts, and what to compare with beyond the original length.
        """
        base = unwrap(model)
        if self._copy is None:
            run, off = runnable(model), _adapter_layers(base)
        else:
            device = next(base.parameters()).device
            if next(self._copy.parameters()).device != device:
                self._copy.to(device)
            run, off = self._copy, []
        with (
            _switched_off(off),
            contextlib.nullcontext() if extended else before_extension(run),
            evaluation_mode(run),
            uncompiled(run),
            torch.no_grad(),
        ):
            yield run


def copied_bytes(model: nn.Module) -> int:
    """Memory of a copy of the model: weights and buffers, each counted once."""
    return sum(p.nbytes for p in model.parameters()) + sum(buffer.nbytes for buffer in model.buffers())


@torch.no_grad()
def summed_cross_entropy(
    head: Head | FullLogits, hidden: Tensor, labels: Tensor, *, ignore_index: int = -100
) -> Tensor:
    """Sum of -log p(label) over the rows with a label: a scalar in nats without gradient, in `sum_dtype`.

    Holds the logits of some rows at a time.

    Args:
        head: the head of the hidden states' model.
        hidden: what `hidden_states_for` gives, [B, T, d].
        labels: [B, T], aligned with the rows, `ignore_index` where a row has none.
        ignore_index: the label of rows without a cross entropy.
    """
    labelled = labels != ignore_index
    rows, targets = hidden[labelled], labels[labelled]
    vocabulary = head.weight.shape[0] if isinstance(head, Head) else hidden.shape[-1]
    wide = sum_dtype(hidden.device)
    total = torch.zeros((), dtype=wide, device=hidden.device)
    for some in chunks(len(rows), vocabulary):
        total += nn.functional.cross_entropy(head.logits(rows[some]), targets[some], reduction="sum").to(wide)
    return total


def initial_cross_entropy(
    original: nn.Module,
    head: Head | FullLogits,
    input_ids: Tensor,
    labels: Tensor,
    *,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """`summed_cross_entropy` of the initial model on rows [B, T]: one forward pass, no full logits with a proven
    head.

    Divide the sum over micro-batches and processes by the label tokens of the whole step.

    Args:
        original: what `InitialModel.active` gave.
        head: `InitialModel.head`.
        input_ids, labels: [B, T], labels aligned with the rows.
        position_ids, attention_mask: [B, T], passed to the model as in `model_alignment_loss`.
        ignore_index: the label of rows without a cross entropy.
    """
    with local_positions(original, position_ids):
        hidden = hidden_states_for(
            original, head, input_ids, position_ids=position_ids, attention_mask=attention_mask
        )
    return summed_cross_entropy(head, hidden, labels, ignore_index=ignore_index)


def _adapter_layers(base: nn.Module) -> list[Any]:
    """Everything in the model that PEFT can switch off."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    return [m for m in base.modules() if isinstance(m, (BaseTunerLayer, AuxiliaryTrainingWrapper))]


@contextlib.contextmanager
def _switched_off(layers: Sequence[Any]) -> Iterator[None]:
    """Switch adapter layers off, and back to what they were.

    Only the flag that their forward pass reads: PEFT's `enable_adapters` also decides which weights are trained.
    """
    before = [layer._disable_adapters for layer in layers]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer, disabled in zip(layers, before, strict=True):
            layer._disable_adapters = disabled


def _obstacle(model: nn.Module) -> str | None:
    """Why switching the adapter off does not give the initial model; None if it does."""
    return obstacle_in_structure(model) or _obstacle_in_logits(model)


def obstacle_in_structure(model: nn.Module) -> str | None:
    """The same as far as it shows without weights. Left out is an adapter that changes the logits from the start."""
    layers = _adapter_layers(unwrap(model))
    if not layers:
        adapted = any(is_peft_model(shell) for shell in shells_of(model))
        return "its kind of adapter cannot be switched off" if adapted else _NO_ADAPTER
    from peft.tuners.tuners_utils import BaseTunerLayer

    held = {id(p) for layer in layers for p in layer.parameters()}
    originals = [
        layer.get_base_layer() if isinstance(layer, BaseTunerLayer) else layer.original_module
        for layer in layers
    ]
    kept = {id(p) for original in originals for p in original.parameters()}
    outside = [
        name
        for name, p in shells_of(model)[0].named_parameters()
        if p.requires_grad and (id(p) not in held or id(p) in kept)
    ]
    if outside:
        return f"{len(outside)} trained tensors are outside of its adapter, such as {outside[0]}"
    return None


def _obstacle_in_logits(model: nn.Module) -> str | None:
    layers = _adapter_layers(unwrap(model))
    run, input_ids = runnable(model), probe_tokens(model)
    arguments = forward_arguments(model, last_logits_only=False)
    with evaluation_mode(run), uncompiled(run), torch.no_grad():
        adapted = run(input_ids=input_ids, **arguments).logits
        with _switched_off(layers):
            plain = run(input_ids=input_ids, **arguments).logits
    difference = (adapted - plain).abs().max().item()
    allowed = TOLERANCE.get(plain.dtype, 1e-4) * plain.abs().max().item()
    # Negated, so that NaN is a difference.
    if not difference <= allowed:
        return f"its adapter changes the logits by {difference:.3g} before training"
    return None
