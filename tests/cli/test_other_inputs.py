"""--resume refuses other weights, another tokenizer and another text under the names that a run was begun with."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text
from tests.cli.small_runs import VERBS, refused
from tests.tiny_folders import filled

# The runner asks it before the first sample, whatever is measured: of one model, of two, and of questions.
RUNS = {name: VERBS[name] for name in ("ppl", "longppl")}
RUNS["eval"] = ("needle_single", "--lengths", 400, "--depths", 0, "--samples", 2)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return filled(tmp_path, texts=4, words=900, max_position_embeddings=1024)


FINISHED: dict[str, tuple[Any, ...]] = {
    **{verb: (verb, "model", *words) for verb, words in VERBS.items()},
    "eval": ("eval", "model", *RUNS["eval"]),
    "evaluator": ("longppl", "model", "--evaluator", "other", *VERBS["longppl"]),
    "adapter": ("ppl", "model", "--adapter", "other", *VERBS["ppl"]),
    "kept": ("compare", "model", "--lengths", 96, "--windows", 3),
    "compare": ("compare", "model", "other", "--lengths", 96, "--windows", 3),
    "in turn": ("compare", "model", "other", "--lengths", 96, "--windows", 3, "--sequential"),
}
"""Verbs with all but their text, in the folder of the models."""


@pytest.mark.parametrize("case", FINISHED)
def test_a_finished_run_is_read_for_the_files_that_it_is_of(lengthwise, own, monkeypatch, case):
    monkeypatch.chdir(own)
    if case == "adapter":
        peft = pytest.importorskip("peft")
        with quiet_transformers():
            model = peft.get_peft_model(tiny_llama(), peft.LoraConfig(target_modules=["q_proj"]))
            model.save_pretrained("other")
    else:
        save_tiny_model("other", seed=1, max_position_embeddings=1024)
    command = (*FINISHED[case], "--text", "text", "--split", "all", "--out", "run")
    assert lengthwise(*command).code == 0
    before = files(own / "run")
    # Neither a copy nor what no model is read from matters.
    for name in ("model", "other", "text"):
        shutil.move(name, f"kept-{name}")
        shutil.copytree(f"kept-{name}", name)
    Path("model/README.md").write_text("A model.")
    assert lengthwise(*command, "--resume").code == 0
    changed = [name for name in ("model", "other") if name in command]
    for name in changed:
        [weights] = Path(name).glob("*.safetensors")
        *most, last = weights.read_bytes()
        weights.write_bytes(bytes([*most, last ^ 1]))
        refused(lengthwise(*command, "--resume"), 2, "files")
        shutil.copytree(f"kept-{name}", name, dirs_exist_ok=True)
    Path("text/0.txt").write_text(tiny_text(900, seed=99))
    refused(lengthwise(*command, "--resume"), 2, "text")
    shutil.rmtree("text")
    assert lengthwise(*command, "--resume").code == 0, "what is gone cannot be compared"
    for name in changed:
        shutil.rmtree(name)
    assert lengthwise(*command, "--resume").code == 0
    assert files(own / "run") == before


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
