"""Broken models, full disks, full memory: a clear error, its exit code, and nothing lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lengthwise.testing import tiny_tokenizer
from tests.cli.small_runs import refused
from tests.tiny_folders import rewritten

SIZES = ("--lengths", 16, "--windows", 2)


def without(folder: Path, files: str) -> None:
    for file in folder.glob(files):
        file.unlink()


def poisoned(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# What is done to a model, the exit code, and words of the message.
BROKEN: dict[str, tuple[Callable[[Path], Any], int, tuple[str, ...]]] = {
    "no weights": (lambda folder: without(folder, "*.safetensors"), 3, ("own", "model.safetensors")),
    "no tokenizer": (lambda folder: without(folder, "token*"), 3, ("own", "tokenizer")),
    "a larger tokenizer": (
        lambda folder: tiny_tokenizer(vocab_size=350).save_pretrained(folder),
        2,
        ("has ids up to 349, the model a vocabulary of 320",),
    ),
    "weights that are NaN": (poisoned, 2, ("NaN or infinite: model.norm.weight", "fix: save or download")),
    "a configuration without heads": (lambda folder: rewritten(folder, num_attention_heads=0), 2, ("own",)),
    "a configuration of no causal model": (
        lambda folder: rewritten(folder, model_type="bert", architectures=["BertForMaskedLM"]),
        2,
        ("model",),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model(lengthwise: Callable[..., Any], model: str, text: list[str], name: str) -> None:
    damage, code, expected = BROKEN[name]
    damage(Path(shutil.copytree(model, "own")))
    refused(lengthwise("measure", "./own", *text, *SIZES, "--out", "run"), code, *expected)
    if "NaN" not in name:
        assert not Path("run/config.yaml").exists(), "a corrected command is not told of an unfinished run"
    if "configuration" in name:
        refused(lengthwise("measure", "./own", *text, *SIZES, "--dry-run"), code, *expected)


def test_full_disk(start: Callable[..., Any], model: str, text: list[str], tmp_path: Path) -> None:
    """A limit on the size of a file makes write() fail as a full disk does."""
    program = tmp_path / "limited.py"
    program.write_text(
        "import resource, signal\n"
        "import lengthwise.measure.runner\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
        "from lengthwise.cli.main import run\n"
        "raise SystemExit(run())\n"
    )
    command = ["measure", model, *text, "--lengths", "16", "--windows", "40", "--out", "run"]
    done = start(*command, program=program).wait()
    assert done.returncode == 1
    assert "cannot write run/samples.jsonl" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "run" / "results.json").exists()
    kept = (tmp_path / "run" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert len(kept) > 1
    assert all(json.loads(line) for line in kept[:-1]), "what was written before is kept"


def test_verbose_shows_the_traceback(lengthwise: Callable[..., Any]) -> None:
    outcome = lengthwise("report", "gone", "-v")
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-2].startswith("lengthwise: there is no folder gone")


def score_raises(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("lengthwise.measure.misalignment.Misalignment.score", fail)


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_names_the_knob(on_text, monkeypatch, error):
    score_raises(error, monkeypatch)
    refused(on_text("measure", *SIZES), 1, "out of memory", "--batch-size")


def test_a_bug_keeps_its_traceback(on_text: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    score_raises(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        on_text("measure", *SIZES)
