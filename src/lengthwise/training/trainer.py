"""The objective (Eq. 4) in transformers' Trainer and in any subclass of it."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from lengthwise.alignment import Normalizers, PairGeometry
from lengthwise.alignment.divergences import Objective
from lengthwise.alignment.tile import sum_dtype
from lengthwise.checkpoints import find_head
from lengthwise.checkpoints.saving import write_extension_files
from lengthwise.errors import LengthwiseError, UsageError, require_kind
from lengthwise.training.arguments import AlignmentArguments, check_even_batches
from lengthwise.training.collator import WindowDataset
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.sections import check_direction
from lengthwise.training.stretches import check_preparation, check_rows
from lengthwise.training.supported import check_supported, trained_pass
from lengthwise.versions import (
    before_each_step,
    divides_by_micro_batches,
    need_newer,
    shows_the_gradient_norm,
)

logger = logging.getLogger(__name__)

# The parts of the objective that are logged: attributes of AlignmentOutput.
_OF_PAIRS = ("misalignment", "entropy", "jeffreys", "divergence")
# What an evaluation sums, each with the place of its count in Normalizers.
_MEANS = ("cross_entropy_long", "cross_entropy_short", *_OF_PAIRS)
_OVER = [0, 1, *(2 for _ in _OF_PAIRS)]
_ROWS = ("input_ids", "labels", "position_ids", "attention_mask")


def logged_parts(objective: Objective) -> tuple[str, ...]:
    """The parts of `objective` that are logged: those of the views that it reads."""
    views = zip(("cross_entropy_long", "cross_entropy_short"), objective.reads, strict=True)
    return (
        "cross_entropy",
        *(name for name, read in views if read),
        *(_OF_PAIRS if all(objective.reads) else ()),
    )


class AlignmentTrainer(Trainer):
    """transformers' Trainer, or any subclass of it, with the loss CE + alpha * divergence of two views (Eq. 4).

        class AlignmentSFTTrainer(AlignmentTrainer, SFTTrainer): ...

    Batches are those of `PairCollator`, or look like them. A `WindowDataset` is read in its order. Everything else is
    the Trainer's. The other class's own `compute_loss` does not run (TRL's token accuracy is missing); what would
    change that loss alone is refused.

    The loss of an optimizer step, and of an evaluation, is that of the whole, however it is cut up: CE is divided by
    the label tokens and the divergence by the paired positions, summed over micro-batches and processes. (Where
    batches of several processes do not divide the data of an evaluation, accelerate reads its first samples twice.)

    Every log has, besides the Trainer's own numbers, `alpha`, the parts of the objective (nats per token of
    the whole step, averaged over the steps since the last log, so that cross_entropy + alpha * divergence = loss
    there too; only those of the views that the objective reads) and the last step's `offset` and `paired_positions`.
    No forward pass is added for them. An evaluation has the same parts, `eval_cross_entropy` and so on beside
    `eval_loss`. A loss that is NaN or infinite stops the run before the weights change.

    Args:
        model: a transformers causal LM, one wrapped by peft, or whatever else the other class makes one from. If
            its output head can be proven (`lengthwise.checkpoints.find_head`), no full logits are formed.
        args: the Trainer's arguments. With `AlignmentArguments` among its bases the objective is theirs.
        objective: what is minimised, with any other `args`.
        **trainer_arguments: the Trainer's other arguments (train_dataset, data_collator, callbacks, ...).

    Raises:
        UsageError: no objective, or two; `model_init`, label smoothing, another loss function or a router loss;
            several GPUs in one process; FSDP1, DeepSpeed, or a model that is not parallel over the data alone.
    """

    # compute_loss divides by the counts of the whole step, so the Trainer must not divide once more. Where the
    # Trainer does not ask, TRL would put a mark of this in the place of a loss function.
    loss_is_scaled_for_ga = None if divides_by_micro_batches() else True

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        *,
        objective: Objective | None = None,
        **trainer_arguments: Any,
    ) -> None:
        require_kind("args", args, TrainingArguments, "TrainingArguments, or AlignmentConfig")
        if objective is not None:
            require_kind("objective", objective, Objective, "an Objective")
        given = [args.objective()] if isinstance(args, AlignmentArguments) else []
        given += [] if objective is None else [objective]
        if len(given) != 1:
            raise UsageError(
                f"args is a {type(args).__name__}, and objective is {objective!r}",
                expected="an objective in one of them",
            )
        [self.objective] = given
        self._parts = logged_parts(self.objective)
        if args.fsdp:
            need_newer("FSDP")
            need_newer("FSDP2")
        check_direction(args, trainer_arguments.get("eval_dataset"))
        check_even_batches(args)
        check_preparation(args, **trainer_arguments)
        super().__init__(model=model, args=args, **trainer_arguments)
        if self.args is not args:
            # TRL's own, with a max_length.
            check_preparation(self.args, **trainer_arguments)
        if not shows_the_gradient_norm():
            self.add_callback(before_each_step(self._stop_unless_finite))
        check_rows(self.data_collator, self.train_dataset, self.eval_dataset)
        check_supported(self)
        # The Trainer divides by micro-batches itself; with transformers 5.2 to 5.4 accelerate would do so again.
        self.accelerator.gradient_accumulation_steps = 1
        # Otherwise one process reads a stream and sends the others pieces of its batches; a geometry has no pieces.
        self.accelerator.dataloader_config.dispatch_batches = False
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
        self._evaluated: list[Tensor] = []

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The objective's share of this micro-batch; in evaluation, the objective of this batch."""
        training = model.training
        rows = {name: inputs[name] for name in _ROWS if name in inputs}
        # The Trainer may add what its own loss takes.
        if not_read := sorted(inputs.keys() - {*_ROWS, "geometry", "skip_logits"}):
            raise UsageError(
                f"a batch holds {', '.join(not_read)}, which the objective does not read",
                expected=", ".join((*_ROWS, "geometry")),
                fix="leave it out of what the data_collator returns",
            )
        # The model's own forward applies the head within autocast; so does this.
        with trained_pass(model, inputs, self.accelerator), self.accelerator.autocast():
            output = model_alignment_loss(
                model,
                self.head,
                **rows,
                geometry=_geometry(inputs),
                objective=self.objective,
                normalizers=self._normalizers if training else None,
            )
        loss = output.loss
        wide = sum_dtype(loss.device)
        names = self._parts if training else _MEANS
        parts = torch.stack(
            [part.to(wide) for part in (loss.detach(), *(getattr(output, name) for name in names))]
        )
        if not training:
            counts = Normalizers.count(*inputs["labels"].chunk(2), geometry=_geometry(inputs))
            weights = parts.new_tensor([*vars(counts).values()])
            self._evaluated.append(torch.cat([parts[1:] * weights[_OVER], weights]))
        else:
            self._micro_batches.append(parts)
            # Gradients are averaged over processes, and the shares have to be added.
            loss = loss * self.accelerator.num_processes
            if divides_by_micro_batches():
                loss = loss * self.current_gradient_accumulation_steps
        return (loss, {"loss": loss}) if return_outputs else loss

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """The Trainer's, with the objective of the whole data set and its parts, however it is cut into batches."""
        self._evaluated = []
        done = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        if self._evaluated and done.metrics is not None:
            means, counts = self._over_processes(self._evaluated).split([len(_MEANS), 3])
            long, short, *_, divergence = parts = means / counts.clamp(min=1)[_OVER]
            cross_entropy = self.objective.trained_cross_entropy(long, short)
            found = dict(zip(_MEANS, parts.tolist(), strict=True)) | {
                "loss": (cross_entropy + self.objective.alpha * divergence).item(),
                "cross_entropy": cross_entropy.item(),
            }
            done.metrics.update(
                {f"{metric_key_prefix}_{name}": found[name] for name in ("loss", *self._parts)}
            )
        return done

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
        """The micro-batches of the next optimizer step; counts what its sums will be divided by.

        A callback that stops the training before its first step is heard. What a stream ends with is left out: it
        makes no step, and the Trainer would add its gradient to that of the next one.
        """
        if self.control.should_training_stop:
            return [], None
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if len(batches) < num_batches:
            if batches:
                logger.warning("left out: %d of the %d batches of a step", len(batches), num_batches)
            return [], None
        self._micro_batches = []
        counts = Normalizers(0, 0, 0)
        for batch in batches:
            geometry = _geometry(batch)
            counts += Normalizers.count(*batch["labels"].chunk(2), geometry=geometry)
            self._offset = geometry.offset
        self._normalizers = counts.over_ranks(device)
        return batches, items

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The Trainer's, at every step and before the optimizer moves; stops where it is not finite."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._stop_unless_finite(norm)
        return norm

    def _stop_unless_finite(self, norm: Any) -> None:
        # A loss scaler (fp16) tries scales that overflow, and skips such a step itself.
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            self._stop(f"the gradient norm is {float(norm)}")

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's; nothing is left of an earlier training, or of one with larger batches."""
        assert isinstance(self.model, nn.Module)
        if not any(each.requires_grad for each in self.model.parameters()):
            raise UsageError("no parameter of the model is trained", expected="one with requires_grad")
        self._steps = []
        return super()._inner_training_loop(*args, **kwargs)

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
            logs |= mean | last
        super().log(logs, start_time)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The Trainer's; beside an adapter, the record of its base model's extension, which PEFT does not write."""
        super()._save(output_dir, state_dict)
        if isinstance(self.model, nn.Module) and self.args.should_save:
            write_extension_files(self.model, Path(output_dir or self.args.output_dir or "."))

    # The Trainer drops columns that the model does not take. The collator has to see them: some it refuses.
    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        return dataset

    def _get_collator_with_removed_columns(self, data_collator: Any, description: str | None = None) -> Any:
        return data_collator

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None and self.args.world_size > 1 and self.args.device.type == "cpu":
            need_newer("resuming in several processes without GPUs")
        super()._load_optimizer_and_scheduler(checkpoint)

    def _finish_step(self) -> None:
        assert self._normalizers is not None
        sums = self._over_processes(self._micro_batches).tolist()
        step: dict[str, float] = dict(zip(("loss", *self._parts), sums, strict=True))
        if not math.isfinite(step["loss"]):
            self._stop(f"the loss is {step['loss']}")
        step["alpha"] = self.objective.alpha
        step["offset"] = self._offset
        step["paired_positions"] = int(self._normalizers.paired_positions)
        self._steps.append(step)

    def _over_processes(self, batches: list[Tensor]) -> Tensor:
        sums = torch.stack(batches).sum(dim=0)
        if self.accelerator.num_processes > 1:
            torch.distributed.all_reduce(sums)
        return sums

    def _stop(self, what: str) -> NoReturn:
        # The counter still shows the steps that are done.
        raise LengthwiseError(
            f"{what} at step {self.state.global_step + 1}; training stopped",
            expected="a finite number",
            fix="lower the learning rate or alpha, or clip gradients, and resume from the last checkpoint, "
            "which was saved before this step",
        )


def _geometry(batch: dict[str, Any]) -> PairGeometry:
    if "geometry" not in batch:
        raise UsageError(
            f"a batch holds {', '.join(batch)}, and no geometry",
            fix="give the trainer a data_collator that makes pairs: PairCollator(View(length))",
        )
    return batch["geometry"]
