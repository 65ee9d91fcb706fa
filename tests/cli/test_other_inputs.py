"""--resume refuses other weights, another tokenizer and another text under the names that a run was begun with."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lengthwise.testing import save_tiny_model, tiny_text
from tests.cli.small_runs import VERBS
from tests.tiny_folders import filled

# The runner asks it before the first sample, whatever is measured: of one model, of two, and of questions.
RUNS = {name: VERBS[name] for name in ("ppl", "longppl")}
RUNS["eval"] = ("needle_single", "--lengths", 400, "--depths", 0, "--samples", 2)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return filled(tmp_path, texts=4, words=900, max_position_embeddings=1024)


def interrupted(run: Path) -> dict[str, bytes]:
    """Leave the run as if it had been killed after its first sample."""
    (run / "results.json").unlink()
    log = run / "samples.jsonl"
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    return files(run)


def files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}


@pytest.mark.parametrize("verb", RUNS)
def test_a_resumed_run(lengthwise: Callable[..., Any], own: Path, verb: str) -> None:
    text = ("--text", own / "text", "--split", "all")
    command = (verb, own / "model", *RUNS[verb], *text, "--out", own / "run")
    assert lengthwise(*command).code == 0
    before = interrupted(own / "run")
    kept = shutil.copytree(own / "text", own / "kept")
    for file in (own / "text").iterdir():
        file.write_text(tiny_text(900, seed=99) + file.name)
    assert lengthwise(*command, "--resume").code == 2
    assert files(own / "run") == before
    shutil.copytree(kept, own / "text", dirs_exist_ok=True)
    shutil.rmtree(own / "model")
    save_tiny_model(own / "model", seed=1, max_position_embeddings=1024)
    assert lengthwise(*command, "--resume").code == 2
    assert files(own / "run") == before


@pytest.mark.parametrize(
    ("name", "value", "other"), [("quantize", "int8", "nf4"), ("device_map", "auto", "balanced")]
)
def test_a_run_is_resumed_as_it_was_loaded(lengthwise, own, name, value, other):
    if name == "quantize":
        pytest.importorskip("bitsandbytes")
    text = ("--text", own / "text", "--split", "all")
    command = ("ppl", own / "model", *RUNS["ppl"], *text, "--out", own / "run")
    option = f"--{name.replace('_', '-')}"
    assert lengthwise(*command, option, value).code == 0
    assert yaml.safe_load((own / "run" / "config.yaml").read_text())[name] == value
    before = interrupted(own / "run")
    for changed in ((option, other), ()):
        assert lengthwise(*command, *changed, "--resume").code == 2
        assert files(own / "run") == before
    assert lengthwise(*command, option, value, "--resume").code == 0
