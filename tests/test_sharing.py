"""Two processes that share a measurement give the numbers of one, to the bit. Held by real processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.results import read_results
from lengthwise.samples import SampleLog
from tests import sharing_worker, spread_worker
from tests.tiny_folders import filled

SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    "measure": ("measure", {"lengths": (16, 32), "windows": 3, "batch_size": 3}),
    "paper": ("measure", {"lengths": (16,), "windows": 3, "estimator": "paper"}),
    "ppl": ("ppl", {"lengths": (16, 32), "windows": 5, "batch_size": 2}),
    "limit": ("limit", {"max_length": 64, "reference": 16, "passage": 8, "scored": 4, "windows": 3}),
    "longppl": ("longppl", {"max_length": 48, "short": 16, "windows": 3}),
    "eval": (
        "eval",
        {
            "tasks": ("needle_multi_key",),
            "mode": "likelihood",
            "lengths": (448,),
            "depths": (0.0,),
            "samples": 2,
        },
    ),
}


@pytest.mark.usefixtures("cache")
def test_two_processes_share_a_measurement(start_ranks: Callable[..., None], tmp_path: Path):
    """Every verb that measures; one of them resumes what one process began."""
    filled(tmp_path, texts=4, words=600, max_position_embeddings=512)
    run = {"model": str(tmp_path / "model"), "text": str(tmp_path / "text"), "split": "all", "device": "cpu"}
    jobs = [{"name": name, "verb": verb, "spec": spec, "run": run} for name, (verb, spec) in SPECS.items()]
    one, two = tmp_path / "one", tmp_path / "two"
    alone = sharing_worker.run_all(jobs, one)

    begun = two / "ppl"
    begun.mkdir(parents=True)
    for name in ("config.yaml", "env.json", "inputs.json"):
        (begun / name).write_bytes((one / "ppl" / name).read_bytes())
    lines = (one / "ppl" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    (begun / "samples.jsonl").write_bytes(b"".join(lines[:3]))

    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    start_ranks(Path(sharing_worker.__file__), tmp_path / "jobs.json", two)
    own = json.loads((two / "own-0.json").read_text())

    for name in SPECS:
        together = read_results(two / name)
        assert together.rows == alone[name].rows, name
        assert together.notes == alone[name].notes, name
        assert not together.partial
        assert together.provenance["processes"] == 2
        logs = [SampleLog(side / name / "samples.jsonl") for side in (one, two)]
        assert {key: logs[0][key] for key in logs[0]} == {key: logs[1][key] for key in logs[1]}, name
        assert 0 < sum(key in logs[1] for key in own) < len(logs[1]), name


def test_two_processes_that_hold_a_model_together_do_every_batch_together(start_ranks, tmp_path):
    """Of three batches one is left over: shared, its process would wait for weights that the other does not send."""
    start_ranks(Path(spread_worker.__file__), tmp_path)
    alone = spread_worker.measured(spread_worker.whole(), tmp_path / "alone")
    prints = [json.loads((tmp_path / name / "inputs.json").read_text()) for name in ("run", "alone")]
    assert prints[0] == prints[1]
    for found in (read_results(tmp_path / "run"), read_results(tmp_path / "in-memory.json")):
        assert len(found.rows) == len(alone.rows)
        for row, expected in zip(found.rows, alone.rows, strict=True):
            assert row.place == expected.place
            assert row.value == pytest.approx(expected.value, rel=1e-12), row.metric
    log = SampleLog(tmp_path / "run" / "samples.jsonl")
    assert len(log) == 3
