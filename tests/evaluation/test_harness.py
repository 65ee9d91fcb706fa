"""lm-eval as a backend, offline, on rows made here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.job import EvalJob, run_eval
from lengthwise.testing import save_tiny_model

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs the extra lm-eval"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.slow,
]

TASK = "longbench_trec_e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("harness") / "model", max_position_embeddings=2048))


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)


def test_local_data_cuts_resuming_and_scores(
    folder: str, hub_layout: Callable[..., Path], official: Callable[..., Path], tmp_path: Path
) -> None:
    hub_layout(tmp_path / "data", "trec", count=4)
    settings: dict[str, Any] = {"model": folder, "tasks": (TASK,), "backend": "lm-eval", "data": "data"}
    with pytest.raises(UsageError, match=r"4 of 4 prompts are longer than 150 tokens in lm-eval's tasks"):
        run_eval(EvalJob(**settings, max_length=150))

    with pytest.raises(UsageError, match="lm-eval has no task 'longbench_trek'"):
        run_eval(EvalJob(**settings | {"tasks": ("longbench_trek",)}, max_length=150))

    job = EvalJob(**settings, max_length=1000, batch_size=2)
    results = run_eval(job, out="run")
    [row] = results.select(task=TASK, metric="classification_score")
    assert (row.n, row.truncated, row.version) == (4, 0, 5)
    lines = [json.loads(line) for line in Path("run/samples.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert results.provenance["tasks"][TASK]["data_set"] == "Xnhyacinth/LongBench"

    # Our own task on the same rows and templates replies and scores alike.
    official(tmp_path / "official", "trec", count=4)
    ours = run_eval(
        EvalJob(model=folder, tasks=(TASK,), data="official", max_length=1000, chat="never"), out="ours"
    )
    own = [json.loads(line) for line in Path("ours/samples.jsonl").read_text().splitlines()]
    assert sorted(line["reply"].split("\n")[0] for line in own) == sorted(line["reply"] for line in lines)
    assert ours.select(task=TASK, metric="class_match", bucket=None)[0].value == row.value

    # Torn off after two requests: the others are asked again, and no more.
    kept = Path("run/samples.jsonl").read_bytes().splitlines(keepends=True)
    Path("run/results.json").unlink()
    Path("run/samples.jsonl").write_bytes(b"".join(kept[:2]) + kept[2][:9])
    again = run_eval(job, out="run", resume=True)
    assert again.rows == results.rows
    after = Path("run/samples.jsonl").read_bytes()
    assert after.startswith(b"".join(kept[:2]))
    assert sorted(after.splitlines()) == sorted(b"".join(kept).splitlines())

    cut = run_eval(EvalJob(**settings, max_length=150, truncation="middle"))
    assert cut.select(task=TASK, metric="score")[0].truncated == 4
    assert any("4 of 4 prompts were cut in the middle to fit into 150 tokens" in note for note in cut.notes)


def test_what_is_needed_is_said(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--max-length"):
        run_eval(EvalJob(model=folder, tasks=(TASK,), backend="lm-eval"))
    with pytest.raises(MissingError, match="there is no folder gone"):
        run_eval(EvalJob(model=folder, tasks=(TASK,), backend="lm-eval", max_length=99, data="gone"))
