"""`AlignmentTrainer` and its config, and the mixin that gives the objective (Eq. 4) to any other Trainer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from lengthwise.alignment import AlignmentOutput, Normalizers, PairGeometry
from lengthwise.alignment.divergences import CrossEntropyOn, Detach, DivergenceName, Objective, as_objective
from lengthwise.config import parse_yaml
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.models import find_head
from lengthwise.training.collator import PairCollator, WindowDataset
from lengthwise.training.model_loss import model_alignment_loss

# The parts of the objective that are logged: attributes of AlignmentOutput.
PARTS = (
    "cross_entropy",
    "cross_entropy_long",
    "cross_entropy_short",
    "misalignment",
    "entropy",
    "jeffreys",
    "divergence",
)
# Logged beside them where the objective weighs tokens.
WEIGHT_PARTS = ("weight", "weight_capped")


_TERMS = tuple(each.name for each in fields(Objective))


@dataclass
class AlignmentArguments:
    """The objective's fields of a config class: `class MyConfig(AlignmentArguments, SFTConfig)`, for any Trainer."""

    alpha: float = field(
        default=0.1, metadata={"help": "Weight of the divergence. The paper uses 0.1 to 0.3 with sce."}
    )
    divergence: DivergenceName = field(
        default="sce", metadata={"help": "What alpha weighs: see `lengthwise ls methods`."}
    )
    detach: Detach = field(
        default="none", metadata={"help": "The side or sides that get no gradient from the divergence."}
    )
    min_context: int | None = field(
        default=None,
        metadata={"help": "Least context of a paired token in the short view, in tokens. Default: L // 2."},
    )
    ce_on: CrossEntropyOn = field(
        default="both", metadata={"help": "The view whose cross entropy is trained on: both, long or short."}
    )
    weighting: str = field(
        default="none",
        metadata={"help": "Weights of the tokens' cross entropies: see `lengthwise ls methods`."},
    )
    weighting_options: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Options of the weighting, as a mapping or as JSON: '{\"cap\": 5}'."}
    )

    def objective(self) -> Objective:
        """These fields as an Objective.

        Raises:
            UsageError: as `Objective`; options that are no mapping.
        """
        terms = {name: getattr(self, name) for name in _TERMS}
        options = terms["weighting_options"]
        if isinstance(options, str):
            options = parse_yaml(options, source="weighting_options")
        return Objective(**{**terms, "weighting_options": options or {}})


@dataclass
class AlignmentConfig(AlignmentArguments, TrainingArguments):
    """transformers' TrainingArguments with the objective's fields: saved with them, and parsed by HfArgumentParser.

    Raises:
        UsageError: as `Objective`.
    """

    def __post_init__(self) -> None:
        self.objective()
        super().__post_init__()


if TYPE_CHECKING:
    _AnyTrainer = Trainer
else:
    _AnyTrainer = object


