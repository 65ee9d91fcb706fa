"""What tests of training share with the programs that they start: trainers in fp64, and the log of a run."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import TrainingArguments

from lengthwise import versions
from lengthwise.alignment import Objective, PairGeometry, next_token_labels
from lengthwise.machine import is_main_process, process_count
from lengthwise.measure import Perplexity
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import TokenDocument
from lengthwise.training import (
    AlignmentTrainer,
    MeasureCallback,
    PairCollator,
    Recipe,
    View,
    WindowDataset,
    pair_windows,
    train,
)

LENGTH = 16
GEOMETRY = PairGeometry(LENGTH, 5)
SETTINGS: dict[str, Any] = {
    "max_steps": 4,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
}
"""Arguments of any Trainer: four steps on the processor."""


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    """For the same windows in the same order, at one learning rate, without checkpoints."""
    steady = {"lr_scheduler_type": "constant", "save_strategy": "no"}
    # transformers 5.2 has it. Without it a plain Trainer shuffles; ours never does.
    if "train_sampling_strategy" in TrainingArguments.__dataclass_fields__:
        steady["train_sampling_strategy"] = "sequential"
    return TrainingArguments(str(folder), **(SETTINGS | steady | changes))


def windows(documents: Sequence[TokenDocument], *, batch_size: int = 8, steps: int = 4) -> WindowDataset:
    """Truncated windows, by default for four steps of eight samples."""
    return WindowDataset(documents, View(LENGTH, offsets=(1, 7)), batch_size=batch_size, steps=steps, seed=5)


def trainer_for(
    model: nn.Module, folder: Path, data: Any, *, arguments_: dict[str, Any] | None = None, **changes: Any
) -> AlignmentTrainer:
    """Of steps of eight samples, with the Jeffreys divergence."""
    settings: dict[str, Any] = {
        "objective": Objective(alpha=0.7, divergence="jeffreys"),
        "data_collator": PairCollator(View(LENGTH)),
    }
    given = {"per_device_train_batch_size": 8} | (arguments_ or {})
    return AlignmentTrainer(model, arguments(folder, **given), train_dataset=data, **(settings | changes))


def views(samples: int = 2) -> tuple[Tensor, Tensor]:
    """Random tokens of both views [2, samples, L] and their labels, paired as `GEOMETRY` says."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(320, (samples, GEOMETRY.stretch_length), generator=generator)
    both = torch.stack([tokens[:, GEOMETRY.long_tokens], tokens[:, GEOMETRY.short_tokens]])
    return both, next_token_labels(both)


class SomeIgnored(PairCollator):
    """Ignores many labels of some samples, so that micro-batches and processes differ in their numbers of labels."""

    def __call__(self, items: Any) -> dict[str, Any]:
        batch = super().__call__(items)
        labels = batch["labels"]
        few = labels[:, :1] % 2 == 0
        batch["labels"] = torch.where(few & (labels % 3 != 0), -100, labels)
        return batch


def shard_on_cpus() -> None:
    """accelerate shards on accelerators only; nothing in its way of doing so needs one."""
    assert PartialState().distributed_type in (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def train_double(out: Path, *, accumulation: int, checkpointing: bool = False, sharded: bool = False) -> None:
    """Four steps of an untied model in fp64 on labels that are spread unevenly; its log and weights go to `out`."""
    rng = np.random.default_rng(0)
    documents = [TokenDocument("d", rng.integers(0, 320, size=900, dtype=np.int32))]
    settings: dict[str, Any] = {}
    if checkpointing:
        settings[versions.checkpointing()] = True
        settings[f"{versions.checkpointing()}_kwargs"] = {"use_reentrant": False}
    if sharded:
        wrap = {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
        settings |= {"fsdp": True, "fsdp_config": {"version": 2, **wrap}}
    settings |= {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_eval_batch_size": 4 // process_count(),
    }
    how = arguments(
        out,
        per_device_train_batch_size=8 // accumulation // process_count(),
        gradient_accumulation_steps=accumulation,
        **settings,
    )
    if sharded:
        shard_on_cpus()
    trainer = AlignmentTrainer(
        tiny_llama(tie_word_embeddings=False).double(),
        how,
        objective=Objective(alpha=5.0, divergence="jeffreys"),
        train_dataset=windows(documents),
        eval_dataset=windows(documents, steps=1),
        data_collator=SomeIgnored(View(LENGTH)),
        processing_class=tiny_tokenizer(),
    )
    texts = [tiny_text(200, seed=seed) for seed in range(2)]
    trainer.add_callback(MeasureCallback(trainer, Perplexity(lengths=(32,), windows=2), texts))
    assert trainer.is_fsdp_enabled == sharded
    trainer.train()
    assert isinstance(next(trainer.model.parameters()), DTensor) == sharded
    trainer.save_model(str(out / "model"))
    if is_main_process():
        (out / "log.json").write_text(json.dumps(trainer.state.log_history))


class _Stream(torch.utils.data.IterableDataset[dict[str, Any]]):
    """A data set without a length, whose rows are of one, of two and of no stretch."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(2)
        sizes = (LENGTH + 7, 2 * (LENGTH + 7) + 3, 5) * 14
        return iter([{"input_ids": rng.integers(0, 320, size=size)} for size in sizes])


def train_stream(out: Path, *, kind: str) -> None:
    """Four steps of two batches of four from a stream, in accumulation or in processes; its log goes to `out`."""
    data, view = _Stream(), View(LENGTH, offsets=(1, 7))
    if kind == "datasets":
        data = Dataset.from_list(list(data)).to_iterable_dataset(num_shards=1)
    how = arguments(out, per_device_train_batch_size=4, gradient_accumulation_steps=2 // process_count())
    trainer = AlignmentTrainer(
        tiny_llama().double(),
        how,
        objective=Objective(alpha=5.0, divergence="jeffreys"),
        train_dataset=pair_windows(data, None, view),
        data_collator=PairCollator(view),
    )
    trainer.train()
    if is_main_process():
        (out / "log.json").write_text(json.dumps(trainer.state.log_history))


def metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of a run's log."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def run(recipe: Recipe, out: Path) -> list[dict[str, Any]]:
    """Train, and the lines of the log."""
    train(recipe, out)
    return metrics(out)
