"""The output head: found, proven against the model's own logits, and used chunk by chunk."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.checkpoints.hidden import (
    accepted,
    capture_hidden_states,
    final_states_and_output,
    has_compiled_part,
    is_compiled,
    shells_of,
    tap_of,
    unwrap,
    unwrap_saved,
    view_arguments,
)
from lengthwise.checkpoints.probe import (
    all_logits,
    at_least_float32,
    check_causal,
    check_default_positions,
    differs,
    probe_tokens,
)
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.machine import is_fsdp2, is_split, whole, whole_tensor

logger = logging.getLogger(__name__)

# Names of these settings in configurations. Whether a model obeys them is proven, not assumed.
_SCALES = ("logit_scale", "lm_head_multiplier")
_SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
# fp32 logits in one chunk. Above 32 MiB the C allocator of Linux maps and clears new memory for every
# temporary, which made the elementwise work per row four times as slow on a CPU.
CHUNK_BYTES = 16 * 2**20

# Elsewhere 16 MiB are computed in less time than kernels take to launch. No other size was tried on an H100.
_CHUNK_BYTES_ELSEWHERE = 256 * 2**20


@dataclass(frozen=True)
class Head:
    """A linear output head.

    logits = soft_cap * tanh(u / soft_cap), u = logit_scale * (h W^T + b); without a soft cap, u.
    `weight` and `bias` are read from the model each time, so they follow training, tying and moves between devices.
    Under FSDP2 they may be DTensors; `final_hidden_states` leaves them unsharded.
    """

    module: nn.Module
    logit_scale: float = 1.0
    soft_cap: float | None = None
    copy_of: nn.Module | None = None
    """The model's own layer, if `module` is a whole copy of it."""

    @property
    def weight(self) -> Tensor:
        """The output embedding [V, d]: the model's own parameter, not a copy."""
        return unwrap_saved(self.module).weight

    @property
    def bias(self) -> Tensor | None:
        """The bias [V] of the output embedding, if it has one."""
        return unwrap_saved(self.module).bias

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., d], in float32 (float64 for a float64 model)."""
        weight, bias = whole(self.weight), self.bias
        bias = None if bias is None else whole(bias)
        logits = at_least_float32(nn.functional.linear(hidden_states.to(weight.dtype), weight, bias))
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        if self.soft_cap is not None:
            logits = torch.tanh(logits / self.soft_cap) * self.soft_cap
        return logits


@dataclass(frozen=True)
class FullLogits:
    """Replaces a head that could not be proven: the "hidden states" are the model's full logits."""

    reason: str

    def logits(self, hidden_states: Tensor) -> Tensor:
        """The logits themselves, [..., V], in float32 (float64 for a float64 model)."""
        return at_least_float32(hidden_states)


def hidden_states_for(model: nn.Module, head: Head | FullLogits, input_ids: Tensor, **views: Any) -> Tensor:
    """What `head.logits` takes: final hidden states [B, T, d], or full logits [B, T, V] for FullLogits.

    `views` are the other arguments of `view_arguments`.

    Raises:
        UsageError: position ids for a model that would swallow them (BLOOM's forward takes any keyword); one row
            whose positions begin again, under FlashAttention; a head that the model no longer has.
    """
    return states_and_output(model, head, input_ids, **views)[0]


def states_and_output(
    model: nn.Module, head: Head | FullLogits, input_ids: Tensor, **views: Any
) -> tuple[Tensor, Any]:
    """As `hidden_states_for`, and the output of the forward pass, which has the logits of the last token."""
    if (position_ids := views.get("position_ids")) is not None:
        _check_positions(model, position_ids)
    if isinstance(head, Head):
        _check_still_its_own(model, head)
        return final_states_and_output(model, input_ids, **views)
    output = model(**view_arguments(model, input_ids, **views), **accepted(model, use_cache=False))
    return output.logits, output


def why_not(head: Head, hidden: Tensor, logits: Tensor) -> str | None:
    """Why `head` does not give the model's own logits [..., V] of hidden states [..., d]; None if it does."""
    ours = head.logits(hidden.to(head.weight.device)).to(logits.device)
    if ours.shape != logits.shape:
        return f"the head gives {tuple(ours.shape)} logits, the model {tuple(logits.shape)}"
    return f"head and model differ {by}" if (by := differs(ours, logits, product=True)) else None


def _check_still_its_own(model: nn.Module, head: Head) -> None:
    """Refuse the head of another model, or of this one before an adapter, a resize or a copy replaced it."""
    now = unwrap_saved(unwrap(model).get_output_embeddings())
    if now is not unwrap_saved(head.copy_of or head.module):
        raise UsageError(
            f"the head is not the output layer that this {type(unwrap(model)).__name__} has now",
            expected="what find_head gave for the model as it is",
            fix="call find_head(model) again after adding an adapter, resizing the vocabulary or copying the model",
        )


def _check_positions(model: nn.Module, position_ids: Tensor) -> None:
    base: Any = unwrap(model)
    if not accepted(model, position_ids=position_ids):
        raise UsageError(
            f"{type(base).__name__} takes no position ids",
            expected="a model with rotary or learned positions, or views at positions 0 .. L-1",
        )
    # transformers gives FlashAttention a single row as packed texts, each of which begins at its lowest position.
    flash = "flash" in (base.config._attn_implementation or "")
    if flash and len(position_ids) == 1 and position_ids[0, 0] != position_ids.min():
        raise UsageError(
            "FlashAttention would read a single row whose positions begin again as two texts",
            expected='more than one row in a forward pass, or a model loaded with attn_implementation="sdpa"',
        )


