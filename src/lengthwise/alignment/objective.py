"""The public door to the objective: it checks the input and hands it to the fused implementation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lengthwise.alignment.checks import (
    Divisors,
    check_calculable,
    check_inputs,
    check_labels,
    check_same_shape,
    check_settings,
    check_term,
    warn_of_sharpening,
)
from lengthwise.alignment.chunked import Settings, fused_objective
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.output import AlignmentOutput, Normalizers
from lengthwise.alignment.sharding import whole
from lengthwise.alignment.tile import Activation


def alignment_loss(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    alpha: float,
    divergence: str = "sce",
    detach: str = "none",
    head_bias: Tensor | None = None,
    soft_cap: float | None = None,
    logit_scale: float = 1.0,
    normalizers: Normalizers | None = None,
    ignore_index: int = -100,
    chunk_size: int | None = None,
    accumulate_dtype: torch.dtype | None = None,
    compiled: bool = False,
) -> AlignmentOutput:
    """The long-short alignment objective (Eq. 4) from final hidden states and the output head.

    With p and q the softmax of the logits of the long and the short view at paired positions, it equals

        z = logit_scale * (hidden @ head_weight.T + head_bias);  z = soft_cap * tanh(z / soft_cap)
        loss = (CE(z_long, labels_long) + CE(z_short, labels_short)) / 2 + alpha * mean(divergence(p, q))

    as `alignment_loss_from_logits` computes it, but holds the logits of only some rows at a time and forms
    all gradients in the forward pass: nothing is computed twice, and no tensor is of the size of all
    logits. Which tensors get a gradient is read from `requires_grad`; for a frozen head none is formed. The
    elementwise arithmetic is in fp32 (fp64 for fp64 input). Under autocast the matrix products are in its
    dtype.

    Args:
        hidden_long, hidden_short: final hidden states [B, L, d] of both views, as the head receives them.
        head_weight: [V, d]. A tied embedding is fine. Cut a padded vocabulary by `head_weight[:V]`. A DTensor
            (FSDP2) is gathered once, by all ranks together; its gradient is averaged over them and goes back to
            the shards.
        labels_long, labels_short: next tokens [B, L], aligned with the rows (already shifted, see
            `next_token_labels`), `ignore_index` where a row has none. Pairs do not depend on labels.
        geometry: which rows face each other.
        alpha: weight of the divergence, at least 0. The paper uses 0.1 to 0.3 with "sce".
        divergence: per paired position, in nats:
            "sce" is H(p, q) + H(q, p) = H(p) + H(q) + KL(p||q) + KL(q||p), the paper's (Eq. 1);
            "jeffreys" is KL(p||q) + KL(q||p), its disagreement alone;
            "entropy" is H(p) + H(q), its other part alone, as a control;
            "js" is the Jensen-Shannon divergence, at most log 2, about jeffreys / 8 for close p and q;
            "kl" is KL(teacher||student), the teacher being the detached side.
        detach: what the divergence sends no gradient to; values and the cross entropies' gradients stay.
            "long" or "short" is one side as a whole: its hidden states and its way into the head.
            "both-targets" holds the first argument of each of the two terms of "sce" or "jeffreys" fixed,
            which leaves the gradient p - q for the logits of long and q - p for those of short.
            "kl" needs "long" or "short"; "js" and "entropy" have no meaning with "both-targets".
        head_bias: [V], added before the scale.
        soft_cap: bound of the logits by tanh, applied last (Gemma 2).
        logit_scale: factor of the linear output (Cohere; Granite divides, so 1 / logits_scaling).
        normalizers: divisors of the sums. Default: the counts of this call.
        ignore_index: the label of rows without a cross entropy.
        chunk_size: pairs of rows whose logits are in memory together. Default: by the size of the vocabulary.
        accumulate_dtype: dtype in which a 16-bit head's gradient is summed over chunks: its own, or
            torch.float32. Default: fp32, which takes 4 V d bytes more, unless the chunks are few.
        compiled: run the elementwise part through torch.compile. On a CPU it is faster then; it needs a C++ compiler,
            and some seconds at the first call. It changes nothing where the Triton kernels work.

    Returns:
        `AlignmentOutput`; `.loss` can be differentiated once. Without paired positions its misalignment and
        divergence are 0 with zero gradient; so is a cross entropy without labels. NaN or infinite weights,
        or hidden states in rows that have a label or a partner, give a NaN loss: check for it.

    Raises:
        UsageError: shapes, dtypes or devices that do not match, a head weight sharded by FSDP1 or ZeRO-3, a
            label outside the vocabulary, an unknown divergence or detach or a pair without meaning, alpha
            negative or not finite, a geometry of another length; a second backward pass, a second
            derivative, forward-mode AD, a torch.func transform.

    Warns:
        SharpeningWarning: "sce" or "entropy" with alpha of 0.5 or more.
    """
    check_term(divergence, detach, alpha=alpha)
    warn_of_sharpening(divergence, detach, alpha)
    check_calculable(hidden_long, hidden_short, head_weight, head_bias)
    head_weight = whole(head_weight)
    head_bias = None if head_bias is None else whole(head_bias)
    autocast = torch.is_autocast_enabled(hidden_long.device.type)
    check_inputs(hidden_long, hidden_short, head_weight, head_bias, autocast=autocast)
    check_same_shape(hidden_long, labels_long, labels_short, geometry)
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
            alpha=float(alpha),
            divergence=divergence,
            detach=detach,
            activation=Activation(scale=float(logit_scale), soft_cap=soft_cap),
            divisors=Divisors.of(normalizers, count_long, count_short, paired),
            ignore_index=ignore_index,
            chunk_size=chunk_size,
            accumulate_dtype=accumulate_dtype,
            compute_dtype=compute_dtype,
            compiled=compiled,
        ),
    )
    return AlignmentOutput(
        loss=loss,
        cross_entropy=(parts.cross_entropy_long + parts.cross_entropy_short) / 2,
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
        alpha, divergence, detach, soft_cap, logit_scale, ignore_index, chunk_size, accumulate_dtype,
            compiled: as in `alignment_loss`; refused here already when they cannot be honoured.
    """

    def __init__(
        self,
        alpha: float,
        *,
        divergence: str = "sce",
        detach: str = "none",
        soft_cap: float | None = None,
        logit_scale: float = 1.0,
        ignore_index: int = -100,
        chunk_size: int | None = None,
        accumulate_dtype: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        check_term(divergence, detach, alpha=alpha)
        check_settings(soft_cap, logit_scale, chunk_size, accumulate_dtype)
        warn_of_sharpening(divergence, detach, alpha)
        self.alpha = alpha
        self.divergence = divergence
        self.detach = detach
        self.soft_cap = soft_cap
        self.logit_scale = logit_scale
        self.ignore_index = ignore_index
        self.chunk_size = chunk_size
        self.accumulate_dtype = accumulate_dtype
        self.compiled = compiled

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
            alpha=self.alpha,
            divergence=self.divergence,
            detach=self.detach,
            head_bias=head_bias,
            soft_cap=self.soft_cap,
            logit_scale=self.logit_scale,
            normalizers=normalizers,
            ignore_index=self.ignore_index,
            chunk_size=self.chunk_size,
            accumulate_dtype=self.accumulate_dtype,
            compiled=self.compiled,
        )

    def extra_repr(self) -> str:
        """The settings that decide what is trained."""
        return f"alpha={self.alpha}, divergence={self.divergence!r}, detach={self.detach!r}"
