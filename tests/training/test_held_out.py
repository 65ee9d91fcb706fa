"""The `eval:` section of a recipe."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure import Perplexity, run
from lengthwise.results import read_metrics
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import load_corpus
from lengthwise.training import plan, train
from lengthwise.training.starting_model import held_out_text
from tests.evaluation.longbench_files import needs_lm_eval, official_rows
from tests.tiny_folders import texts_in


@pytest.fixture
def held(tmp_path: Path) -> dict[str, Any]:
    """An evaluation after every step on a text that is not trained on."""
    other = texts_in(tmp_path / "other", 2, 400, seed=70)
    return {"every": 1, "corpus": str(other), "split": "all", "windows": 4}


def test_a_recipe_measures_stops_and_keeps_the_best(held, make, tmp_path):
    """The rule by hand on the run's own log; the kept model gives the best number again."""
    other, metric = held["corpus"], "eval_perplexity/perplexity@32"
    held |= {"windows": 6, "measurements": {"ppl": {"lengths": [32], "windows": 2}}}
    held |= {"metric": metric, "patience": 2, "keep_best": True}
    optimizer = {"learning_rate": 0.3, "schedule": "constant"}
    recipe = make(eval=held, steps=20, save_every=20, optimizer=optimizer)
    results = train(recipe, tmp_path / "run")
    found = {line["step"]: line for line in read_metrics(tmp_path / "run" / "metrics.jsonl")}
    before, *numbers = [found[step][metric] for step in sorted(found)]
    assert all({"eval_loss", "eval_jeffreys", "eval_cross_entropy"} < line.keys() for line in found.values())
    assert "loss" not in found.pop(0)
    assert all("loss" in line for line in found.values())
    rows = run(Perplexity(lengths=(32,), windows=2), recipe.model, other).rows
    [untrained] = [row.value for row in rows if row.metric == "perplexity" and row.is_headline]
    assert before == pytest.approx(untrained, rel=1e-5)
    best = min(range(len(numbers)), key=lambda index: numbers[index])
    assert len(numbers) == best + 1 + 2 < 20
    said = f"after step {best + 1}, {before:.4f} before training; {best + 3} of 20 steps"
    assert said in " ".join(results.notes)
    rows = run(Perplexity(lengths=(32,), windows=2), str(tmp_path / "run" / "model"), other).rows
    [again] = [row.value for row in rows if row.metric == "perplexity" and row.is_headline]
    assert again == pytest.approx(numbers[best], rel=1e-5)


