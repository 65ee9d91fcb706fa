"""`limit` at 32k on the Llama of `llama.py` in bf16: reading once, branches off its cache, a result."""

from __future__ import annotations

import time

from llama import folders
from part import Result, options


def main() -> None:
    asked = options()
    result = Result(asked.result)
    result.keep(ok=None, headline="did not end")
    import torch

    from lengthwise.measure import Limit, run
    from lengthwise.settings import Subject

    model, text = folders(asked.work)
    length, reference = (512, 64) if asked.small else (32768, 1024)
    subject = Subject(model=str(model), dtype="bfloat16", device=asked.device, text=str(text), split="all")
    started = time.monotonic()
    results = run(Limit(max_length=length, reference=reference, windows=2), subject, out=asked.work / "limit")
    seconds = time.monotonic() - started
    peak = torch.cuda.max_memory_allocated() / 2**30 if asked.device == "cuda" else None
    rows = [
        {"metric": row.metric, "value": row.value, "low": row.ci_low, "high": row.ci_high}
        for row in results.rows
        if row.metric in ("sound_up_to", "used_up_to", "tolerance", "used_level")
    ]
    losses = [row.value for row in results.rows if row.metric == "loss"]
    sound = bool(losses) and all(loss is not None and 0 < loss < 100 for loss in losses)
    result.keep(
        ok=sound,
        rows=rows,
        losses=losses[:8],
        notes=results.notes,
        seconds=seconds,
        peak_gib=peak,
        headline=f"length {length}, 2 windows: {seconds:.1f} s"
        + ("" if peak is None else f", peak {peak:.1f} GiB")
        + (f", loss {losses[0]:.3f} .. {losses[-1]:.3f}" if sound else ", losses are not sound"),
    )
    print(rows)


if __name__ == "__main__":
    main()