class AlignmentMixin(_AnyTrainer):
    """Gives any subclass of transformers' Trainer the loss CE + alpha * divergence of two views (Eq. 4).

        class AlignmentSFTTrainer(AlignmentMixin, SFTTrainer): ...

    Batches come from `PairCollator` (or look like its batches): `input_ids` and `labels` [2B, L], long rows
    first, labels aligned with rows, and `geometry`; where positions are sampled, `position_ids` and
    `attention_mask`. A `WindowDataset` is read in its order. Everything else is the Trainer's: checkpoints,
    resuming, gradient accumulation and checkpointing, mixed precision, `report_to`, `push_to_hub`, processes
    started by torchrun, FSDP2. What the other class computes in its own `compute_loss` (TRL's token accuracy) is
    not computed.

    The loss of an optimizer step is that of the whole step, however it is cut up: CE is divided by the label
    tokens of the step and the divergence by its paired positions, summed over micro-batches and processes.

    Every log has, beside the Trainer's own numbers, `alpha`, the parts of the objective (PARTS: nats per
    token of the whole step; averaged over the steps since the last log, so that cross_entropy + alpha *
    divergence = loss there too) and the last step's `offset` and `paired_positions`; with a weighting also the mean
    `weight` and the share at its cap, `weight_capped`. They are by-products of the loss: no forward pass is added.
    A loss that is NaN or infinite stops the run before the weights change.

    Args:
        model: a transformers causal LM, one wrapped by peft, or whatever else the other class makes one from. If
            its output head can be proven (`lengthwise.models.find_head`), no full logits are formed.
        args: the Trainer's arguments. With an `AlignmentConfig`, or another class with `AlignmentArguments`, the
            objective is theirs; with any other, give it below.
        objective: what is minimised.
        alpha, divergence, detach, min_context, ...: the fields of `Objective`, in place of `objective`.
        **trainer_arguments: the Trainer's other arguments (train_dataset, data_collator, callbacks, ...).

    Raises:
        UsageError: an impossible objective; several GPUs in one process; FSDP1, DeepSpeed, or a model that is
            parallel in another way than over the data.
    """

    # compute_loss divides by the counts of the whole step, so the Trainer must not divide once more.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        *,
        objective: Objective | None = None,
        **trainer_arguments: Any,
    ) -> None:
        names = [name for name in _TERMS if name in trainer_arguments]
        terms = {name: trainer_arguments.pop(name) for name in names}
        if isinstance(args, AlignmentArguments):
            if objective is not None or terms:
                raise UsageError(
                    f"{type(args).__name__} and {', '.join(names) or 'objective'} both set the objective",
                    expected="one of them",
                )
            objective = args.objective()
        self.objective = as_objective(objective, terms)
        self._parts = PARTS if self.objective.token_weighting is None else (*PARTS, *WEIGHT_PARTS)
        super().__init__(model=model, args=args, **trainer_arguments)
        self._refuse_what_is_not_supported()
        self._tell_collator()
        # The Trainer's own count of labels is for losses that divide by it.
        self.model_accepts_loss_kwargs = False
        assert isinstance(self.model, nn.Module)
        dtypes = {p.dtype for p in self.model.parameters() if p.is_floating_point()}
        # Parts that are trained in float32 beside a bfloat16 base fit together under autocast alone.
        with self.accelerator.autocast() if len(dtypes) > 1 else contextlib.nullcontext():
            self.head = find_head(self.model)
        self._normalizers: Normalizers | None = None
        self._micro_batches: list[Tensor] = []
        self._steps: list[dict[str, float]] = []
        self._last_offset = 0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The objective's share of this micro-batch; in evaluation, the objective of this batch."""
        training = model.training
        output = self._objective(model, inputs, self._normalizers if training else None)
        loss = output.loss
        if training:
            parts = torch.stack([loss.detach(), *(getattr(output, name) for name in self._parts)])
            self._micro_batches.append(parts.double())
            self._last_offset = _geometry(inputs).offset
            # Gradients are averaged over processes, and the shares have to be added.
            loss = loss * self.accelerator.num_processes
        return (loss, {"loss": loss}) if return_outputs else loss

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """The Trainer's, and after the last micro-batch of a step its sums, before the optimizer moves."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._finish_step()
        return loss

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """The micro-batches of the next optimizer step; counts what its sums will be divided by."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._micro_batches = []
        counts = torch.zeros(3, dtype=torch.float64, device=device)
        for batch in batches:
            geometry = _geometry(batch)
            rows = (batch["labels"] != -100).chunk(2)
            paired = len(rows[0]) * geometry.paired_positions
            counts += torch.stack([rows[0].sum(), rows[1].sum(), torch.tensor(paired, device=device)])
        self._normalizers = Normalizers(*self._over_processes(counts).tolist())
        return batches, items

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        # The windows of one step share an offset, so they have to stay together.
        if isinstance(dataset, WindowDataset):
            return SequentialSampler(dataset)
        return super()._get_train_sampler(train_dataset)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's log, with the parts of the objective; stops on a gradient that is not finite."""
        if "grad_norm" in logs and not math.isfinite(logs["grad_norm"]):
            self._stop(f"the gradient norm is {logs['grad_norm']}", self.state.global_step)
        if "loss" in logs and self._steps:
            steps, self._steps = self._steps, []
            mean = {name: sum(step[name] for step in steps) / len(steps) for name in ("loss", *self._parts)}
            last = {name: steps[-1][name] for name in ("offset", "paired_positions")}
            logs |= {**mean, "alpha": self.objective.alpha, **last}
        super().log(logs, start_time)

    def _objective(
        self, model: nn.Module, inputs: dict[str, Any], normalizers: Normalizers | None
    ) -> AlignmentOutput:
        _geometry(inputs)
        # The model's own forward applies the head within autocast; so does this.
        with self.accelerator.autocast():
            return model_alignment_loss(
                model, self.head, **inputs, objective=self.objective, normalizers=normalizers
            )

    def _tell_collator(self) -> None:
        """Have PairCollator pair the rows that the objective's `min_context` leaves."""
        least, collator = self.objective.min_context, self.data_collator
        if least is not None and isinstance(collator, PairCollator):
            if collator.min_context not in (None, least):
                raise UsageError(
                    f"min_context is {least} in the objective and {collator.min_context} in the data_collator",
                    expected="one value",
                )
            collator.min_context = least

    def _set_signature_columns_if_needed(self) -> None:
        """Keep an item's `draw` and `foreign` text: the Trainer drops what the model does not take."""
        super()._set_signature_columns_if_needed()
        assert self._signature_columns is not None
        self._signature_columns += [
            name for name in ("draw", "foreign") if name not in self._signature_columns
        ]

    def _finish_step(self) -> None:
        assert self._normalizers is not None
        sums = self._over_processes(torch.stack(self._micro_batches).sum(dim=0)).tolist()
        step: dict[str, float] = dict(zip(("loss", *self._parts), sums, strict=True))
        # The counter still shows the steps that are done.
        if not math.isfinite(step["loss"]):
            self._stop(f"the loss is {step['loss']}", self.state.global_step + 1)
        step["offset"] = self._last_offset
        step["paired_positions"] = int(self._normalizers.paired_positions)
        self._steps.append(step)

    def _over_processes(self, sums: Tensor) -> Tensor:
        if self.accelerator.num_processes > 1:
            torch.distributed.all_reduce(sums)
        return sums

    def _stop(self, what: str, step: int) -> NoReturn:
        raise LengthwiseError(
            f"{what} at step {step}; training stopped",
            expected="a finite number",
            fix="lower the learning rate or alpha, or clip gradients, and resume from the last checkpoint, "
            "which was saved before this step",
        )

    def _refuse_what_is_not_supported(self) -> None:
        if self.args.n_gpu > 1:
            raise UsageError(
                f"{self.args.n_gpu} GPUs in one process",
                expected="one process for each GPU",
                fix=f"torchrun --nproc_per_node {self.args.n_gpu} ..., or hide all but one GPU",
            )
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        refused = {
            "FSDP1 (fsdp_config version 1)": plugin is not None and plugin.fsdp_version == 1,
            "DeepSpeed": self.is_deepspeed_enabled,
        }
        for name, enabled in refused.items():
            if enabled:
                raise UsageError(
                    f"{name} gives no output head through which gradients can flow",
                    expected="FSDP2, or whole copies of the model (torchrun alone)",
                    fix='fsdp=True with fsdp_config={"version": 2}',
                )
        # Ranks that share a batch would be counted as if each had its own.
        sharing = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()
        if sharing > 1:
            raise UsageError(
                f"{sharing} processes share each batch (tensor, context or sequence parallel)",
                expected="processes with different batches: DDP, FSDP2",
            )


def _geometry(batch: dict[str, Any]) -> PairGeometry:
    if not {"input_ids", "labels", "geometry"} <= batch.keys():
        raise UsageError(
            f"a batch holds {', '.join(batch)}",
            expected="input_ids and labels of both views, and their geometry",
            fix="give the trainer a data_collator that makes them: PairCollator(length)",
        )
    return batch["geometry"]


class AlignmentTrainer(AlignmentMixin, Trainer):
    """transformers' Trainer with the alignment objective; arguments and behaviour as in `AlignmentMixin`."""