@pytest.mark.parametrize(("rate", "worse"), [(3.0, True), (0.003, False)])
def test_a_run_that_made_the_model_worse_says_so(rate: float, worse: bool, held, make, tmp_path):
    """And resumed it compares with the model before its first step, not before its last."""
    recipe = make(
        eval=held | {"every": 2, "keep_best": True}, optimizer={"learning_rate": rate, "schedule": "constant"}
    )
    whole = train(recipe, tmp_path / "run")
    assert any("than the model before training" in note for note in whole.notes) == worse
    (tmp_path / "run" / "results.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "checkpoint-6")
    assert train(recipe, tmp_path / "run", resume=True).notes == whole.notes


@pytest.mark.parametrize("patience", [None, 2])
def test_a_run_whose_model_was_not_written_ends_as_the_whole_one(
    patience: int | None, held, make, tmp_path, monkeypatch
):
    """Where it lies now, after its last step: it has the best model, and no step more."""
    rate = {"learning_rate": 3.0, "schedule": "constant"}
    recipe = make(eval=held | {"keep_best": True, "patience": patience}, optimizer=rate)
    whole = train(recipe, tmp_path / "whole")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(LengthwiseError, match="No space"):
        patch.setattr("lengthwise.training.training_run.save_whole", full)
        train(recipe, tmp_path / "stopped")
    moved = (tmp_path / "stopped").rename(tmp_path / "moved")
    shutil.copytree(moved, tmp_path / "lacks")
    assert train(recipe, moved, resume=True).notes == whole.notes
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "moved"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [
        [line["step"] for line in read_metrics(tmp_path / name / "metrics.jsonl")]
        for name in ("whole", "moved")
    ]
    assert lines[0] == lines[1]
    # Step 1 is the best, and the last two stay.
    shutil.rmtree(tmp_path / "lacks" / "checkpoints" / "checkpoint-1")
    with pytest.raises(LengthwiseError, match="checkpoint-1, the best"):
        train(recipe, tmp_path / "lacks", resume=True)


@pytest.mark.parametrize("name", ["eval_jefreys", "eval_perplexity/loss@23"])
def test_a_number_that_no_evaluation_has_is_named_with_the_nearest(name, held, make, tmp_path):
    held |= {"measurements": {"ppl": {"lengths": [32], "windows": 2}}, "metric": name}
    near = "eval_jeffreys" if "jef" in name else "eval_perplexity/loss@32"
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        train(make(eval=held), tmp_path / "run")


@pytest.mark.parametrize(
    ("held", "changes", "words"),
    [
        ({"every": 2}, {}, "trained on"),
        ({"every": 4, "corpus": "books", "keep_best": True}, {}, "save_every = 2"),
        ({"every": 2, "corpus": "books", "measurements": {"pppl": {}}}, {}, "ppl"),
        ({"every": 2, "corpus": "books", "measurements": {"ppl": {"length": 3}}}, {}, "lengths"),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(held, changes, words, make):
    with pytest.raises(UsageError, match=words):
        make(eval=held, **changes)


def rows(path: Path, *texts: str) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_a_copy_of_what_is_trained_on_is_not_held_out(held, make, tmp_path, caplog):
    """By another path, in another kind of file, and whatever its name."""
    text, same, new = (tiny_text(300, seed=seed) for seed in (1, 2, 3))
    trained = rows(tmp_path / "trained.jsonl", text, same)
    recipe = {"data": {"corpus": str(trained), "split": "all"}}
    other = tmp_path / "other.jsonl"
    found = make(**recipe, eval=held | {"corpus": str(other)})
    rows(other, same, text)
    with pytest.raises(UsageError, match=r"2 of 2 documents of .* are trained on"):
        plan(found)
    rows(other, same, new)
    corpus, documents = held_out_text(found, tiny_tokenizer())
    assert "1 of 2 documents" in caplog.text
    rows(other, "", new)
    alone = load_corpus(str(other))
    assert [*alone.documents.values()] == [new]
    assert (corpus.documents, corpus.fingerprint) == (alone.documents, alone.fingerprint)
    assert len(documents) == 1


def test_the_splits_of_a_data_set(held, make, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    for number, split in enumerate(("train", "test")):
        rows(folder / f"{split}.jsonl", *(tiny_text(300, seed=10 * number + n) for n in range(3)))
    spec = f"hf://{folder}"
    # Read as given, both would be what is trained on.
    with pytest.raises(UsageError, match="names its split 'train'"):
        plan(make(data={"corpus": f"{spec}@train", "split": "train"}))
    with pytest.raises(UsageError, match="reads text that is trained on"):
        make(data={"corpus": f"{spec}@train"}, eval={"every": 1})
    with pytest.raises(UsageError, match="3 of 3 documents"):
        plan(
            make(
                data={"corpus": f"{spec}@train"},
                eval={"every": 1, "corpus": spec, "split": "train"},
            )
        )
    apart = {"data": {"corpus": f"{spec}@train"}}
    apart["eval"] = {"every": 1, "corpus": f"{spec}@test"}
    own = {"data": {"corpus": spec}, "eval": {"every": 1}}
    one, other = (held_out_text(make(**each), tiny_tokenizer())[0].documents for each in (apart, own))
    assert one == other
    assert len(one) == 3


TOO_LONG: dict[str, tuple[dict[str, object], str]] = {
    "ppl": ({"lengths": [100_000]}, "a window needs 100001 tokens"),
    "limit": ({"max_length": 64, "reference": 32}, "too short to look for a limit"),
}


@pytest.mark.parametrize("kind", TOO_LONG)
def test_what_cannot_be_measured_is_refused_in_a_dry_run(kind, held, make, tmp_path):
    """Before the first step the callback refuses it: test_config_and_callbacks.py."""
    options, words = TOO_LONG[kind]
    with pytest.raises(UsageError, match=words):
        plan(make(eval=held | {"measurements": {kind: options}}))
    with pytest.raises(UsageError, match="too short"):
        plan(make(eval={"every": 1, "corpus": str(texts_in(tmp_path / "short", 2, 5)), "split": "all"}))


def test_several_measurements_are_taken_without_a_remark(held, make, tmp_path, capfd):
    several = {"ppl": {"lengths": [32], "windows": 2}, "measure": {"lengths": [32], "windows": 2}}
    train(make(eval=held | {"measurements": several}, steps=1), tmp_path / "run")
    _, line = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert {"eval_perplexity/loss@32", "eval_misalignment/jeffreys@32"} < line.keys()
    assert "callback" not in capfd.readouterr().err


@needs_lm_eval
def test_questions_that_bring_their_own_text(held, make, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rows = official_rows("qasper", count=2, words=30)
    (folder / "qasper_e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = {"tasks": ["longbench_qasper_e"], "data": str(folder), "max_length": 60, "truncation": "middle"}
    recipe = make(eval=held | {"measurements": {"eval": asked}}, steps=1)
    assert plan(recipe)["processes"] == 1
    train(recipe, tmp_path / "run")
    _, line = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert "eval_longbench_qasper_e/f1" in line
