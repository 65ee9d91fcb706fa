"""Make the weights of tiny-books, which the package ships in 16 bits.

    python -m tools.tiny_books src/lengthwise/checkpoints/tiny_books

Trains the model on the books (about two minutes on two cores) unless the cache has it, and writes weights in
float16, tokenizer, configuration and the record of the pretraining. Another processor rounds differently, so its
weights differ in bits while the held-out loss agrees to about 0.02 nats.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from lengthwise_studies.tiny_models import RECORD_FILE, TinyModel

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", RECORD_FILE)


def write_tiny_books(folder: Path) -> None:
    """Write the pretrained model to `folder`, its weights rounded to float16."""
    made = TinyModel().build()
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(made / name, folder / name)
    weights = load_file(made / "model.safetensors")
    save_file(
        {name: tensor.to(torch.float16) for name, tensor in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )


if __name__ == "__main__":
    write_tiny_books(Path(sys.argv[1]))
