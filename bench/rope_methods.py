"""What each rope method costs in a step (forward and backward) beside plain rope, in one run.

    OMP_NUM_THREADS=1 python bench/rope_methods.py --out bench/rope_methods.json

Processor time of the process, so that other programs disturb little; the methods take turns in each round, and
the medians of the rounds are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from lengthwise.checkpoints import extend
from lengthwise.files import atomic_write_json
from lengthwise.positions import ROPE_METHODS
from lengthwise.testing import tiny_llama

LENGTH, ORIGINAL, FACTOR = 512, 128, 4.0
OPTIONS: dict[str, dict[str, Any]] = {"longrope": {"long_factor": [2.0] * 32}}


def make(method: str | None) -> Any:
    model = tiny_llama(
        vocab_size=2048,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=ORIGINAL,
        initializer_range=0.02,
    ).train()
    if method is not None:
        extend(model, method, factor=FACTOR, **OPTIONS.get(method, {}))
    return model


def step(model: Any, ids: torch.Tensor) -> float:
    started = time.process_time()
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    model.zero_grad()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    models = {name or "plain": make(name) for name in (None, *ROPE_METHODS)}
    ids = torch.randint(2048, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    for model in models.values():
        step(model, ids)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, model in models.items():
            seconds[name].append(step(model, ids))
    plain = statistics.median(seconds["plain"])
    result = {
        "parameters": sum(p.numel() for p in models["plain"].parameters()),
        "length": LENGTH,
        "factor": FACTOR,
        "plain_seconds": round(plain, 4),
        "relative": {name: round(statistics.median(taken) / plain, 3) for name, taken in seconds.items()},
    }
    print(json.dumps(result, indent=2))
    if arguments.out is not None:
        atomic_write_json(arguments.out, result)


if __name__ == "__main__":
    main()
