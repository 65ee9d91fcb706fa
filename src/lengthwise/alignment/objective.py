"""The objective: from hidden states and the output head without full logits, or plainly from full logits."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise.alignment.chunked import Settings, fused_objective
from lengthwise.alignment.divergences import Objective, ObjectiveTerms, OtherTerms, as_objective
from lengthwise.alignment.formulas import divergence_from_logits, entropy_sum, jeffreys, log_probabilities
from lengthwise.alignment.fused_head import whole
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.input_checks import (
    check_calculable,
    check_inputs,
    check_labels,
    check_logits,
    check_same_shape,
    check_settings,
)
from lengthwise.alignment.loss_output import AlignmentOutput, Divisors, Normalizers
from lengthwise.alignment.tile import Activation


def alignment_loss(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective | None = None,
    head_bias: Tensor | None = None,
    soft_cap: float | None = None,
    logit_scale: float = 1.0,
    normalizers: Normalizers | None = None,
    ignore_index: int = -100,
    chunk_size: int | None = None,
    accumulate_dtype: torch.dtype | None = None,
    **terms: Unpack[ObjectiveTerms],
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
            `next_token_labels`), `ignore_index` where a row has none. Pairs do not depend on labels.
        geometry: which rows face each other.
        objective: alpha, divergence, detach and ce_on. Or give these as keywords: `alpha=0.1,
            divergence="jeffreys"`, with the defaults of `Objective`.
        head_bias: [V], added before the scale.
        soft_cap: bound of the logits by tanh, applied last (Gemma 2).
        logit_scale: factor of the linear output (Cohere; Granite divides, so 1 / logits_scaling).
        normalizers: divisors of the sums. Default: the counts of this call.
        ignore_index: the label of rows without a cross entropy.
        chunk_size: pairs of rows whose logits are in memory together. Default: by the size of the vocabulary.
        accumulate_dtype: dtype in which a 16-bit head's gradient is summed over chunks: its own, or
            torch.float32. Default: fp32, which takes 4 V d bytes more, unless the chunks are few.

    Returns:
        `AlignmentOutput`; `.loss` can be differentiated once. Without paired positions its misalignment and
        divergence are 0 with zero gradient; so is a cross entropy without labels. NaN or infinite weights,
        or hidden states in rows that have a label or a partner, give a NaN loss: check for it.

    Raises:
        UsageError: shapes, dtypes or devices that do not match, a head weight sharded by FSDP1 or ZeRO-3, a
            label outside the vocabulary, an `Objective` that cannot be trained on, a geometry of another length; a
            second backward pass, a second derivative, forward-mode AD, a torch.func transform.

    Warns:
        SharpeningWarning: "sce" or "entropy" with alpha of `Objective.sharpening_limit` or more.
    """
    objective = as_objective(objective, terms)
    objective.warn_of_sharpening()
    check_calculable(hidden_long, hidden_short, head_weight, head_bias)
    head_weight = whole(head_weight)
    head_bias = None if head_bias is None else whole(head_bias)
    autocast = torch.is_autocast_enabled(hidden_long.device.type)
    check_inputs(hidden_long, hidden_short, head_weight, head_bias, autocast=autocast)
    check_same_shape(hidden_long, labels_long, labels_short, geometry, objective)
    check_settings(soft_cap, logit_scale, chunk_size, accumulate_dtype, weight_dtype=head_weight.dtype)
    vocabulary = head_weight.shape[0]
    count_long = check_labels("labels_long", labels_long, vocabulary=vocabulary, ignore_index=ignore_index)
    count_short = check_labels("labels_short", labels_short, vocabulary=vocabulary, ignore_index=ignore_index)
    paired = hidden_long.shape[0] * geometry.paired_positions
    compute_dtype = head_weight.dtype
    if autocast and compute_dtype != torch.float64:
        compute_dtype = torch.get_autocast_dtype(hidden_long.device.type)

    loss, parts = fused_objective(
        hidden_long,
        hidden_short,
        head_weight,
        head_bias,
        labels_long,
        labels_short,
        Settings(
            geometry=geometry,
            objective=objective,
            activation=Activation(scale=float(logit_scale), soft_cap=soft_cap),
            divisors=Divisors.of(normalizers, count_long, count_short, paired),
            ignore_index=ignore_index,
            chunk_size=chunk_size,
            accumulate_dtype=accumulate_dtype,
            compute_dtype=compute_dtype,
        ),
    )
    return AlignmentOutput(
        loss=loss,
        cross_entropy=objective.trained_cross_entropy(parts.cross_entropy_long, parts.cross_entropy_short),
        cross_entropy_long=parts.cross_entropy_long,
        cross_entropy_short=parts.cross_entropy_short,
        misalignment=parts.entropy + parts.jeffreys,
        entropy=parts.entropy,
        jeffreys=parts.jeffreys,
        divergence=parts.divergence,
        paired_positions=paired,
        label_positions_long=count_long,
        label_positions_short=count_short,
    )


