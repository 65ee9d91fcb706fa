"""What test_sharded.py starts in two processes: a LoRA whose weights FSDP2 shards, and the same run resumed.

`through.json` gets the lines of the log before it is resumed from the middle; the run folder keeps those after it.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from sharded_recipes import sharded, tiny
from torch import distributed
from trainers import metrics

from lengthwise.machine import is_main_process

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    run = folder / "run"
    changes = ("parallel.sharding=full_shard", "precision=float32", "steps=4", "save_every=2")
    recipe = tiny("llama3-8b-far", folder, *changes)
    distributed.init_process_group("gloo")
    sharded(recipe, run)
    if is_main_process():
        (folder / "through.json").write_text(json.dumps(metrics(run)))
        (run / "results.json").unlink()
        shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    distributed.barrier()
    sharded(recipe, run, resume=True)
    distributed.destroy_process_group()