def find_head(model: nn.Module) -> Head | FullLogits:
    """Find the output head and prove on a few random tokens that it gives the model's own logits.

    Scale and soft cap are read from the configuration. The proof compares all logits of two short sequences,
    with the hidden states as they are and eight times larger, which exposes a saturating function on the logits.
    A head that cannot be proven is not used: the result is then `FullLogits` with the reason, which is also logged.

    Raises:
        UsageError: the model is not causal (a prediction depends on a later token).
    """
    base = unwrap(model)
    if is_compiled(model):
        tap_of(model)
    # Compiled code ignores hooks that are added later.
    eager = torch.compiler.set_stance("force_eager") if has_compiled_part(model) else contextlib.nullcontext()
    # Without wrappers, which may wait for other processes; but an FSDP2 module alone gathers its parameters.
    run = next((shell for shell in shells_of(model) if is_fsdp2(shell)), base)
    training = [module for module in base.modules() if module.training]
    try:
        base.eval()
        with eager, torch.no_grad():
            check_causal(run)
            check_default_positions(run)
            found = _candidate(base)
            why_not = found if isinstance(found, str) else _refute(run, found)
    finally:
        for module in training:
            module.training = True
    if isinstance(found, Head) and why_not is None:
        return found
    logger.warning("%s: full logits are used (slower, more memory): %s", type(base).__name__, why_not)
    return FullLogits(str(why_not))


def _candidate(base: PreTrainedModel) -> Head | str:
    """The head that the configuration describes, or why it is none."""
    module = base.get_output_embeddings()
    if not isinstance(module, nn.Module):
        return "the model names no output embedding"
    own = unwrap_saved(module)
    kind = _own_class(own)
    # Exactly nn.Linear: a subclass or an adapter layer (quantised, LoRA) computes something else, and an adapter
    # that starts at zero would pass the proof now and fail it after the first training step.
    if kind is not nn.Linear:
        return f"the output head is a {kind.__name__}, not a plain linear layer"
    config: Any = base.config.get_text_config()
    # MPT's may be words, which transformers does not read.
    given = [getattr(config, name, None) for name in _SCALES]
    scale = math.prod(each or 1.0 for each in given if not isinstance(each, str))
    divisor = getattr(config, "logits_scaling", None) or 1.0
    soft_cap = next((cap for name in _SOFT_CAPS if (cap := getattr(config, name, None))), None)
    held = _resident(own)
    own_layer = (module, None) if held is own else (held, module)
    soft_cap = None if soft_cap is None else float(soft_cap)
    return Head(own_layer[0], float(scale / divisor), soft_cap, copy_of=own_layer[1])


def _refute(model: nn.Module, head: Head) -> str | None:
    """Why `head` does not give the model's logits; None if it does."""
    input_ids = probe_tokens(model)
    for factor in (1.0, 8.0):
        try:
            with capture_hidden_states(model, passed_on=lambda hidden, by=factor: hidden * by) as captured:
                logits = all_logits(model, input_ids)
        except UsageError as error:
            return error.problem
        if len(captured) != 1:
            return f"its decoder runs {len(captured)} times in a forward pass"
        if not logits.isfinite().all():
            return "the model's own logits are not all finite"
        if (reason := why_not(head, captured[0] * factor, logits)) is not None:
            return reason
    return None


def _own_class(module: nn.Module) -> type:
    """The class of the module before FSDP2 replaced it."""
    kind = type(module)
    return kind.__mro__[2] if is_fsdp2(module) else kind


def _resident(linear: nn.Linear) -> nn.Linear:
    """The layer with its whole weight on the device where it computes.

    A copy if the weight is offloaded or split over processes, so that it is not fetched again for every few rows.
    """
    if not linear.weight.is_meta and not is_split(linear.weight):
        return linear
    whole = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
    for name, parameter in linear.named_parameters():
        value = whole_tensor(linear, name, parameter).detach()
        setattr(whole, name, nn.Parameter(value, requires_grad=False))
    return whole


class NonFiniteLogits(LengthwiseError):
    """Logits that are NaN or infinite.

    Attributes:
        position: row or token position, counted from where the code that raised it began.
        model: the model's name, once it is known.
        text: the text in words, once it is known.
        view: which of several views that were read together, where the code that raised it knows.
    """

    def __init__(
        self, position: int, *, model: str | None = None, text: str | None = None, view: int | None = None
    ) -> None:
        self.position, self.model, self.text, self.view = position, model, text, view
        where = f"at position {position}" + (f" of {text}" if text else "")
        super().__init__(
            f"{model or 'the model'} gives logits that are NaN or infinite {where}",
            expected="finite logits",
            fix="check the weights; those of 16 bits may overflow: load them with dtype float32",
        )


def require_finite(scores: Tensor, first: int = 0) -> None:
    """Raise NonFiniteLogits with the first row of `scores` [N, ...] that holds NaN or an infinity, after `first`."""
    finite = scores.isfinite().flatten(1).all(dim=1) if scores.ndim > 1 else scores.isfinite()
    if not bool(finite.all()):
        raise NonFiniteLogits(first + int((~finite).nonzero()[0, 0]))


@contextlib.contextmanager
def locating_bad_logits(first: int = 0, *, view: int | None = None) -> Iterator[None]:
    """Let the position of a `NonFiniteLogits` raised inside count from `first` rows before, in this `view`."""
    try:
        yield
    except NonFiniteLogits as error:
        raise NonFiniteLogits(first + error.position, view=error.view if view is None else view) from error


def chunk_rows(vocabulary: int, device: torch.device | None = None) -> int:
    """Rows whose fp32 logits fit in the chunk of a device (None: a CPU), at least 1."""
    on_cpu = device is None or device.type == "cpu"
    return max(1, (CHUNK_BYTES if on_cpu else _CHUNK_BYTES_ELSEWHERE) // (4 * vocabulary))
