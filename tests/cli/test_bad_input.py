"""Every bad input gets a clear error, its exit code, and loses nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.testing import save_tiny_model, tiny_tokenizer
from tests.cli.small_runs import refused

SIZES = ("--length", 16, "--limit", 2)


@pytest.fixture
def own_model(model: str, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be broken."""
    return Path(shutil.copytree(model, tmp_path / "own"))


class TestModels:
    def test_missing(self, lengthwise: Callable[..., Any], text: list[str]) -> None:
        refused(lengthwise("measure", "./gone", *text, *SIZES), 3, "there is no model folder ./gone", "fix: ")

    def test_mistyped(self, lengthwise: Callable[..., Any], text: list[str]) -> None:
        outcome = lengthwise("ppl", "smollm2-135", *text, *SIZES)
        refused(outcome, 2, "unknown model 'smollm2-135'", "did you mean 'smollm2-135m'?")

    @pytest.mark.parametrize(
        ("files", "named"), [("*.safetensors", "model.safetensors"), ("token*", "tokenizer")]
    )
    def test_files_missing(
        self, lengthwise: Callable[..., Any], own_model: Path, text: list[str], files: str, named: str
    ) -> None:
        for file in own_model.glob(files):
            file.unlink()
        outcome = lengthwise("measure", own_model, *text, *SIZES, "--out", "run")
        refused(outcome, 3, str(own_model), named)
        assert not Path("run/config.yaml").exists(), "a corrected command is not told of an unfinished run"

    def test_tokenizer_of_another_vocabulary_size(
        self, lengthwise: Callable[..., Any], own_model: Path, text: list[str]
    ) -> None:
        tiny_tokenizer(vocab_size=350).save_pretrained(own_model)
        outcome = lengthwise("measure", own_model, *text, *SIZES)
        refused(outcome, 2, "has ids up to 349, the model a vocabulary of 320")

    def test_adapter_that_is_none(self, on_text: Callable[..., Any], model: str) -> None:
        refused(on_text("measure", *SIZES, "--adapter", model), 3, "adapter_config.json")

    def test_weights_that_give_nan(
        self, lengthwise: Callable[..., Any], tmp_path: Path, text: list[str]
    ) -> None:
        from transformers import LlamaForCausalLM

        path = save_tiny_model(tmp_path / "poisoned")
        broken = LlamaForCausalLM.from_pretrained(path)
        with torch.no_grad():
            broken.model.norm.weight.fill_(float("nan"))
        broken.save_pretrained(path)
        outcome = lengthwise("measure", path, *text, *SIZES)
        refused(outcome, 1, "NaN or infinite", "fix: check the weights")


class TestTexts:
    @pytest.mark.parametrize(("verb", "size"), [("measure", "--length"), ("ppl", "--length")])
    def test_too_short(
        self, lengthwise: Callable[..., Any], model: str, tmp_path: Path, verb: str, size: str
    ) -> None:
        (tmp_path / "short.txt").write_text("the king and the queen")
        outcome = lengthwise(verb, model, "--text", tmp_path / "short.txt", "--split", "all", size, 64)
        refused(outcome, 2, "the text is too short: a window needs ", ", the longest document has ", "fix: ")


class TestSettings:
    def test_mistyped_verb(self, lengthwise: Callable[..., Any]) -> None:
        refused(lengthwise("mesure", "m"), 2, '"mesure"', 'Did you mean "measure"?')

    def test_mistyped_option(self, lengthwise: Callable[..., Any]) -> None:
        refused(lengthwise("measure", "m", "--lenght", 3), 2, "Unknown option: --lenght", "--length")

    def test_missing_argument(self, lengthwise: Callable[..., Any]) -> None:
        refused(lengthwise("measure"), 2, "MODEL requires an argument")

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("--estimator", "latice"), ("latice", "lattice", "paper")),
            (("--length", "many"), ("--length", "many")),
            (("--length", 0), ("lengths is 0", "greater than or equal to")),
            (("--limit", 0), ("windows is 0 (--limit)", "greater than or equal to 1")),
            (("--seed", -1), ("seed is -1", "greater than or equal to 0")),
            (("--device", "gpu"), ("unknown device 'gpu'", "cuda")),
            (("--bos", "always"), ("no BOS token",)),
            (("--resume",), ("--out",)),
            (("--overwrite",), ("--out",)),
            (("--out", "run", "--resume", "--overwrite"), ("exclude each other",)),
        ],
    )
    def test_values(
        self, on_text: Callable[..., Any], arguments: tuple[Any, ...], expected: tuple[str, ...]
    ) -> None:
        sizes = () if arguments[0] in SIZES else SIZES
        refused(on_text("measure", *sizes, *arguments), 2, *expected)


class TestRecipes:
    @pytest.mark.parametrize(
        ("assignment", "expected"),
        [
            ("objective.alhpa=1", ("unknown key 'objective.alhpa'", "did you mean 'alpha'?")),
            ("objective.alpha", ("has no value", "section.key=value")),
            ("length=4096", ("the text is too short",)),
            ("data.corpus=''", ("corpus",)),
            ("model=' '", ("model",)),
        ],
    )
    def test_settings(
        self, lengthwise: Callable[..., Any], recipe: Path, assignment: str, expected: tuple[str, ...]
    ) -> None:
        refused(lengthwise("train", recipe, "--out", "run", "--set", assignment), 2, *expected)
        assert not Path("run/config.yaml").exists()

    def test_no_folder(self, lengthwise: Callable[..., Any], recipe: Path) -> None:
        refused(lengthwise("train", recipe), 2, "training needs a folder", "--out")


class TestFolders:
    def test_full_disk(self, start: Callable[..., Any], model: str, text: list[str], tmp_path: Path) -> None:
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
        command = ["measure", model, *text, "--length", "16", "--limit", "40", "--out", "run"]
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


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_names_the_knob(
    on_text: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from lengthwise.measure import misalignment

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(misalignment.Misalignment, "score", fail)
    refused(on_text("measure", *SIZES), 1, "out of memory", "--batch-size")


def test_a_bug_keeps_its_traceback(on_text: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from lengthwise.measure import misalignment

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(misalignment.Misalignment, "score", fail)
    with pytest.raises(ZeroDivisionError):
        on_text("measure", *SIZES)
