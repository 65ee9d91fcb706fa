"""Whole evaluations on a tiny model: scores, resuming, cuts, averages, and what a killed run leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from lengthwise.errors import Interrupted, UsageError
from lengthwise.evaluation.job import EvalJob
from lengthwise.evaluation.planning import plan_eval
from lengthwise.evaluation.preparing import corpus_of, prepare
from lengthwise.evaluation.running import run_eval
from lengthwise.models import LoadedModel
from lengthwise.results import Results
from lengthwise.testing import save_tiny_model, tiny_text


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    save_tiny_model(folder / "model", max_position_embeddings=4096)
    (folder / "text").mkdir()
    for index in range(3):
        (folder / "text" / f"{index}.txt").write_text(tiny_text(400, seed=index))
    return folder


@pytest.fixture
def job(shared: Path) -> Callable[..., EvalJob]:
    def make(*tasks: str, **settings: Any) -> EvalJob:
        defaults = {"lengths": (1000,), "depths": (0, 100), "samples": 2, "split": "all"}
        return EvalJob(
            model=str(shared / "model"), text=str(shared / "text"), tasks=tasks, **(defaults | settings)
        )

    return make


@pytest.fixture
def longbench(official: Callable[..., Path], tmp_path: Path) -> dict[str, Any]:
    """Settings for LongBench-E on rows made here, with templates of our own."""
    folder = tmp_path / "official"
    names = ("qasper", "trec", "lcc")
    official(folder, *names, count=4)
    (folder / "dataset2prompt.json").write_text(
        json.dumps(dict.fromkeys(names, "Read: {context}\nAsked: {input}\n"))
    )
    return {"data": str(folder), "templates": str(folder), "max_length": 4000, "samples": None}


def test_greedy_scores_of_made_up_tasks(job: Callable[..., EvalJob]) -> None:
    results = run_eval(job("needle", "babilong", lengths=(1000, 1100)))
    assert not results.partial
    for task in ("needle_single", "needle_multi_key", "babilong_qa3"):
        for length in (1000, 1100):
            assert [row.n for row in results.select(task=task, length=length, depth=None)] == [4]
            assert [
                row.depth for row in results.select(task=task, length=length) if row.depth is not None
            ] == [
                0,
                100,
            ]
    assert all(row.version == 2 and row.unit == "share" for row in results.rows)
    assert set(results.results) >= {"babilong@1000", "needle_single@1100"}
    for depth in (None, 0, 100):
        [mean] = results.select(task="babilong", length=1000, depth=depth)
        tasks = [results.select(task=f"babilong_qa{n}", length=1000, depth=depth)[0] for n in range(1, 6)]
        assert mean.value == pytest.approx(fmean(row.value for row in tasks))
        assert mean.n == sum(row.n for row in tasks)
    assert results.provenance["tasks"]["needle_single"]["questions"] == 8
    assert len(results.provenance["tasks"]["needle_single"]["questions_sha256"]) == 64


def test_likelihood_mode_ranks_the_answers(job: Callable[..., EvalJob], tmp_path: Path) -> None:
    results = run_eval(job("babilong_qa1", mode="likelihood", samples=3, batch_size=4), out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    for line in lines:
        assert len(line["likelihoods"]) == 6
        assert 0 < line["probability"] < 1
        assert all(value < 0 for value in line["likelihoods"].values())
    [row] = results.select(metric="gold_probability", depth=None)
    assert row.value == pytest.approx(fmean(line["probability"] for line in lines))
    [row] = results.select(metric="accuracy", depth=None)
    assert row.value == pytest.approx(fmean(line["score"] for line in lines))
    assert [row.value for row in results.select(metric="chance")] == [pytest.approx(1 / 6)]
    winners = [max(line["likelihoods"], key=line["likelihoods"].get) for line in lines]
    assert len(winners) == 6


@pytest.mark.parametrize("mode", ["greedy", "likelihood"])
def test_batches_and_shared_prefixes_change_no_score(
    job: Callable[..., EvalJob], mode: str, tmp_path: Path
) -> None:
    def lines(batch_size: int) -> dict[str, Any]:
        out = tmp_path / f"b{batch_size}"
        run_eval(job("needle_multi_key", "babilong_qa2", mode=mode, batch_size=batch_size), out=out)
        found = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
        return {line["key"]: line for line in found}

    one, many = lines(1), lines(5)
    assert one.keys() == many.keys()
    for key in one:
        assert one[key].get("reply") == many[key].get("reply")
        for answer, value in one[key].get("likelihoods", {}).items():
            assert many[key]["likelihoods"][answer] == pytest.approx(value, abs=1e-3)


def test_questions_are_kept_and_made_again_when_damaged(
    job: Callable[..., EvalJob], model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    settings = job("babilong_qa1")
    corpus = corpus_of(settings)
    first = prepare(settings, model.tokenizer, corpus)
    [kept] = (tmp_path / "cache" / "questions").iterdir()
    header = json.loads(kept.read_text().split("\n")[0])
    assert header["task"] == "babilong_qa1"
    assert header["seed"] == 0
    assert prepare(settings, model.tokenizer, corpus) == first
    kept.write_text(kept.read_text().replace("Mary", "Marx"))
    assert prepare(settings, model.tokenizer, corpus) == first
    assert "Marx" not in kept.read_text()
    kept.write_bytes(kept.read_bytes()[:200] + b"\xff\n")
    assert prepare(settings, model.tokenizer, corpus) == first
    assert prepare(job("babilong_qa1", seed=1), model.tokenizer, corpus).hashes != first.hashes


def test_longbench_averages(job: Callable[..., EvalJob], longbench: dict[str, Any], tmp_path: Path) -> None:
    results = run_eval(
        job("longbench_qasper_e", "longbench_trec_e", "longbench_lcc_e", **longbench), out=tmp_path / "r"
    )
    lines = [json.loads(line) for line in (tmp_path / "r" / "samples.jsonl").read_text().splitlines()]
    bucket = {"r0000": 0, "r0001": 1, "r0002": 2, "r0003": 0}
    scores: dict[str, dict[int, list[float]]] = {}
    for line in lines:
        place = bucket[line["key"].rpartition("/")[2]]
        scores.setdefault(line["task"], {}).setdefault(place, []).append(line["score"])
    pooled = {task: fmean([s for some in by.values() for s in some]) for task, by in scores.items()}
    assert len(set(pooled.values())) > 1

    def value(metric: str, **where: Any) -> float:
        [row] = results.select(task="longbench_e", metric=metric, **({"bucket": None} | where))
        assert row.value is not None
        return row.value

    # Three data sets of three categories: rows and categories agree here; buckets do not.
    assert value("average_rows") == pytest.approx(fmean(pooled.values()))
    assert value("average_categories") == pytest.approx(fmean(pooled.values()))
    by_bucket = [fmean(fmean(by[place]) for by in scores.values()) for place in range(3)]
    assert value("average_buckets") == pytest.approx(fmean(by_bucket))
    assert value("average_rows", bucket="4-8k") == pytest.approx(by_bucket[1])
    assert any("3 of 13 data sets" in note for note in results.notes)
    assert results.provenance["tasks"]["longbench_trec_e"]["templates"].startswith("the official")
    assert results.select(task="longbench_trec_e", bucket="0-4k")[0].n == 2


def test_categories_are_averaged_before_they_are_averaged(
    job: Callable[..., EvalJob], official: Callable[..., Path], tmp_path: Path
) -> None:
    names = ("qasper", "multifieldqa_en", "lcc")
    official(tmp_path, *names, count=3)
    (tmp_path / "dataset2prompt.json").write_text(json.dumps(dict.fromkeys(names, "{context} {input}")))
    tasks = [f"longbench_{name}_e" for name in names]
    results = run_eval(
        job(*tasks, data=str(tmp_path), templates=str(tmp_path), max_length=4000, samples=None)
    )
    one, two, code = (results.select(task=task, bucket=None)[0].value or 0.0 for task in tasks)
    assert code > 0
    [row] = results.select(metric="average_categories")
    assert row.value == pytest.approx((0.5 * (one + two) + code) / 2)
    [row] = results.select(metric="average_rows", bucket=None)
    assert row.value == pytest.approx((one + two + code) / 3)


def test_prompts_over_the_limit_are_refused_or_counted(
    job: Callable[..., EvalJob], longbench: dict[str, Any]
) -> None:
    settings = longbench | {"max_length": 60}
    with pytest.raises(UsageError, match="4 of 4 prompts are longer than 60 tokens in longbench_qasper_e"):
        run_eval(job("longbench_qasper_e", **settings))
    results = run_eval(job("longbench_qasper_e", **settings, truncation="middle"))
    assert results.select(task="longbench_qasper_e", bucket=None)[0].truncated == 4
    assert any(
        "4 of 4 prompts of longbench_qasper_e were cut in the middle to 60" in n for n in results.notes
    )


@pytest.mark.parametrize(
    ("tasks", "settings", "problem"),
    [
        (("needle_single",), {"depths": (120,)}, "depths are"),
        (("needle_single",), {"depths": (5, 5)}, "given twice"),
        (("needle_single",), {"mode": "rank"}, "unknown mode 'rank'"),
        (("needle_multi_value",), {"mode": "likelihood"}, "needle_multi_value have no answers to rank"),
        (("longbench_e",), {}, "LongBench needs the greatest number of tokens"),
        (("niddle",), {}, "unknown task 'niddle'"),
        (("x",), {"backend": "lm-eval", "mode": "likelihood"}, "say themselves how they are scored"),
        (("needle",), {"truncation": "right"}, "unknown truncation 'right'"),
        (("needle",), {"truncation": "left"}, "truncation is 'left', and no task of this run takes it"),
        (("longbench_e",), {"stories": "x", "max_length": 99}, "stories is 'x', and no task"),
        (("babilong",), {"max_length": 999}, "babilong_qa1 is made for 1000 tokens, and max_length is 999"),
        (("x",), {"backend": "lm-eval", "stories": "x"}, "lm-eval's tasks take no stories"),
    ],
)
def test_settings_that_cannot_work(
    job: Callable[..., EvalJob], tasks: tuple[str, ...], settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        job(*tasks, **settings)


def test_a_log_of_other_prompts_is_refused(
    job: Callable[..., EvalJob], longbench: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    settings = job("longbench_trec_e", **longbench)
    run_eval(settings, out=out)
    (out / "results.json").unlink()
    path = Path(longbench["data"]) / "trec_e.jsonl"
    path.write_text(path.read_text().replace("case 1", "case 9"))
    with pytest.raises(UsageError, match="of another prompt"):
        run_eval(settings, out=out, resume=True)


def test_ctrl_c_keeps_what_was_finished(
    job: Callable[..., EvalJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = job("needle_single", mode="likelihood")
    whole = run_eval(settings)
    monkeypatch.setattr("lengthwise.evaluation.asking.likelihoods", interrupted_after(2))
    with pytest.raises(Interrupted) as stopped:
        run_eval(settings, out=tmp_path / "run")
    partial = stopped.value.partial
    assert isinstance(partial, Results)
    assert partial.partial
    assert partial.select(metric="accuracy", depth=None)[0].n == 2
    monkeypatch.undo()
    assert run_eval(settings, out=tmp_path / "run", resume=True).rows == whole.rows


def interrupted_after(count: int) -> Callable[..., Any]:
    from lengthwise.evaluation.generate import likelihoods

    calls: Iterator[int] = iter(range(count))

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return likelihoods(*args, **kwargs)

    return call


@pytest.mark.parametrize("mode", ["greedy", "likelihood"])
def test_stopped_after_any_sample_and_resumed_the_log_is_the_same_to_the_last_bit(
    job: Callable[..., EvalJob], mode: str, tmp_path: Path
) -> None:
    settings = job(
        "needle_multi_key", "babilong_qa2", mode=mode, batch_size=3, depths=(0, 50, 100), lengths=(1200,)
    )
    out = tmp_path / "run"
    whole = run_eval(settings, out=out)
    kept = (out / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert len(kept) == 12
    for count in (1, 4, 5, 8, 10):
        (out / "results.json").unlink()
        (out / "samples.jsonl").write_bytes(b"".join(kept[:count]) + kept[count][:30])
        assert run_eval(settings, out=out, resume=True).rows == whole.rows
        after = (out / "samples.jsonl").read_bytes().splitlines(keepends=True)
        assert after[:count] == kept[:count]
        assert sorted(after) == sorted(kept)


def test_killed_at_a_sample_and_resumed_nothing_is_lost_or_twice(
    job: Callable[..., EvalJob], shared: Path, tmp_path: Path
) -> None:
    settings = job("babilong_qa1", "needle_multi_key", mode="likelihood", samples=12)
    out = tmp_path / "run"
    program = (
        f"from lengthwise.evaluation import EvalJob, run_eval\nrun_eval({settings!r}, out={str(out)!r})\n"
    )
    log = out / "samples.jsonl"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= 5):
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = log.read_bytes()
    whole_lines = before[: before.rfind(b"\n") + 1]
    assert 5 <= whole_lines.count(b"\n") < 48
    resumed = run_eval(settings, out=out, resume=True)
    after = log.read_bytes()
    assert after.startswith(whole_lines), "nothing is done twice"
    keys = [json.loads(line)["key"] for line in after.splitlines()]
    assert len(keys) == len(set(keys)) == 48, "none lost"
    assert resumed.rows == run_eval(settings).rows


def test_the_plan_counts_without_weights(
    job: Callable[..., EvalJob], longbench: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("lengthwise.evaluation.running.load", refuse)
    plan = plan_eval(job("needle_multi_key", samples=3))
    assert plan["questions"] == {"needle_multi_key": 6}
    # Three contexts, read once for both depths, and replies of 16 tokens.
    assert 3 * 980 + 6 * 16 <= plan["tokens_to_run"] <= 3 * 1000 + 6 * 16
    cut = plan_eval(job("longbench_trec_e", **longbench | {"max_length": 60}, truncation="middle"))
    assert cut["cut"] == {"longbench_trec_e": 4}
    assert cut["memory_bytes"] > 0
