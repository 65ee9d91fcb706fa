"""The objective of a model on one batch: a forward pass, then the loss by the cheapest way that is exact."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from lengthwise.alignment.divergences import Objective, ObjectiveTerms, as_objective
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.loss_output import AlignmentOutput, Normalizers
from lengthwise.alignment.objective import alignment_loss, alignment_loss_from_logits
from lengthwise.models import FullLogits, Head, hidden_states_for


def model_alignment_loss(
    model: nn.Module,
    head: Head | FullLogits,
    input_ids: Tensor,
    labels: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective | None = None,
    normalizers: Normalizers | None = None,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    **terms: Unpack[ObjectiveTerms],
) -> AlignmentOutput:
    """The objective (Eq. 4) of a transformers model on both views in one forward pass.

    Equals `alignment_loss_from_logits` on the model's own logits. With a proven head it is `alignment_loss` on the
    final hidden states, with the head's bias, scale and soft cap. The model may be wrapped (DDP, FSDP2, PEFT,
    torch.compile), and is called as it is given.

    Args:
        model: a transformers causal LM.
        head: what `find_head(model)` found.
        input_ids, labels: [2B, L], the B long views first; labels aligned with rows, as `PairCollator` makes
            them.
        geometry, objective, normalizers, terms: as in `alignment_loss`.
        position_ids, attention_mask: [2B, L], passed to the model. Padding needs labels of -100 too, and belongs
            after the text and outside of the paired rows.

    Raises:
        UsageError: as in `alignment_loss`; the model is no causal LM, or hides its hidden states.
    """
    hidden = hidden_states_for(
        model, head, input_ids, position_ids=position_ids, attention_mask=attention_mask
    )
    views = (*hidden.chunk(2), *labels.chunk(2))
    settings = {"geometry": geometry, "objective": as_objective(objective, terms), "normalizers": normalizers}
    if isinstance(head, FullLogits):
        return alignment_loss_from_logits(*views, **settings)
    hidden_long, hidden_short, labels_long, labels_short = views
    return alignment_loss(
        hidden_long,
        hidden_short,
        head.weight,
        labels_long,
        labels_short,
        head_bias=head.bias,
        soft_cap=head.soft_cap,
        logit_scale=head.logit_scale,
        **settings,
    )
