"""Two FSDP2 processes train the Llama of `llama.py`, a GPU each; skipped where there is one GPU or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from part import Result, options


def main() -> None:
    asked = options()
    result = Result(asked.result)
    import torch

    count = torch.cuda.device_count()
    if asked.device == "cpu" or count < 2:
        reason = "one device" if count == 1 else "no GPU; `make check-recipes` shards on processors"
        result.keep(ok=None, skipped=True, headline=f"skipped: {reason}")
        return
    result.keep(ok=None, headline="did not end")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [
        str(Path(__file__).with_name("train.py")),
        "--device",
        asked.device,
        "--work",
        str(asked.work),
    ]
    command += ["--result", str(asked.result), *(["--small"] if asked.small else []), "sharded"]
    code = subprocess.run(command, check=False).returncode
    if code:
        result.keep(ok=False, headline=f"torchrun ended with {code}")


if __name__ == "__main__":
    main()
