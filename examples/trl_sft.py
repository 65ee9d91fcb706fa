"""The objective with TRL's SFTTrainer and a PEFT adapter. Five lines differ, each marked `# lengthwise`.

    python examples/trl_sft.py [MODEL]

MODEL is a hub id or folder; without one, a tiny model with made-up text is used. `pair_windows` makes rows of the
texts, chats or prompts of any data set, of which the collator cuts both windows; of prompts only the completions are
targets. Needs `pip install lengthwise[trl]`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer, Trainer
from trl import SFTConfig, SFTTrainer

from lengthwise import AlignmentTrainer, Objective, PairCollator, View, pair_windows
from lengthwise.testing import save_tiny_model, tiny_text

LENGTH = 32  # tokens in each window; thousands for a real model
VIEW = View(LENGTH, offsets=(1, LENGTH // 2 - 1))


class AlignmentSFTTrainer(AlignmentTrainer, SFTTrainer): ...  # lengthwise


def train(model: Any, tokenizer: Any, texts: Dataset, folder: str, objective: Objective) -> Trainer:
    """One epoch over the texts; the trainer, with its log."""
    args = SFTConfig(
        output_dir=folder,
        num_train_epochs=1,
        max_length=None,  # lengthwise
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
        data_collator=PairCollator(VIEW),  # lengthwise
        train_dataset=pair_windows(texts, tokenizer, VIEW, packing=True),  # lengthwise
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, target_modules="all-linear"),
    )
    trainer.train()
    return trainer


def main(name: str | None = None) -> Trainer:
    with tempfile.TemporaryDirectory() as folder:
        name = name or str(save_tiny_model(Path(folder) / "model"))
        texts = Dataset.from_dict({"text": [tiny_text(300, seed=seed) for seed in range(8)]})
        tokenizer = AutoTokenizer.from_pretrained(name)
        return train(name, tokenizer, texts, folder, Objective(alpha=10.0, divergence="jeffreys"))


if __name__ == "__main__":
    main(*sys.argv[1:])
