"""Measurements of an endpoint are those of the model behind it."""

from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure import Limit, LongPpl, Measurement, Misalignment, Perplexity
from lengthwise.measure.runner import plan_run
from lengthwise.measure.runner import run as measure
from lengthwise.settings import Subject
from tests.served.stub import Stub

SPECS: dict[str, Measurement] = {
    "ppl": Perplexity(lengths=(32, 64), windows=3, batch_size=2),
    "limit": Limit(max_length=96, reference=32, windows=2, passage=8, scored=4, batch_size=8),
    "longppl": LongPpl(max_length=96, short=32, stride=16, windows=2, alpha=0.1, beta=-20.0),
    "measure": Misalignment(lengths=(32,), windows=3, estimator="paper"),
}
WITHOUT = {"trained_length", "loss_best_temperature", "inverse_temperature", "jeffreys"}
"""Metrics that need whole distributions at every position."""


@pytest.fixture
def runs(serve: Any, folder: Path, text: str) -> tuple[Subject, Subject]:
    """The model itself, and the endpoint that serves it."""
    own = Subject(model=str(folder), text=text, split="all")
    return own, own.model_copy(update={"model": serve().url, "tokenizer": str(folder)})


@pytest.mark.parametrize("kind", SPECS)
def test_rows_equal_those_of_the_model(kind: str, runs: tuple[Subject, Subject], tmp_path: Path) -> None:
    own, served = (measure(SPECS[kind], run) for run in runs)
    wanted = {row.place: row for row in own.rows if kind == "measure" or row.metric not in WITHOUT}
    found = {row.place: row for row in served.rows}
    assert found.keys() == wanted.keys()
    for place, row in wanted.items():
        for name in ("value", "ci_low", "ci_high"):
            ours, theirs = getattr(row, name), getattr(found[place], name)
            expected = ours if ours is None else pytest.approx(ours, rel=1e-4, abs=1e-4)
            assert theirs == expected, (place, name)
    assert served.provenance["model"]["protocol"] == "prompt_logprobs"


@pytest.mark.parametrize("act", [measure, plan_run])
def test_what_an_endpoint_cannot_give_is_refused(act: Any, runs: tuple[Subject, Subject]) -> None:
    with pytest.raises(UsageError, match="does not give the whole distribution after every token"):
        act(Misalignment(lengths=(32,), windows=1), runs[1])


def test_an_interrupted_run_continues(stub, folder, text, tmp_path, monkeypatch):
    run = Subject(model=stub.url, text=text, split="all", tokenizer=str(folder))
    spec = Perplexity(lengths=(32,), windows=4)
    monkeypatch.setenv("LENGTHWISE_API_KEY", "sk-secret")
    answer = stub.answer
    monkeypatch.setattr(
        stub, "answer", lambda *request: answer(*request) if stub.seen.total() < 20 else (400, "stop")
    )
    with pytest.raises(LengthwiseError):
        measure(spec, run, out=tmp_path / "run")
    done = (tmp_path / "run" / "samples.jsonl").read_text()
    assert 0 < len(done.splitlines()) < 4
    monkeypatch.setattr(stub, "answer", answer)
    with monkeypatch.context() as other:
        other.setattr("tests.served.stub.LIMIT", 256)
        with pytest.raises(UsageError, match="served length"):
            measure(spec, run, out=tmp_path / "run", resume=True)
    with monkeypatch.context() as other:
        other.setattr(stub, "predicts", lambda log_p: (log_p / 0.7).log_softmax(-1))
        with pytest.raises(UsageError, match="the model's loss of a short prompt changed"):
            measure(spec, run, out=tmp_path / "run", resume=True)
    resumed = measure(spec, run, out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "samples.jsonl").read_text().startswith(done)
    assert resumed.rows == measure(spec, run).rows
    assert stub.keys == {"Bearer sk-secret"}
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"sk-secret" not in file.read_bytes()


def test_dry_run_measures_nothing(lengthwise: Any, stub: Stub, folder: Path, text: str) -> None:
    words = ["ppl", stub.url, "--tokenizer", folder, "--text", text, "--split", "all", "--lengths", 64]
    plan = lengthwise(*words, "--windows", 2, "--dry-run", "--json").json
    assert plan["tokens_to_run"] == 128
    assert plan["settings"]["tokenizer"] == str(folder)
    # The two of the short probe, four and eight that must agree, and the three of the long one with one of these.
    assert stub.seen["/v1/completions"] == 2 + 4 + 8 + 3 + 1


def test_dry_run_with_an_evaluator_that_is_not_loaded(runs: tuple[Subject, Subject], folder: Path) -> None:
    spec = SPECS["longppl"].model_copy(update={"evaluator": str(folder)})
    assert plan_run(spec, runs[1])["tokens_to_run"] == plan_run(spec, runs[0])["tokens_to_run"] + 2 * 96
