"""A fixed set of small runs, one or more for each verb, and what is kept of each: the numbers, without times.

    python tests/golden/runs.py FOLDER [NAME...]      # make the runs and keep FOLDER/NAME.json of each

All compute in float64, where processors agree but for the last digits.
`tests/golden/runs/` holds what an earlier version gave.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from lengthwise import load
from lengthwise.checkpoints.loading import DTYPES
from lengthwise.cli.main import run

KEPT = Path(__file__).parent / "runs"

# name: command line without --out and --dtype. Runs may name earlier ones as {name}.
COMMANDS: dict[str, str] = {
    "measure": "measure tiny-books --lengths 64 --lengths 128 --windows 4 --seed 3",
    "measure-paper": "measure tiny-books --lengths 64 --windows 4 --estimator paper",
    "ppl": "ppl tiny-books --lengths 64 --lengths 128 --lengths 256 --windows 6 --batch-size 2",
    "limit": "limit tiny-books --max-length 1024 --reference 64 --windows 4",
    "longppl": "longppl tiny-books --max-length 512 --short 128 --windows 4",
    "longppl-again": "longppl tiny-books --key-tokens {longppl} --max-length 512 --short 128 --windows 4",
    "eval-needles": "eval tiny-books needle --lengths 256 --depths 0 --depths 100 --samples 2",
    "eval-likelihood": "eval tiny-books needle_multi_key babilong_qa1 --mode likelihood --lengths 512 --depths 50"
    " --samples 3",
    "train": "train tiny-books --set steps=3 --set batch.size=4 --set batch.micro=2 --set length=64",
    "train-gap": "train tiny-books-gap --set steps=2 --set batch.size=4 --set batch.micro=4 --set length=64",
    "ppl-trained": "ppl {train}/model --lengths 64 --windows 4",
}


def make_runs(folder: Path, names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Run the commands below `folder`; what is kept of each, by name."""
    # Its first use writes it into the cache, as float32.
    load("tiny-books")
    kept = {}
    for name, command in COMMANDS.items():
        if names is not None and name not in names:
            continue
        places = {other: folder / other for other in COMMANDS}
        words = [word.format(**places) for word in command.split()]
        if words[0] != "train":
            words += ["--dtype", "float64"]
        with in_float64():
            code = run([*words, "--out", str(folder / name)])
        # 143: the verb was stopped by a signal, and no number is wrong.
        assert code == 0, f"{name} ended with {code}"
        kept[name] = keep(json.loads((folder / name / "results.json").read_text()), folder)
    return kept


class _Wide(TorchFunctionMode):
    """A call of a torch function that asks for float32 gets float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        named = {name: _wider(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wider, args), **named)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Whatever is loaded, trained and measured inside is in float64.

    A model of dtype float64 alone is not enough: transformers computes norms and rotary angles in float32, whatever
    the dtype of the model, and a recipe trains in float32 or bfloat16.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.dict(DTYPES, {"float32": torch.float64}), _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


def keep(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What must stay: all but prose, times and versions, with the folder's own path taken out."""
    kept = {name: results[name] for name in ("kind", "model_name", "config", "rows", "partial")}
    return json.loads(json.dumps(kept).replace(str(folder), "RUNS"))


def written(kept: dict[str, Any]) -> str:
    """JSON with one row a line, so that a difference is easy to see."""
    rows = ",\n".join(json.dumps(row) for row in kept["rows"])
    others = {name: value for name, value in kept.items() if name != "rows"}
    return json.dumps(others)[:-1] + f', "rows": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    import tempfile

    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for run_name, found in make_runs(Path(temporary), sys.argv[2:] or None).items():
            (target / f"{run_name}.json").write_text(written(found))
