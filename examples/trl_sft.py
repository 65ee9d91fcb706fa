"""The objective with TRL's SFTTrainer and a PEFT adapter. Five lines differ, each marked `# lengthwise`.

    python examples/trl_sft.py [MODEL]

MODEL is a hub id or folder; without one, a tiny model with made-up text is used. SFTTrainer tokenizes the texts and
packs them into stretches of STRETCH tokens, of which the collator cuts both windows; masked tokens (completions,
assistant turns) stay masked. Needs `pip install lengthwise[trl]`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import Trainer
from trl import SFTConfig, SFTTrainer

from lengthwise import AlignmentTrainer, Objective, PairCollator, View
from lengthwise.testing import save_tiny_model, tiny_text

LENGTH = 32  # tokens in each window; thousands for a real model
OFFSETS = (1, LENGTH // 2 - 1)
STRETCH = LENGTH + OFFSETS[1]


class AlignmentSFTTrainer(AlignmentTrainer, SFTTrainer): ...  # lengthwise


def train(model: Any, texts: Dataset, folder: str, objective: Objective) -> Trainer:
    """One epoch over the texts; the trainer, with its log."""
    args = SFTConfig(
        output_dir=folder,
        num_train_epochs=1,
        max_length=STRETCH,
        packing=True,
        packing_strategy="wrapped",  # lengthwise
        per_device_train_batch_size=4,
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        bf16=False,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = AlignmentSFTTrainer(
        model,
        args,
        objective=objective,  # lengthwise
        data_collator=PairCollator(View(LENGTH, offsets=OFFSETS)),  # lengthwise
        train_dataset=texts,
        peft_config=LoraConfig(r=4, target_modules="all-linear"),
    )
    trainer.train_dataset = trainer.train_dataset.filter(
        lambda row: len(row["input_ids"]) == STRETCH
    )  # lengthwise
    trainer.train()
    return trainer


def main(name: str | None = None) -> Trainer:
    with tempfile.TemporaryDirectory() as folder:
        name = name or str(save_tiny_model(Path(folder) / "model"))
        texts = Dataset.from_dict({"text": [tiny_text(300, seed=seed) for seed in range(8)]})
        return train(name, texts, folder, Objective(alpha=10.0, divergence="jeffreys"))


if __name__ == "__main__":
    main(*sys.argv[1:])
