"""Each of the two processes of test_sharing.py that hold a model together, with batches that two do not divide."""

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

from lengthwise.machine import is_main_process
from lengthwise.measure import Perplexity, run
from lengthwise.results import Results
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer

TEXTS = [tiny_text(120, seed=seed) for seed in range(3)]


def measured(model: torch.nn.Module, out: Path | None = None) -> Results:
    """Three batches of one window."""
    return run(Perplexity(lengths=(32,), windows=3), (model, tiny_tokenizer()), TEXTS, out=out)


def whole() -> torch.nn.Module:
    return tiny_llama(tie_word_embeddings=False).double()


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    model = whole()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    found = measured(model, Path(sys.argv[1]) / "run")
    if is_main_process():
        (Path(sys.argv[1]) / "in-memory.json").write_text(measured(model).to_json())
    else:
        measured(model)
    # Rank 0 holds the store, which the other one reads the last results from.
    distributed.barrier()
    distributed.destroy_process_group()
