"""Input that no run can use, broken models, full memory: answered in words, at once, with nothing written or lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.cli.main import VERBS
from lengthwise.evaluation import Evaluation
from lengthwise.measure import MEASUREMENTS
from lengthwise.testing import tiny_tokenizer
from tests.architectures import tiny_model
from tests.cli.small_runs import refused
from tests.tiny_folders import rewritten, saved

SIZES = ("--lengths", "16", "--windows", "2")


class TestLengths:
    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_what_a_table_of_positions_cannot_hold(self, lengthwise, text, dry, tmp_path, monkeypatch):
        short = saved(tiny_model("gpt2", max_position_embeddings=128), tmp_path / "short")

        def score(*_: object) -> None:
            raise AssertionError("the model is asked")

        monkeypatch.setattr(Evaluation, "score", score)
        for verb, size in (("measure", "--lengths"), ("ppl", "--lengths")):
            assert "128" in refused(lengthwise(verb, short, *text, size, 256, "--windows", 2, *dry))
        assert "128" in refused(lengthwise("eval", short, "needle_single", *text, "--lengths", 256, *dry))


class TestTextLeftOut:
    def test_short_and_empty_documents(self, lengthwise, model, shared):
        folder = Path("some")
        shutil.copytree(shared / "text", folder)
        for number in range(5):
            (folder / f"short{number}.txt").write_text(f"a b {number}")
        (folder / "empty.txt").write_text(" \n")
        words = ("--text", folder, "--split", "all", *SIZES, "--json")
        results = lengthwise("ppl", model, *words).json
        assert sorted(results["provenance"]["text"]["left_out"].values()) == [1, 5]
        assert any("left out" in note for note in results["notes"])

    def test_in_training(self, lengthwise: Callable[..., Any], recipe: Path, shared: Path) -> None:
        shutil.copytree(shared / "text", "some")
        Path("some/short.txt").write_text("a b c")
        done = lengthwise("train", recipe, "--set", "data.corpus=./some", "--out", "run")
        assert done.code == 0, done
        results = json.loads(Path("run/results.json").read_text())
        assert list(results["provenance"]["left_out"].values()) == [1]
        assert any("left out" in note for note in results["notes"])


class TestFolders:
    def test_the_loser_of_two_that_extend(self, lengthwise, model, monkeypatch):
        """The other one finishes while this one is saving."""
        from lengthwise.checkpoints import saving

        def winner(*_: object) -> None:
            Path("longer").mkdir()
            Path("longer/config.json").write_text("{}")

        monkeypatch.setattr(saving, "share", winner)
        refused(lengthwise("extend", model, "--method", "pi", "--factor", 2, "--out", "longer"), 1)
        assert [path.name for path in Path().iterdir()] == ["longer"]
        assert [path.name for path in Path("longer").iterdir()] == ["config.json"]

    def test_home(
        self, lengthwise: Callable[..., Any], model: str, text: list[str], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert lengthwise("extend", model, "--method", "pi", "--factor", 2, "--out", "~/longer").code == 0
        assert lengthwise("ppl", "~/longer", *text, *SIZES, "--out", "~/run").code == 0
        assert lengthwise("report", "~/run", "--out", "~/page.html").code == 0
        assert lengthwise("ppl", model, *text, *SIZES, "--out", "~/other").code == 0
        assert lengthwise("difference", "~/run", "~/other", "--reference", "~/run").code == 0
        assert lengthwise("cp", "pose", "~/mine.yaml").code == 0
        assert [path.name for path in tmp_path.iterdir()] == ["home"]
        assert (tmp_path / "home" / "page.html").is_file()


ALIKE = [name for name in VERBS if name in MEASUREMENTS or name == "train"]
GROUP = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
PARTS: list[tuple[dict[str, str], str]] = [
    ({"RANK": "1"}, "WORLD_SIZE"),
    ({"WORLD_SIZE": "2"}, "MASTER_ADDR"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_PORT"),
    (GROUP | {"RANK": "2"}, "RANK is 2"),
    (GROUP | {"WORLD_SIZE": "two"}, "WORLD_SIZE is two"),
]


# All parts of one verb, and one part of all: they have one door.
@pytest.mark.parametrize(
    ("verb", "given", "named"),
    [(ALIKE[0], *part) for part in PARTS] + [(verb, *PARTS[1]) for verb in ALIKE[1:]],
)
def test_a_part_of_what_torchrun_sets(lengthwise, model, text, recipe, monkeypatch, verb, given, named):
    """One process that takes itself for one of several would be silent, or wait for the others."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    words = {"train": (recipe,), "eval": (model, "needle", "--lengths", 512, *text)}.get(verb, (model, *text))
    outcome = lengthwise(verb, *words, "--out", "run")
    assert named in refused(outcome)
    assert "torchrun" in outcome.err


def without(folder: Path, files: str) -> None:
    for file in folder.glob(files):
        file.unlink()


# What is done to a model, the exit code, and words of the message.
BROKEN: dict[str, tuple[Callable[[Path], Any], int, tuple[str, ...]]] = {
    "no weights": (lambda folder: without(folder, "*.safetensors"), 3, ("own", "model.safetensors")),
    "no tokenizer": (lambda folder: without(folder, "token*"), 3, ("own", "tokenizer")),
    "a larger tokenizer": (
        lambda folder: tiny_tokenizer(vocab_size=350).save_pretrained(folder),
        2,
        ("has ids up to 349, the model a vocabulary of 320",),
    ),
    "a configuration without heads": (lambda folder: rewritten(folder, num_attention_heads=0), 2, ("own",)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model(lengthwise: Callable[..., Any], model: str, text: list[str], name: str) -> None:
    damage, code, expected = BROKEN[name]
    damage(Path(shutil.copytree(model, "own")))
    refused(lengthwise("measure", "./own", *text, *SIZES, "--out", "run"), code, *expected)
    assert not Path("run/config.yaml").exists(), "a corrected command is not told of an unfinished run"
    if "configuration" in name:
        refused(lengthwise("measure", "./own", *text, *SIZES, "--dry-run"), code, *expected)


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
