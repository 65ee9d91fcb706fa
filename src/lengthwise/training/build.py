"""From a recipe and its model to the Trainer that runs it, in this process among those of torchrun."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback, TrainingArguments

from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.errors import MissingError, UsageError, require_known
from lengthwise.machine import process_count
from lengthwise.subjects import LoadedModel
from lengthwise.text import TokenDocument, resolve_bos
from lengthwise.training.collator import PairCollator, WindowDataset
from lengthwise.training.measure_callback import MeasureCallback
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import add_adapter, held_out_text
from lengthwise.training.trainer import AlignmentTrainer, logged_parts
from lengthwise.versions import checkpointing, need

_WITH_PROCESSES = (
    "torchrun --nproc-per-node N with a GPU for each process, or --set parallel=null for whole copies"
)


def trainer_settings(recipe: Recipe, output: Path) -> dict[str, Any]:
    """What TrainingArguments are made of, with checkpoints in `output`; they log each step and print nothing.

    Needs no model. The arguments themselves have to wait for it: with FSDP they change how models load. UsageError
    if the step cannot be cut over the processes, or `parallel` has one process; MissingError if accelerate or the
    package of a tracker is not installed.
    """
    for tracker in recipe.report_to:
        if importlib.util.find_spec(tracker) is None:
            raise MissingError(
                f"report_to names {tracker}, which is not installed", fix=f"pip install {tracker}"
            )
    need("accelerate")
    cpu = recipe.on_cpu
    optimizer = recipe.optimizer
    micro, accumulation = recipe.batch.cut(process_count())
    sharding: dict[str, Any] = {}
    if (section := recipe.parallel) is not None:
        if process_count() < 2:
            raise UsageError(
                "parallel: spreads the training over processes, and this is one", fix=_WITH_PROCESSES
            )
        plugin = {
            "version": 2,
            "reshard_after_forward": section.sharding == "full_shard",
            "cpu_offload": section.offload,
            "state_dict_type": "FULL_STATE_DICT",
        }
        # Otherwise gradients are kept whole on every device until the last micro-batch of a step.
        accelerator = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
        sharding = {"fsdp": True, "fsdp_config": plugin, "accelerator_config": accelerator}
    return {
        "output_dir": str(output),
        "max_steps": recipe.steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "max_grad_norm": optimizer.max_grad_norm or 0.0,
        "seed": recipe.seed,
        "bf16": recipe.precision == "bfloat16",
        "use_cpu": cpu,
        # transformers' own way, also with sharding: accelerate's does not restore the random state for dropout.
        checkpointing(): recipe.gradient_checkpointing,
        # The re-entrant form gives adapters on a frozen base no gradient.
        f"{checkpointing()}_kwargs": {"use_reentrant": False},
        "dataloader_pin_memory": not cpu,
        "ddp_find_unused_parameters": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_steps": recipe.save_every,
        "report_to": list(recipe.report_to) or "none",
        "disable_tqdm": True,
        "per_device_eval_batch_size": micro,
        **(recipe.eval.arguments if recipe.eval else {}),
        **sharding,
    }


def build_trainer(
    recipe: Recipe,
    settings: dict[str, Any],
    loaded: LoadedModel,
    documents: Sequence[TokenDocument],
    *,
    callbacks: Sequence[TrainerCallback] = (),
) -> AlignmentTrainer:
    """The Trainer of `recipe` with its `trainer_settings`; the loaded model gets the recipe's adapter.

    UsageError if the text is too short for the windows, or `parallel` has no GPU.
    """
    size, seed = recipe.batch.size, recipe.seed
    bos = resolve_bos(loaded.tokenizer, recipe.data.bos)
    given: dict[str, Any] = {}
    text, kept, held = None, list(callbacks), recipe.eval
    if held is not None:
        text, other = held_out_text(recipe, loaded.tokenizer)
        # Whole batches for all processes.
        steps = -(-held.windows // size)
        given["eval_dataset"] = WindowDataset(other, recipe.view, batch_size=size, steps=steps, seed=seed)
        given["processing_class"] = loaded.tokenizer
        if "/" not in held.metric:
            known = [f"eval_{name}" for name in ("loss", *logged_parts(recipe.objective))]
            require_known(held.metric, known, "eval.metric is in no evaluation:")
        kept += [EarlyStoppingCallback(held.patience)] if held.patience else []
    trainer = _RecipeTrainer(
        recipe,
        add_adapter(loaded.model, recipe.adapter),
        TrainingArguments(**settings),
        objective=recipe.objective,
        train_dataset=WindowDataset(documents, recipe.view, batch_size=size, steps=recipe.steps, seed=seed),
        callbacks=kept,
        data_collator=PairCollator(recipe.view, bos_id=bos, seed=seed),
        **given,
    )
    # Otherwise it remarks on a second callback of one class.
    with quiet_transformers():
        for measurement in [] if held is None else held.measured():
            trainer.add_callback(MeasureCallback(trainer, measurement, text if measurement.reads else None))
    # It prints to standard output, which is for results.
    trainer.remove_callback(PrinterCallback)
    return trainer


class _RecipeTrainer(AlignmentTrainer):
    """An AlignmentTrainer with the recipe's own schedule, which reaches its last share in the last step."""

    def __init__(self, recipe: Recipe, *args: Any, **kwargs: Any) -> None:
        self._recipe = recipe
        super().__init__(*args, **kwargs)
        plugin: Any = getattr(self.accelerator.state, "fsdp_plugin", None)
        if recipe.parallel is not None and plugin is None:
            raise UsageError("parallel: shards on GPUs alone, and there is none", fix=_WITH_PROCESSES)
        if recipe.parallel is not None and plugin.mixed_precision_policy is not None:
            plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, reduce_dtype=torch.float32)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """As the Trainer; before it, learned frequencies are sharded by themselves, and stay float32 when gathered.

        bfloat16 rounds them by up to 0.4 %: at position 65536 that is radians.
        """
        if self._recipe.parallel is not None:
            assert isinstance(self.model, nn.Module)
            for _, module in clex_modules(self.model):
                fully_shard(module.frequencies)
        return super().create_optimizer(*args, **kwargs)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None:
            target = optimizer or self.optimizer
            assert isinstance(target, torch.optim.Optimizer)
            share = self._recipe.optimizer.share_of_peak
            self.lr_scheduler = LambdaLR(target, lambda step: share(step, num_training_steps))
            self._created_lr_scheduler = True
        return self.lr_scheduler