class AlignmentLoss(nn.Module):
    """`alignment_loss` with its settings bound. It has no parameters: the head comes with each call.

    Args:
        alpha, terms: the fields of `Objective`; or give an `objective`.
        soft_cap, logit_scale, ignore_index, chunk_size, accumulate_dtype: as in `alignment_loss`. All are checked
            here.
    """

    def __init__(
        self,
        alpha: float | None = None,
        *,
        objective: Objective | None = None,
        soft_cap: float | None = None,
        logit_scale: float = 1.0,
        ignore_index: int = -100,
        chunk_size: int | None = None,
        accumulate_dtype: torch.dtype | None = None,
        **terms: Unpack[OtherTerms],
    ) -> None:
        super().__init__()
        self.objective = as_objective(objective, terms if alpha is None else {"alpha": alpha, **terms})
        check_settings(soft_cap, logit_scale, chunk_size, accumulate_dtype)
        self.objective.warn_of_sharpening()
        self.soft_cap = soft_cap
        self.logit_scale = logit_scale
        self.ignore_index = ignore_index
        self.chunk_size = chunk_size
        self.accumulate_dtype = accumulate_dtype

    def forward(
        self,
        hidden_long: Tensor,
        hidden_short: Tensor,
        head_weight: Tensor,
        labels_long: Tensor,
        labels_short: Tensor,
        *,
        geometry: PairGeometry,
        head_bias: Tensor | None = None,
        normalizers: Normalizers | None = None,
    ) -> AlignmentOutput:
        """As `alignment_loss`."""
        return alignment_loss(
            hidden_long,
            hidden_short,
            head_weight,
            labels_long,
            labels_short,
            geometry=geometry,
            objective=self.objective,
            head_bias=head_bias,
            soft_cap=self.soft_cap,
            logit_scale=self.logit_scale,
            normalizers=normalizers,
            ignore_index=self.ignore_index,
            chunk_size=self.chunk_size,
            accumulate_dtype=self.accumulate_dtype,
        )

    def extra_repr(self) -> str:
        """The settings that decide what is trained."""
        chosen, plain = self.objective, Objective(alpha=0.0)
        changed = [
            name for name in OtherTerms.__annotations__ if getattr(chosen, name) != getattr(plain, name)
        ]
        names = dict.fromkeys(("alpha", "divergence", "detach", *changed))
        return ", ".join(f"{name}={getattr(chosen, name)!r}" for name in names)


def alignment_loss_from_logits(
    logits_long: Tensor,
    logits_short: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective | None = None,
    normalizers: Normalizers | None = None,
    ignore_index: int = -100,
    **terms: Unpack[ObjectiveTerms],
) -> AlignmentOutput:
    """The objective (Eq. 4) from full logits; equals `alignment_loss` on the hidden states that gave them.

    Holds several tensors of the logits' size. Use it where the output head cannot be reproduced, and as the
    truth that the fused path is held against.

    Args:
        logits_long, logits_short: [B, L, V] of both views, any floating dtype, finite.
        labels_long, labels_short, geometry, objective, normalizers, ignore_index, terms: as in `alignment_loss`.

    Raises:
        UsageError: as in `alignment_loss`.
    """
    objective = as_objective(objective, terms)
    objective.warn_of_sharpening()
    check_logits(logits_long, logits_short)
    check_same_shape(logits_long, labels_long, labels_short, geometry, objective)
    vocabulary = logits_long.shape[-1]
    count_long = check_labels("labels_long", labels_long, vocabulary=vocabulary, ignore_index=ignore_index)
    count_short = check_labels("labels_short", labels_short, vocabulary=vocabulary, ignore_index=ignore_index)
    paired = logits_long.shape[0] * geometry.paired_positions
    divisors = Divisors.of(normalizers, count_long, count_short, paired)

    def total(logits: Tensor, labels: Tensor) -> Tensor:
        log_p = log_probabilities(logits).flatten(0, 1)
        return F.nll_loss(log_p, labels.flatten(), ignore_index=ignore_index, reduction="sum")

    cross_entropy_long = total(logits_long, labels_long) / divisors.labels_long
    cross_entropy_short = total(logits_short, labels_short) / divisors.labels_short
    trained = objective.trained_cross_entropy(cross_entropy_long, cross_entropy_short)
    paired_long = logits_long[:, geometry.long_rows]
    paired_short = logits_short[:, geometry.short_rows]

    def mean(per_position: Tensor) -> Tensor:
        return per_position.sum() / divisors.paired_positions

    term = mean(
        divergence_from_logits(
            paired_long, paired_short, divergence=objective.divergence, detach=objective.detach
        )
    )
    with torch.no_grad():
        entropy_part = mean(entropy_sum(paired_long, paired_short))
        jeffreys_part = mean(jeffreys(paired_long, paired_short))
    return AlignmentOutput(
        loss=trained + objective.alpha * term,
        cross_entropy=trained.detach(),
        cross_entropy_long=cross_entropy_long.detach(),
        cross_entropy_short=cross_entropy_short.detach(),
        misalignment=entropy_part + jeffreys_part,
        entropy=entropy_part,
        jeffreys=jeffreys_part,
        divergence=term.detach(),
        paired_positions=paired,
        label_positions_long=count_long,
        label_positions_short=count_short,
    )
