"""What the objective refuses: input that would give wrong numbers. Torch itself refuses the rest."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lengthwise.alignment.divergences import Objective
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.loss_output import Normalizers
from lengthwise.errors import UsageError, require


def check_derivatives(*tensors: Tensor | None) -> None:
    """Refuse to be differentiated in ways other than one backward pass."""
    fix = "use alignment_loss_from_logits, which is made of ordinary operations"
    if torch._C._are_functorch_transforms_active():
        raise UsageError(
            "alignment_loss is called inside a torch.func transform (grad, vjp, jvp, vmap, ...)",
            expected="a plain call, and backward() on its loss",
            fix=f"{fix}; in place of vmap, pass the samples as one batch",
        )
    if any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        raise UsageError(
            "alignment_loss got a dual tensor, and has no forward-mode derivative",
            expected="plain tensors, and backward() on its loss",
            fix=fix,
        )


def check_head(hidden_long: Tensor, head_weight: Tensor, *, autocast: bool) -> None:
    """Refuse a head of which only a part is here, or whose gradient would not reach its owner."""
    if getattr(head_weight, "ds_id", None) is not None or head_weight.ndim != 2 or not head_weight.numel():
        raise UsageError(
            f"head_weight is {_shape(head_weight)} on this rank: a partitioned parameter (DeepSpeed ZeRO-3, FSDP1)",
            expected="the whole weight [V, d]",
            fix="shard with FSDP2 (fully_shard), or train with whole copies (DDP)",
        )
    # Autocast brings mixed dtypes together, as it does for a linear layer.
    if not autocast and hidden_long.dtype != head_weight.dtype:
        raise UsageError(
            f"hidden_long is {hidden_long.dtype} and head_weight {head_weight.dtype}",
            expected="one dtype",
            fix="cast them, or use torch.autocast",
        )


def check_rows(
    views: tuple[Tensor, Tensor],
    labels: tuple[Tensor, Tensor],
    *,
    vocabulary: int,
    geometry: PairGeometry,
    objective: Objective,
    ignore_index: int,
) -> Normalizers:
    """Refuse views [B, L, ...], labels [B, L] and a geometry that do not fit together; the counts of the call."""
    (long, short), rows = views, views[0].shape[:2]
    require(
        long.ndim == 3 and long.shape == short.shape and long.dtype == short.dtype,
        f"the views are {_shape(long)} {long.dtype} and {_shape(short)} {short.dtype}",
        "one dtype and the same shape [B, L, d] or [B, L, V]",
    )
    require(
        geometry.length == rows[1],
        f"geometry.length is {geometry.length} and the views have {rows[1]} rows",
        "the rows of one view",
    )
    require(
        (geometry.min_context or 0) >= (objective.min_context or 0),
        f"objective.min_context is {objective.min_context} and geometry.min_context {geometry.min_context}",
        f"a geometry with min_context of at least {objective.min_context}",
    )
    counts = [
        _label_count(name, label, rows, vocabulary=vocabulary, ignore_index=ignore_index)
        for name, label in zip(("labels_long", "labels_short"), labels, strict=True)
    ]
    return Normalizers(*counts, paired_positions=rows[0] * geometry.paired_positions)


def _label_count(name: str, labels: Tensor, rows: torch.Size, *, vocabulary: int, ignore_index: int) -> int:
    """The number of labels that count.

    On an accelerator this waits for the device, once: a wrong label would otherwise be an assertion
    somewhere in a kernel.
    """
    require(labels.shape == rows, f"{name} is {_shape(labels)}", f"{_shape(rows)}, a label for each row")
    valid = labels != ignore_index
    wrong = valid & ((labels < 0) | (labels >= vocabulary))
    count, wrong_count = torch.stack((valid.sum(), wrong.sum())).tolist()
    if wrong_count:
        raise UsageError(
            f"{name} contains {int(labels[wrong][0])}, outside the head's vocabulary of {vocabulary}",
            expected=f"0 .. {vocabulary - 1}, or {ignore_index} where a row has no label",
        )
    return count


def _shape(sized: Tensor | torch.Size) -> str:
    return str(list(sized.shape if isinstance(sized, Tensor) else sized))
