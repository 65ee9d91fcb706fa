"""What the objective accepts: one place, so that the fused and the plain form refuse the same things."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lengthwise.alignment.divergences import Objective, is_number
from lengthwise.alignment.fused_head import is_sharded
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.errors import UsageError


def check_calculable(hidden: Tensor, *others: Tensor | None) -> None:
    """Refuse tensors without numbers, and to be differentiated in ways other than one backward pass."""
    if hidden.is_meta:
        raise UsageError(
            "hidden_long is on the meta device, where it holds no numbers", expected="a real one"
        )
    fix = "use alignment_loss_from_logits, which is made of ordinary operations"
    if torch._C._are_functorch_transforms_active():
        raise UsageError(
            "alignment_loss is called inside a torch.func transform (grad, vjp, jvp, vmap, ...)",
            expected="a plain call, and backward() on its loss",
            fix=f"{fix}; in place of vmap, pass the samples as one batch",
        )
    if any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in (hidden, *others)):
        raise UsageError(
            "alignment_loss got a dual tensor, and has no forward-mode derivative",
            expected="plain tensors, and backward() on its loss",
            fix=fix,
        )


def check_inputs(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None,
    *,
    autocast: bool,
) -> None:
    """Refuse hidden states and a head that do not fit together."""
    if hidden_long.ndim != 3 or hidden_long.shape != hidden_short.shape:
        raise UsageError(
            f"hidden_long is {_shape(hidden_long)} and hidden_short {_shape(hidden_short)}",
            expected="the same shape [B, L, d] for both views",
        )
    check_head(head_weight)
    if head_weight.shape[1] != hidden_long.shape[-1]:
        raise UsageError(
            f"head_weight is {_shape(head_weight)} and the hidden states have width {hidden_long.shape[-1]}",
            expected=f"head_weight [V, {hidden_long.shape[-1]}]",
        )
    tensors = {"hidden_long": hidden_long, "hidden_short": hidden_short, "head_weight": head_weight}
    if head_bias is not None:
        if head_bias.shape != head_weight.shape[:1]:
            raise UsageError(
                f"head_bias is {_shape(head_bias)} for a vocabulary of {head_weight.shape[0]}",
                expected=f"head_bias [{head_weight.shape[0]}]",
            )
        tensors["head_bias"] = head_bias
    for name, tensor in tensors.items():
        if is_sharded(tensor):
            raise UsageError(
                f"{name} is a DTensor, and only the head may be one",
                expected="a plain tensor: whole rows of this rank's own samples",
            )
        if not tensor.is_floating_point():
            raise UsageError(f"{name} is of dtype {tensor.dtype}", expected="a floating dtype")
    # Autocast brings mixed dtypes together, as it does for a linear layer.
    if not autocast and len({tensor.dtype for tensor in tensors.values()}) > 1:
        found = ", ".join(f"{name} {tensor.dtype}" for name, tensor in tensors.items())
        raise UsageError(
            f"dtypes differ: {found}", expected="one dtype", fix="cast them, or use torch.autocast"
        )
    if len({tensor.device for tensor in tensors.values()}) > 1:
        found = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
        raise UsageError(f"devices differ: {found}", expected="one device")


def check_settings(
    soft_cap: float | None,
    logit_scale: float,
    chunk_size: int | None,
    accumulate_dtype: torch.dtype | None,
    *,
    weight_dtype: torch.dtype | None = None,
) -> None:
    """Refuse settings of the head and of the implementation that cannot be honoured."""
    if soft_cap is not None and not (is_number(soft_cap) and soft_cap > 0):
        raise UsageError(f"soft_cap is {soft_cap!r}", expected="a finite number above 0, or None for no cap")
    if not is_number(logit_scale) or logit_scale == 0:
        raise UsageError(f"logit_scale is {logit_scale!r}", expected="a finite number other than 0")
    integer = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if chunk_size is not None and (not integer or chunk_size < 1):
        raise UsageError(f"chunk_size is {chunk_size!r}", expected="pairs of rows, at least 1, or None")
    if accumulate_dtype is None or weight_dtype is None:
        return
    allowed = {weight_dtype} | ({torch.float32} if weight_dtype.itemsize == 2 else set())
    if accumulate_dtype not in allowed:
        raise UsageError(
            f"accumulate_dtype is {accumulate_dtype} for a head of {weight_dtype}",
            expected=" or ".join(sorted(map(str, allowed))),
        )


def check_head(head_weight: Tensor) -> None:
    """Refuse a head of which only a part is here, or whose gradient would not reach its owner."""
    fix = "shard with FSDP2 (fully_shard), or train with whole copies (DDP)"
    if getattr(head_weight, "ds_id", None) is not None or head_weight.numel() == 0:
        raise UsageError(
            f"head_weight is {_shape(head_weight)} on this rank: a partitioned parameter (DeepSpeed ZeRO-3, FSDP1)",
            expected="the whole weight [V, d]",
            fix=fix,
        )
    if head_weight.ndim != 2:
        raise UsageError(
            f"head_weight is {_shape(head_weight)}: a flattened shard (FSDP1) or no head",
            expected="the whole weight [V, d]",
            fix=fix,
        )


def check_logits(logits_long: Tensor, logits_short: Tensor) -> None:
    """Refuse logits of the two views that do not fit together."""
    if logits_long.ndim != 3 or logits_long.shape != logits_short.shape or logits_long.shape[-1] == 0:
        raise UsageError(
            f"logits_long is {_shape(logits_long)} and logits_short {_shape(logits_short)}",
            expected="the same shape [B, L, V] for both views",
        )
    if logits_long.dtype != logits_short.dtype or not logits_long.is_floating_point():
        raise UsageError(
            f"logits_long is {logits_long.dtype} and logits_short {logits_short.dtype}",
            expected="one floating dtype",
        )
    if logits_long.device != logits_short.device:
        raise UsageError(
            f"logits_long is on {logits_long.device} and logits_short on {logits_short.device}",
            expected="one device",
        )


def check_same_shape(
    rows: Tensor, labels_long: Tensor, labels_short: Tensor, geometry: PairGeometry, objective: Objective
) -> None:
    """Refuse labels or a geometry that do not describe the rows [B, L, ...], or pair more than the objective does."""
    batch, length = rows.shape[:2]
    if geometry.length != length:
        raise UsageError(
            f"geometry.length is {geometry.length} and the views have {length} rows",
            expected="the rows of one view",
        )
    if objective.min_context is not None and (geometry.min_context or 0) < objective.min_context:
        raise UsageError(
            f"objective.min_context is {objective.min_context} and geometry.min_context {geometry.min_context}",
            expected=f"a geometry with min_context of at least {objective.min_context}",
        )
    for name, labels in (("labels_long", labels_long), ("labels_short", labels_short)):
        if labels.shape != (batch, length):
            raise UsageError(
                f"{name} is {_shape(labels)}", expected=f"[{batch}, {length}], a label for each row"
            )
        if labels.dtype != torch.int64:
            raise UsageError(f"{name} is of dtype {labels.dtype}", expected="torch.int64")
        if labels.device != rows.device:
            raise UsageError(
                f"{name} is on {labels.device}, the views on {rows.device}", expected="one device"
            )


def check_labels(name: str, labels: Tensor, *, vocabulary: int, ignore_index: int) -> int:
    """Refuse labels outside the vocabulary; the number of labels that count.

    On an accelerator this waits for the device, once: a wrong label would otherwise be an assertion
    somewhere in a kernel.
    """
    valid = labels != ignore_index
    wrong = valid & ((labels < 0) | (labels >= vocabulary))
    count, wrong_count = torch.stack((valid.sum(), wrong.sum())).tolist()
    if wrong_count:
        raise UsageError(
            f"{name} contains {int(labels[wrong][0])}, outside the head's vocabulary of {vocabulary}",
            expected=f"0 .. {vocabulary - 1}, or {ignore_index} where a row has no label",
        )
    return count


def _shape(tensor: Tensor) -> str:
    return "[" + ", ".join(str(size) for size in tensor.shape) + "]"
