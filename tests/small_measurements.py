"""Every measurement in its smallest form, on a tiny model and four texts."""

from typing import Any

from lengthwise.testing import tiny_text

TEXTS = [tiny_text(600, seed=seed) for seed in range(4)]
SMALL: dict[str, dict[str, Any]] = {
    "measure": {"lengths": (16, 32), "windows": 2},
    "ppl": {"lengths": (16, 32), "windows": 2},
    "limit": {"max_length": 64, "reference": 16, "passage": 8, "scored": 4, "windows": 2},
    "longppl": {"max_length": 48, "short": 16, "windows": 2, "alpha": 0.0, "beta": -20.0},
    "compare": {"lengths": (128,), "windows": 2},
    "predictions": {"lengths": (128,), "windows": 2},
    "eval": {
        "tasks": ("needle_multi_key", "tracking"),
        "mode": "likelihood",
        "lengths": (640,),
        "samples": 1,
    },
}
