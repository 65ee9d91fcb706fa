"""The objective: from hidden states and the output head without full logits, or plainly from full logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from lengthwise.alignment.chunked import fused_objective
from lengthwise.alignment.divergences import NO_LABEL, Objective
from lengthwise.alignment.formulas import divergence_from_logits, entropy_sum, jeffreys, log_probabilities
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.normalizers import Normalizers
from lengthwise.errors import UsageError, require, require_integer, require_kind
from lengthwise.machine import whole


@dataclass(frozen=True)
class AlignmentOutput:
    """The objective's value and its parts. Tensors are scalars in nats per token; only `loss` has a gradient.

    Each is a sum divided by its entry in `Normalizers`, so with the divisors of a larger step these are
    shares that add up over its parts. A part without positions is exactly 0.
    """

    loss: Tensor
    """cross_entropy + alpha * divergence (Eq. 4)."""
    cross_entropy: Tensor
    """The part of the loss: (cross_entropy_long + cross_entropy_short) / 2, or with `ce_on` that of one view."""
    cross_entropy_long: Tensor
    """Next-token cross entropy of the long view, all its rows with a label; also where it is not trained on."""
    cross_entropy_short: Tensor
    """The same for the short view."""
    misalignment: Tensor
    """SCE(p, q) = entropy + jeffreys at the paired positions (Eq. 1), whichever divergence was trained on."""
    entropy: Tensor
    """H(p) + H(q) at the paired positions: how unsure both views are."""
    jeffreys: Tensor
    """KL(p||q) + KL(q||p) at the paired positions: how much the views disagree."""
    divergence: Tensor
    """The chosen term at the paired positions, the one that alpha multiplies."""


def alignment_loss(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective,
    head_bias: Tensor | None = None,
    soft_cap: float | None = None,
    logit_scale: float = 1.0,
    normalizers: Normalizers | None = None,
    chunk_size: int | None = None,
    accumulate_dtype: torch.dtype | None = None,
) -> AlignmentOutput:
    """The long-short alignment objective (Eq. 4) from final hidden states and the output head.

    With p and q the softmax of the logits of the long and the short view at paired positions, it equals

        z = logit_scale * (hidden @ head_weight.T + head_bias);  z = soft_cap * tanh(z / soft_cap)
        loss = (CE(z_long, labels_long) + CE(z_short, labels_short)) / 2 + alpha * mean(divergence(p, q))

    (with `ce_on` one of the two cross entropies), as `alignment_loss_from_logits` computes it, but holds the
    logits of only some rows at a time and forms all gradients in the forward pass: nothing is computed twice, and
    no tensor is of the size of all logits. Which tensors get a gradient is read from `requires_grad`; for a frozen
    head none is formed, and none (not even zeros) for the hidden states of a view that neither CE nor the
    divergence trains. The elementwise arithmetic is in fp32 (fp64 for fp64 input). Under autocast the matrix
    products are in its dtype.

    Args:
        hidden_long, hidden_short: final hidden states [B, L, d] of both views, as the head receives them.
        head_weight: [V, d]. A tied embedding is fine. Cut a padded vocabulary by `head_weight[:V]`. A DTensor
            (FSDP2) is gathered once, by all ranks together; its gradient is averaged over them and goes back to
            the shards.
        labels_long, labels_short: next tokens [B, L], aligned with the rows (already shifted, see
            `next_token_labels`), -100 where a row has none. Pairs do not depend on labels.
        geometry: which rows face each other.
        objective: alpha, divergence, detach and ce_on.
        head_bias: [V], added before the scale.
        soft_cap: bound of the logits by tanh, applied last (Gemma 2).
        logit_scale: factor of the linear output (Cohere; Granite divides, so 1 / logits_scaling).
        normalizers: divisors of the sums. Default: the counts of this call.
        chunk_size: pairs of rows whose logits are in memory together. Default: by the size of the vocabulary.
        accumulate_dtype: dtype in which a 16-bit head's gradient is summed over chunks: its own, or
            torch.float32. Default: fp32, which takes 4 V d bytes more, unless the chunks are few.

    Returns:
        `AlignmentOutput`; `.loss` can be differentiated once. Without paired positions its misalignment and
        divergence are 0 with zero gradient; so is a cross entropy without labels. NaN or infinite weights,
        or hidden states in rows that have a label or a partner, give a NaN loss: check for it.

    Raises:
        UsageError: views and labels that do not fit together, a head weight sharded by FSDP1 or ZeRO-3, a label
            outside the vocabulary, a geometry of another length, a number or dtype that nothing can be computed
            with; a second backward pass, a second derivative, forward-mode AD, a torch.func transform.

    Warns:
        UserWarning: "sce" or "entropy" with alpha of `Objective.sharpening_limit` or more.
    """
    check_kinds(geometry, objective, normalizers)
    objective.warn_of_sharpening()
    leaves = hidden_long, hidden_short, head_weight, head_bias
    dual = any(each is not None and forward_ad.unpack_dual(each).tangent is not None for each in leaves)
    require(
        not (dual or torch._C._are_functorch_transforms_active()),
        "alignment_loss is called in forward-mode AD or in a torch.func transform (grad, vjp, jvp, vmap, ...)",
        "a plain call and backward() on its loss, or alignment_loss_from_logits, which has all derivatives",
    )
    head_weight = whole(head_weight)
    head_bias = None if head_bias is None else whole(head_bias)
    autocast = torch.is_autocast_enabled(hidden_long.device.type)
    _check_head(hidden_long, head_weight, head_bias, autocast=autocast)
    _check_numbers(soft_cap, logit_scale, accumulate_dtype, own=head_weight.dtype)
    if chunk_size is not None:
        require_integer("chunk_size", chunk_size, low=1, unit="pairs of rows")
    hidden, labels = (hidden_long, hidden_short), (labels_long, labels_short)
    counts = _check_rows(hidden, labels, vocabulary=len(head_weight), geometry=geometry)
    compute_dtype = head_weight.dtype
    if autocast and compute_dtype != torch.float64:
        compute_dtype = torch.get_autocast_dtype(hidden_long.device.type)
    loss, parts = fused_objective(
        hidden,
        head_weight,
        head_bias,
        (labels_long.long(), labels_short.long()),
        geometry=geometry,
        objective=objective,
        activation=(float(logit_scale), soft_cap),
        divisors=(normalizers or counts).divisors(counts),
        chunk_size=chunk_size,
        accumulate_dtype=accumulate_dtype,
        compute_dtype=compute_dtype,
    )
    return _output(objective, loss, parts)


def alignment_loss_from_logits(
    logits_long: Tensor,
    logits_short: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective,
    normalizers: Normalizers | None = None,
) -> AlignmentOutput:
    """The objective (Eq. 4) from full logits; equals `alignment_loss` on the hidden states that gave them.

    Holds several tensors of the logits' size. Use it where the output head cannot be reproduced, and as the
    truth that the fused path is held against.

    Args:
        logits_long, logits_short: [B, L, V] of both views, any floating dtype, finite.
        labels_long, labels_short, geometry, objective, normalizers: as in `alignment_loss`.

    Raises:
        UsageError: as in `alignment_loss`.
    """
    check_kinds(geometry, objective, normalizers)
    objective.warn_of_sharpening()
    counts = _check_rows(
        (logits_long, logits_short),
        (labels_long, labels_short),
        vocabulary=logits_long.shape[-1],
        geometry=geometry,
    )
    *label_divisors, pair_divisor = (normalizers or counts).divisors(counts)

    def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_probabilities(logits).flatten(0, 1)
        return F.nll_loss(log_p, labels.flatten().long(), ignore_index=NO_LABEL, reduction="sum")

    long = cross_entropy(logits_long, labels_long) / label_divisors[0]
    short = cross_entropy(logits_short, labels_short) / label_divisors[1]
    paired = logits_long[:, geometry.long_rows], logits_short[:, geometry.short_rows]
    term = divergence_from_logits(*paired, objective).sum() / pair_divisor
    loss = objective.trained_cross_entropy(long, short) + objective.alpha * term
    with torch.no_grad():
        entropy, disagreement = (f(*paired).sum() / pair_divisor for f in (entropy_sum, jeffreys))
    return _output(objective, loss, (long, short, entropy, disagreement, term))


def check_kinds(geometry: object, objective: object, normalizers: object) -> None:
    """Raise UsageError for a number or settings in the place of what `alignment_loss` takes."""
    require_kind("geometry", geometry, PairGeometry, "a PairGeometry, as a batch of PairCollator has")
    require_kind("objective", objective, Objective, "an Objective, as Objective(alpha=0.1)")
    require_kind("normalizers", normalizers, (Normalizers, type(None)), "Normalizers, or None")


def _output(objective: Objective, loss: Tensor, parts: Sequence[Tensor]) -> AlignmentOutput:
    long, short, entropy, disagreement, term = (part.detach() for part in parts)
    return AlignmentOutput(
        loss=loss,
        cross_entropy=objective.trained_cross_entropy(long, short),
        cross_entropy_long=long,
        cross_entropy_short=short,
        misalignment=entropy + disagreement,
        entropy=entropy,
        jeffreys=disagreement,
        divergence=term,
    )


def _check_head(
    hidden_long: Tensor, head_weight: Tensor, head_bias: Tensor | None, *, autocast: bool
) -> None:
    """Refuse a head of which only a part is here, or whose gradient would not reach its owner."""
    if getattr(head_weight, "ds_id", None) is not None or head_weight.ndim != 2 or not head_weight.numel():
        raise UsageError(
            f"head_weight is {list(head_weight.shape)} on this rank: partitioned by DeepSpeed ZeRO-3 or FSDP1",
            expected="the whole weight [V, d]",
            fix="shard with FSDP2 (fully_shard), or train with whole copies (DDP)",
        )
    require(
        hidden_long.shape[-1:] == head_weight.shape[1:] and head_weight.is_floating_point(),
        f"hidden_long is {list(hidden_long.shape)} and head_weight {list(head_weight.shape)} {head_weight.dtype}",
        "[B, L, d] and [V, d], of a floating dtype",
    )
    # Autocast brings mixed dtypes together, as it does for a linear layer.
    if not autocast and hidden_long.dtype != head_weight.dtype:
        raise UsageError(
            f"hidden_long is {hidden_long.dtype} and head_weight {head_weight.dtype}",
            expected="one dtype",
            fix="cast them, or use torch.autocast",
        )
    if head_bias is not None:
        size = f"head_bias is {list(head_bias.shape)}"
        require(
            head_bias.shape == head_weight.shape[:1], size, f"[{len(head_weight)}], a number for each token"
        )


def _check_numbers(
    soft_cap: float | None, logit_scale: float, accumulate_dtype: torch.dtype | None, *, own: torch.dtype
) -> None:
    require_kind("logit_scale", logit_scale, Real, "a number")
    require_kind("soft_cap", 1.0 if soft_cap is None else soft_cap, Real, "a number, or None")
    require(math.isfinite(logit_scale) and logit_scale != 0, f"logit_scale is {logit_scale}", "finite, not 0")
    positive = soft_cap is None or (math.isfinite(soft_cap) and soft_cap > 0)
    require(positive, f"soft_cap is {soft_cap}", "finite and greater than 0, or None")
    known = accumulate_dtype in (None, own, torch.float32)
    require(known, f"accumulate_dtype is {accumulate_dtype}", f"{own}, torch.float32 or None")


def _check_rows(
    views: tuple[Tensor, Tensor],
    labels: tuple[Tensor, Tensor],
    *,
    vocabulary: int,
    geometry: PairGeometry,
) -> Normalizers:
    """Refuse views [B, L, ...], labels [B, L] and a geometry that do not fit together; the counts of the call."""
    (long, short), rows = views, views[0].shape[:2]
    require(
        long.ndim == 3
        and long.shape == short.shape
        and long.dtype == short.dtype
        and long.is_floating_point(),
        f"the views are {list(long.shape)} {long.dtype} and {list(short.shape)} {short.dtype}",
        "one floating dtype and the same shape [B, L, d] or [B, L, V]",
    )
    require(
        geometry.length == rows[1],
        f"geometry.length is {geometry.length} and the views have {rows[1]} rows",
        "the rows of one view",
    )
    counts = [
        _label_count(name, label, rows, vocabulary=vocabulary)
        for name, label in zip(("labels_long", "labels_short"), labels, strict=True)
    ]
    return Normalizers(*counts, paired_positions=rows[0] * geometry.paired_positions)


def _label_count(name: str, labels: Tensor, rows: torch.Size, *, vocabulary: int) -> int:
    """The number of labels that count.

    On an accelerator this waits for the device, once: a wrong label would otherwise be an assertion
    somewhere in a kernel.
    """
    require(labels.shape == rows, f"{name} is {list(labels.shape)}", f"{list(rows)}, a label for each row")
    other = labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool
    require(not other, f"{name} is {labels.dtype}", "ids of tokens: whole numbers")
    # Of unsigned bytes, 156 would be equal to -100.
    labels = labels.long()
    valid = labels != NO_LABEL
    wrong = valid & ((labels < 0) | (labels >= vocabulary))
    count, wrong_count = map(int, torch.stack((valid.sum(), wrong.sum())).cpu())
    if wrong_count:
        raise UsageError(
            f"{name} contains {int(labels[wrong][0])}, outside the head's vocabulary of {vocabulary}",
            expected=f"0 .. {vocabulary - 1}, or {NO_LABEL} where a row has no label",
        )
    return count
