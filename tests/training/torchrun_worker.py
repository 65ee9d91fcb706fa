"""What test_distributed.py starts: run the jobs of a JSON file, one after the other."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainingArguments

from lengthwise.alignment import Objective
from lengthwise.machine import is_main_process, process_count
from lengthwise.testing import tiny_llama
from lengthwise.text import TokenDocument
from lengthwise.training import AlignmentTrainer, PairCollator, Recipe, View, WindowDataset, train


class SomeIgnored(PairCollator):
    """Ignores many labels of some samples, so that processes differ in their numbers of labels."""

    def __call__(self, items: Any) -> dict[str, Any]:
        batch = super().__call__(items)
        labels = batch["labels"]
        few = labels[:, :1] % 2 == 0
        batch["labels"] = torch.where(few & (labels % 3 != 0), -100, labels)
        return batch


def run_recipe(settings: dict[str, Any], out: Path) -> None:
    recipe = Recipe(**settings)
    train(recipe, out)


def run_double(out: Path, *, size: int, accumulation: int, checkpointing: bool) -> None:
    """An untied model in fp64 on labels that are spread unevenly; its log and weights go to `out`."""
    rng = np.random.default_rng(0)
    documents = [TokenDocument("d", rng.integers(0, 320, size=900, dtype=np.int32))]
    model = tiny_llama(tie_word_embeddings=False).double()
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=4,
        per_device_train_batch_size=size // accumulation // process_count(),
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-2,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        activation_checkpointing=checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
    )
    trainer = AlignmentTrainer(
        model,
        arguments,
        objective=Objective(alpha=5.0, divergence="jeffreys"),
        train_dataset=WindowDataset(documents, View(16, offsets=(1, 7)), batch_size=size, steps=4),
        data_collator=SomeIgnored(View(16)),
    )
    trainer.train()
    if is_main_process():
        out.mkdir(parents=True, exist_ok=True)
        (out / "log.json").write_text(json.dumps(trainer.state.log_history))
        torch.save(model.state_dict(), out / "weights.pt")


def run_jobs(jobs: list[dict[str, Any]]) -> None:
    kinds = {"recipe": run_recipe, "double": run_double}
    for job in jobs:
        kinds[job["kind"]](out=Path(job["out"]), **job["arguments"])


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    run_jobs(json.loads(Path(sys.argv[1]).read_text()))
