"""The objective in a plain PyTorch loop. Three lines are new, each marked `# lengthwise`.

    python examples/plain_loop.py [MODEL]

MODEL is a hub id or folder; without one, a tiny model with made-up text is used. In place of the marked
lines the loop would have `loss = model(**batch).loss`. The model may be wrapped in DDP, FSDP2 (`fully_shard`),
PEFT or torch.compile, and the loop may be under `torch.autocast`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

from lengthwise import Objective, PairCollator, View, find_head, model_alignment_loss
from lengthwise.testing import save_tiny_model, tiny_text

LENGTH = 32  # tokens in each window; thousands for a real model
OFFSETS = (1, LENGTH // 2 - 1)
STRETCH = LENGTH + OFFSETS[1]


def train(model: nn.Module, stretches: Sequence[dict[str, Any]], objective: Objective) -> list[float]:
    """One epoch over stretches of STRETCH tokens; the losses."""
    loader = DataLoader(
        stretches,
        batch_size=4,
        collate_fn=PairCollator(View(LENGTH, offsets=OFFSETS)),  # lengthwise
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    head = find_head(model)  # lengthwise
    model.train()
    for batch in loader:
        loss = model_alignment_loss(model, head, **batch, objective=objective).loss  # lengthwise
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main(name: str | None = None) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        name = name or str(save_tiny_model(Path(folder) / "model"))
        model = AutoModelForCausalLM.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name)
    ids = tokenizer(tiny_text(3000))["input_ids"]
    stretches = [{"input_ids": ids[i : i + STRETCH]} for i in range(0, len(ids) - STRETCH, STRETCH)]
    return train(model, stretches[:32], Objective(alpha=10.0, divergence="jeffreys"))


if __name__ == "__main__":
    print(*(f"{loss:.4f}" for loss in main(*sys.argv[1:])))
