"""LoRA steps of the library on the Llama of `llama.py`: recipe, Trainer, fused objective, saved adapter.

With `-- sharded` as one of torchrun's processes: all weights, sharded by FSDP2.
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

from llama import folders
from part import Result, options


def main() -> None:
    asked = options()
    import torch

    from lengthwise.alignment import kernels
    from lengthwise.machine import is_main_process
    from lengthwise.training import read_recipe, train

    sharded = "sharded" in asked.rest
    result = Result(asked.result) if is_main_process() else None
    if result is not None:
        result.keep(ok=None, headline="did not end")
    model, text = folders(asked.work)
    length = 128 if asked.small else 4096 if sharded else 8192
    changes = [
        f"model={model}",
        f"data.corpus={text}",
        "data.split=all",
        f"length={length}",
        "steps=3",
        "save_every=3",
        "optimizer.warmup_steps=0",
        "batch.size=2",
        "batch.micro=1",
        "precision=bfloat16",
        "gradient_checkpointing=true",
    ]
    changes += ["device=cpu"] if asked.device == "cpu" else []
    changes += ["adapter=null", "parallel.sharding=full_shard"] if sharded else []
    recipe = read_recipe("smollm2-lora", changes)
    out = asked.work / ("sharded" if sharded else "lora")
    if asked.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = train(recipe, out)
    seconds = time.monotonic() - started
    if result is None:
        return
    # Warnings after the first of a kind say nothing new.
    messages = list({str(one.message)[:300]: None for one in said})
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps]
    found: dict[str, Any] = {
        "length": length,
        "steps": steps,
        "facts": {key: value for key, value in results.provenance.items() if not isinstance(value, dict)},
        "warnings": messages,
        "seconds": seconds,
        "kernels_pass": kernels.kernels_pass(torch.device("cuda", 0)) if asked.device == "cuda" else None,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if asked.device == "cuda" else None,
    }
    sound = all(loss == loss and 0 < loss < 100 for loss in losses) and len(losses) == 3
    fused = results.provenance.get("full_logits") is None
    peak = "" if found["peak_gib"] is None else f", peak {found['peak_gib']:.1f} GiB"
    result.keep(
        **found,
        ok=sound and fused and found["kernels_pass"] is not False,
        headline=f"losses {', '.join(f'{loss:.4f}' for loss in losses)} at L = {length}; {seconds:.0f} s{peak}; "
        f"{'fused' if fused else 'FULL LOGITS'}, kernels {found['kernels_pass']}",
    )
    print("\n".join(messages))
    print(json.dumps(found["facts"], default=str))


if __name__ == "__main__":
    main()
