"""`bench/objective.py` on the GPU, one shape; its table and its failures."""

from __future__ import annotations

import json
import subprocess
import sys

from part import ROOT, Result, options

# Of the second shape only what the first is compared in.
FEWER = ["chunked_ce_triton", "fused_triton", "fused_torch", "chunked_ce_torch", "products"]
FEWER += ["liger_ce", "cce", "trl_ce", "torch_ce", "naive", "naive_ce"]


def main() -> None:
    asked = options()
    (shape,) = asked.rest
    result = Result(asked.result)
    result.keep(ok=None, headline="did not end")
    out = asked.work / f"bench-{shape}"
    command = [
        sys.executable,
        str(ROOT / "bench" / "objective.py"),
        "--one-process",
        "--device",
        asked.device,
    ]
    command += ["--shape", "tiny" if asked.small else shape, "--dtype", "bfloat16", "--out", str(out)]
    command += ["--seconds", str(asked.seconds - 12), "--threads", "4" if asked.device == "cuda" else "1"]
    if shape != "llama3":
        command += ["--rows", *FEWER]
    code = subprocess.run(command, check=False).returncode
    written = out / "objective.json"
    document = json.loads(written.read_text()) if written.exists() else {"results": []}
    rows = document["results"][0]["rows"] if document["results"] else {}
    timed = [row for row, found in rows.items() if found["passes"]]
    ours = [row for row in rows if row.startswith(("fused", "chunked")) and rows[row]["failed"]]
    result.keep(
        **document,
        table=(out / "objective.md").read_text() if written.exists() else "",
        ok=code == 0 and bool(timed) and (asked.device == "cpu" or not ours),
        headline=f"{len(timed)} of {len(rows)} rows timed",
        failures=[f"{row}: {found['failed']}" for row, found in rows.items() if found["failed"]],
    )


if __name__ == "__main__":
    main()
