"""A fixed set of small runs, one or more for each verb, and what is kept of each: the numbers, without times.

    OMP_NUM_THREADS=1 python tests/golden/runs.py FOLDER      # make the runs and keep FOLDER/NAME.json of each

`tests/golden/runs/` holds what an earlier version gave, and in `probe.txt` a hash of what a model computed on that
machine. `tests/test_golden_runs.py` compares names and counts exactly, and numbers with a tolerance: that of float64
where the probe is the same, that of float32 on a processor that rounds differently.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "runs"

# name: command line without --out. Runs may name earlier ones as {name}.
COMMANDS: dict[str, str] = {
    "measure": "measure tiny-books --length 64 --length 128 --limit 4 --seed 3",
    "measure-paper": "measure tiny-books --length 64 --limit 4 --estimator paper",
    "ppl": "ppl tiny-books --length 64 --length 128 --length 256 --limit 6 --batch-size 2",
    "recall": "recall tiny-books --distance 64 --distance 128 --distance 256 --limit 6",
    "limit": "limit tiny-books --max-length 1024 --reference 64 --limit 4",
    "longppl": "longppl tiny-books --max-length 512 --short 128 --limit 4",
    "longppl-again": "longppl tiny-books --key-tokens {longppl} --max-length 512 --short 128 --limit 4",
    "eval-needles": "eval tiny-books needle --length 256 --depth 0 --depth 100 --limit 2",
    "eval-likelihood": "eval tiny-books needle_multi_key babilong_qa1 --mode likelihood --length 512 --depth 50"
    " --limit 3",
    "train": "train tiny-books --set steps=3 --set batch.size=4 --set batch.micro=2 --set length=64",
    "train-gap": "train tiny-books-gap --set steps=2 --set batch.size=4 --set batch.micro=4 --set length=64",
    "ppl-trained": "ppl {train}/model --length 64 --limit 4",
    "synth": "reproduce figure1 --scale smoke",
    "synth-theory": "reproduce theorem2 --scale smoke",
}


def make_runs(folder: Path, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Run the commands below `folder`; what is kept of each, by name."""
    from lengthwise.cli.main import run

    kept = {}
    for name, command in COMMANDS.items():
        if names is not None and name not in names:
            continue
        places = {other: folder / other for other in COMMANDS}
        words = [word.format(**places) for word in command.split()]
        assert run([*words, "--out", str(folder / name)]) == 0, name
        kept[name] = keep(json.loads((folder / name / "results.json").read_text()), folder)
    return kept


def keep(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What must stay: all but prose, times and versions, with the folder's own path taken out."""
    kept = {name: results[name] for name in ("kind", "model_name", "config", "rows", "results", "partial")}
    return json.loads(json.dumps(kept).replace(str(folder), "RUNS"))


def written(kept: dict[str, Any]) -> str:
    """JSON with one row a line, so that a difference is easy to see."""
    rows = ",\n".join(json.dumps(row) for row in kept["rows"])
    others = {name: value for name, value in kept.items() if name != "rows"}
    return json.dumps(others)[:-1] + f', "rows": [\n{rows}\n]}}\n'


def probe() -> str:
    """Of what tiny-books computes here: processors with the same instructions give the same bits.

    One forward and one backward pass, in float32.
    """
    import torch

    from lengthwise import load

    model = load("tiny-books").model
    ids = torch.arange(256)[None]
    output = model(input_ids=ids, labels=ids)
    output.loss.backward()
    tensors = [output.logits, *(parameter.grad for parameter in model.parameters())]
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


if __name__ == "__main__":
    import tempfile

    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for run_name, found in make_runs(Path(temporary), sys.argv[2:] or None).items():
            (target / f"{run_name}.json").write_text(written(found))
    (target / "probe.txt").write_text(probe() + "\n")
