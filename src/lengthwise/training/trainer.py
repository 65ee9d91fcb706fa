"""`AlignmentTrainer` and its config, and the mixin that gives the objective (Eq. 4) to any other Trainer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from lengthwise.alignment import Normalizers, PairGeometry
from lengthwise.alignment.divergences import Objective
from lengthwise.alignment.tile import sum_dtype
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.models import find_head
from lengthwise.training.alignment_config import AlignmentArguments
from lengthwise.training.collator import COLUMNS, PairCollator, WindowDataset
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
# Rows of a batch.
_ROWS = ("input_ids", "labels", "position_ids", "attention_mask")
# What takes both views.
_PAIR_PARTS = ("misalignment", "entropy", "jeffreys", "divergence")


def logged_parts(objective: Objective) -> tuple[str, ...]:
    """The parts of `objective` that are logged: those of the views that it reads."""
    long, short = objective.reads
    left_out = (
        () if long and short else (*_PAIR_PARTS, "cross_entropy_short" if long else "cross_entropy_long")
    )
    return tuple(name for name in PARTS if name not in left_out)


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
    started by torchrun, FSDP2. The other class's own `compute_loss` does not run (TRL's token accuracy is missing);
    what would change that loss alone is refused.

    The loss of an optimizer step is that of the whole step, however it is cut up: CE is divided by the label
    tokens of the step and the divergence by its paired positions, summed over micro-batches and processes.

    Every log has, beside the Trainer's own numbers, `alpha`, the parts of the objective (PARTS: nats per
    token of the whole step; averaged over the steps since the last log, so that cross_entropy + alpha *
    divergence = loss there too) and the last step's `offset` and `paired_positions`. They are by-products of the
    loss: no forward pass is added. Parts that need a view that the objective does not read are left out. A loss that
    is NaN or infinite stops the run before the weights change.

    Args:
        model: a transformers causal LM, one wrapped by peft, or whatever else the other class makes one from. If
            its output head can be proven (`lengthwise.models.find_head`), no full logits are formed.
        args: the Trainer's arguments. With an `AlignmentConfig`, or another class with `AlignmentArguments`, the
            objective is theirs; with any other, give it below.
        objective: what is minimised.
        **trainer_arguments: the Trainer's other arguments (train_dataset, data_collator, callbacks, ...).

    Raises:
        UsageError: an impossible objective; `model_init`, label smoothing, another loss function or a router loss;
            several GPUs in one process; FSDP1, DeepSpeed, or a model that is parallel in another way than over the
            data.
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
        given = [args.objective()] if isinstance(args, AlignmentArguments) else []
        given += [] if objective is None else [objective]
        if len(given) != 1:
            raise UsageError(
                f"args is a {type(args).__name__}, and objective is {objective!r}",
                expected="an objective in one of them",
            )
        [self.objective] = given
        self._parts = logged_parts(self.objective)
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
        geometry, training = _geometry(inputs), model.training
        # The Trainer may add what its own loss takes (`skip_logits`).
        rows = {name: inputs[name] for name in _ROWS if name in inputs}
        # The model's own forward applies the head within autocast; so does this.
        with self.accelerator.autocast():
            output = model_alignment_loss(
                model,
                self.head,
                **rows,
                geometry=geometry,
                objective=self.objective,
                normalizers=self._normalizers if training else None,
            )
        loss = output.loss
        if training:
            parts = [loss.detach(), *(getattr(output, name) for name in self._parts)]
            wide = sum_dtype(loss.device)
            self._micro_batches.append(torch.stack([part.to(wide) for part in parts]))
            self._last_offset = geometry.offset
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
        counts = Normalizers(0, 0, 0)
        for batch in batches:
            geometry = _geometry(batch)
            counts += Normalizers.count(*batch["labels"].chunk(2), geometry=geometry)
        self._normalizers = counts.over_ranks(device)
        return batches, items

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The Trainer's, at every step and before the optimizer moves; stops where it is not finite."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        # A loss scaler (fp16) tries scales that overflow, and skips such a step itself.
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            self._stop(f"the gradient norm is {float(norm)}")
        return norm

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        # The windows of one step share an offset, so they have to stay together.
        if isinstance(dataset, WindowDataset):
            return SequentialSampler(dataset)
        return super()._get_train_sampler(train_dataset)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's log, with the parts of the objective."""
        if "loss" in logs and self._steps:
            steps, self._steps = self._steps, []
            names = ("loss", *self._parts, "alpha")
            mean = {name: sum(step[name] for step in steps) / len(steps) for name in names}
            last = {name: steps[-1][name] for name in ("offset", "paired_positions")}
            logs |= {**mean, **last}
        super().log(logs, start_time)

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
        """Keep what `PairCollator` reads: the Trainer drops what the model does not take."""
        super()._set_signature_columns_if_needed()
        assert self._signature_columns is not None
        self._signature_columns += [name for name in COLUMNS if name not in self._signature_columns]

    def _finish_step(self) -> None:
        assert self._normalizers is not None
        sums = torch.stack(self._micro_batches).sum(dim=0)
        if self.accelerator.num_processes > 1:
            torch.distributed.all_reduce(sums)
        step: dict[str, float] = dict(zip(("loss", *self._parts), sums.tolist(), strict=True))
        if not math.isfinite(step["loss"]):
            self._stop(f"the loss is {step['loss']}")
        step["alpha"] = self.objective.alpha
        step["offset"] = self._last_offset
        step["paired_positions"] = int(self._normalizers.paired_positions)
        self._steps.append(step)

    def _stop(self, what: str) -> NoReturn:
        # The counter still shows the steps that are done.
        raise LengthwiseError(
            f"{what} at step {self.state.global_step + 1}; training stopped",
            expected="a finite number",
            fix="lower the learning rate or alpha, or clip gradients, and resume from the last checkpoint, "
            "which was saved before this step",
        )

    def _refuse_what_is_not_supported(self) -> None:
        """Refuse what hides the output head from gradients, shares batches, or changes another loss."""
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        config: Any = getattr(self.model, "config", None)
        sharing = self.get_tp_size() * self.get_cp_size() * self.get_sp_size()
        no_such_term = "training without it: the objective has no such term"
        refused = {
            f"{self.args.n_gpu} GPUs in one process": (
                self.args.n_gpu > 1,
                "torchrun: one process for each GPU",
            ),
            "FSDP1": (plugin is not None and plugin.fsdp_version == 1, 'FSDP2: fsdp_config={"version": 2}'),
            "DeepSpeed": (self.is_deepspeed_enabled, "FSDP2, or whole copies of the model"),
            f"{sharing} processes that share each batch (tensor, context or sequence parallel)": (
                sharing > 1,
                "processes with different batches: DDP, FSDP2",
            ),
            "model_init": (self.model_init is not None, "a model: its output head is found once"),
            "label_smoothing_factor": (self.args.label_smoothing_factor > 0, no_such_term),
            "compute_loss_func": (self.compute_loss_func is not None, no_such_term),
            "loss_type='dft'": (getattr(self.args, "loss_type", None) == "dft", no_such_term),
            "output_router_logits": (getattr(config, "output_router_logits", False), no_such_term),
        }
        for what, (given, expected) in refused.items():
            if given:
                raise UsageError(f"the objective cannot be trained with {what}", expected=expected)


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
