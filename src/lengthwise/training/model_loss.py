"""The objective of a model on one batch: the forward passes that it needs, then the loss by the cheapest way."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.alignment import AlignmentOutput, Normalizers, Objective, PairGeometry
from lengthwise.alignment.divergences import NO_LABEL
from lengthwise.alignment.objective import alignment_loss, alignment_loss_from_logits, check_kinds
from lengthwise.checkpoints import FullLogits, Head, hidden_states_for
from lengthwise.checkpoints.attention_layers import local_positions
from lengthwise.checkpoints.hidden import unwrap, unwrap_saved
from lengthwise.errors import UsageError, require, require_kind
from lengthwise.training.collator import check_batch


def model_alignment_loss(
    model: nn.Module,
    head: Head | FullLogits,
    input_ids: Tensor,
    labels: Tensor,
    *,
    geometry: PairGeometry,
    objective: Objective,
    normalizers: Normalizers | None = None,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
) -> AlignmentOutput:
    """The objective (Eq. 4) of a transformers model on both views.

    Equals `alignment_loss_from_logits` on the model's own logits. With a proven head it is `alignment_loss` on the
    final hidden states, with the head's bias, scale and soft cap. The model may be wrapped (DDP, FSDP2, PEFT,
    torch.compile), and is called as it is given.

    Both views go through one forward pass if both are trained. A view that only teaches is read without gradients,
    and one that the objective does not use is not read at all; its parts of the output are then 0.

    Args:
        model: a transformers causal LM.
        head: what `find_head(model)` found.
        input_ids, labels: [2B, L], the B long views first; labels aligned with rows, as `PairCollator` makes
            them.
        geometry, objective, normalizers: as in `alignment_loss`.
        position_ids, attention_mask: [2B, L], passed to the model. Layers whose sliding window is shorter than
            the positions have consecutive ones (`local_positions`). Rows are of one text each, without padding.

    Raises:
        UsageError: as in `alignment_loss`; the model is no causal LM, hides its hidden states, or adds a router loss;
            the head is not its own, or is trained and split over processes; ids outside of its vocabulary; padding,
            packed rows, or labels that are not the next tokens of rows that face each other.
    """
    check_kinds(geometry, objective, normalizers)
    require_kind("head", head, (Head, FullLogits), "what find_head(model) found")
    if torch.is_grad_enabled():
        _check_trained(model, head)
    _check_ids(model, input_ids)
    require_kind("labels", labels, Tensor, "next tokens [2B, L]")
    check_batch(
        input_ids, labels, geometry=geometry, attention_mask=attention_mask, position_ids=position_ids
    )
    rows: Any = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
    if all(objective.trains):
        with local_positions(model, position_ids):
            long, short = hidden_states_for(model, head, **rows).chunk(2)
    else:
        long, short = _one_by_one(model, head, rows, objective)
    targets = labels.chunk(2)
    if not all(objective.reads):
        # No row of the other view has a part in the loss.
        geometry = PairGeometry(geometry.length, 0, geometry.length)
        targets = [
            each if read else torch.full_like(each, NO_LABEL, dtype=torch.int64)
            for each, read in zip(targets, objective.reads, strict=True)
        ]
    settings = {"geometry": geometry, "objective": objective, "normalizers": normalizers}
    if isinstance(head, FullLogits):
        return alignment_loss_from_logits(long, short, *targets, **settings)
    return alignment_loss(
        long,
        short,
        head.weight,
        *targets,
        head_bias=head.bias,
        soft_cap=head.soft_cap,
        logit_scale=head.logit_scale,
        **settings,
    )


def _check_trained(model: nn.Module, head: Head | FullLogits) -> None:
    """Refuse what would train another loss, or leave the head as it was, in silence."""
    copied = None if isinstance(head, FullLogits) or head.copy_of is None else unwrap_saved(head.copy_of)
    if copied is not None and copied.weight.requires_grad:
        raise UsageError(
            "the output head is trained, and its weight is split over processes or offloaded: the loss would read a "
            "copy of it, which no gradient reaches",
            expected="FSDP2 or whole copies of the model, or a frozen head",
            fix="model.get_output_embeddings().requires_grad_(False)",
        )
    config: Any = unwrap(model).config
    # A model of text and images may have it in the configuration of its text.
    if any(getattr(each, "output_router_logits", False) for each in (config, config.get_text_config())):
        raise UsageError(
            "output_router_logits is True, and the objective has no router loss",
            expected="training without it",
            fix="model.config.output_router_logits = False",
        )


def _check_ids(model: nn.Module, input_ids: Tensor) -> None:
    """Refuse what are no rows of ids, and ids that the model has no embedding for: these stop a GPU's process."""
    require_kind("input_ids", input_ids, Tensor, "ids [2B, L]")
    rows = input_ids.ndim == 2 and input_ids.numel() > 0 and len(input_ids) % 2 == 0
    whole_numbers = input_ids.dtype in (torch.int64, torch.int32)
    require(
        rows and whole_numbers,
        f"input_ids are {list(input_ids.shape)} {input_ids.dtype}",
        "ids [2B, L] of the B long and the B short windows, int64 or int32",
    )
    size = getattr(unwrap(model).config.get_text_config(), "vocab_size", math.inf)
    least, most = torch.stack(input_ids.aminmax()).tolist()
    if least < 0 or most >= size:
        raise UsageError(
            f"input_ids hold {least if least < 0 else most}, and the model has a vocabulary of {size}",
            expected=f"0 .. {size - 1}",
            fix="tokenize the text with the tokenizer of this model",
        )


def _one_by_one(
    model: nn.Module, head: Head | FullLogits, rows: dict[str, Tensor | None], objective: Objective
) -> list[Tensor]:
    """Hidden states of both views, each with gradients only if it is trained; zeros for one that is not read."""
    found: dict[int, Tensor] = {}
    graded = torch.is_grad_enabled()
    for side, (read, trained) in enumerate(zip(objective.reads, objective.trains, strict=True)):
        own: Any = {name: None if each is None else each.chunk(2)[side] for name, each in rows.items()}
        if not read:
            continue
        with local_positions(model, own["position_ids"]), torch.set_grad_enabled(trained and graded):
            found[side] = hidden_states_for(model, head, **own)
        if not trained:
            # torch 2.8 would give the other pass the weights that autocast has cast here, without gradients.
            torch.clear_autocast_cache()
    return [found[side] if side in found else torch.zeros_like(found[1 - side]) for side in (0, 1)]
