"""The objective with transformers' Trainer. Three lines differ, each marked `# lengthwise`.

    python examples/transformers_trainer.py [MODEL]

MODEL is a hub id or folder; without one, a tiny model with made-up text is used. Take the marked lines out, and
`Trainer` for `AlignmentTrainer`, and it is an ordinary fine-tuning script. All of the Trainer's arguments keep their
meaning: gradient accumulation, checkpoints, mixed precision, `fsdp`, `torch_compile`, `report_to`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from lengthwise import AlignmentTrainer, Objective, PairCollator, View
from lengthwise.testing import save_tiny_model, tiny_text

LENGTH = 32  # tokens in each window; thousands for a real model
OFFSETS = (1, LENGTH // 2 - 1)
STRETCH = LENGTH + OFFSETS[1]


def train(
    model: nn.Module, stretches: Sequence[dict[str, Any]], folder: str, objective: Objective
) -> Trainer:
    """One epoch over stretches of STRETCH tokens; the trainer, with its log."""
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=1,
        per_device_train_batch_size=4,
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = AlignmentTrainer(  # lengthwise
        model,
        args,
        objective=objective,  # lengthwise
        data_collator=PairCollator(View(LENGTH, offsets=OFFSETS)),  # lengthwise
        train_dataset=stretches,
    )
    trainer.train()
    return trainer


def main(name: str | None = None) -> Trainer:
    with tempfile.TemporaryDirectory() as folder:
        name = name or str(save_tiny_model(Path(folder) / "model"))
        model = AutoModelForCausalLM.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name)
        ids = tokenizer(tiny_text(3000))["input_ids"]
        stretches = [{"input_ids": ids[i : i + STRETCH]} for i in range(0, len(ids) - STRETCH, STRETCH)]
        return train(model, stretches[:32], folder, Objective(alpha=10.0, divergence="jeffreys"))


if __name__ == "__main__":
    main(*sys.argv[1:])
