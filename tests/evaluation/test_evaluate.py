"""Whole evaluations on a tiny model: scores, resuming, cuts, averages, and what a killed run leaves."""

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.evaluation.task import DoesNotFit
from lengthwise.measure.runner import plan_run
from lengthwise.measure.runner import run as measure
from lengthwise.settings import Subject
from tests.evaluation.longbench_files import needs_lm_eval, official
from tests.tiny_folders import filled


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("eval"), texts=3, words=400, max_position_embeddings=4096)


Run = tuple[Evaluation, Subject]


@pytest.fixture
def job(shared: Path) -> Callable[..., Run]:
    """A run of made-up tasks on the tiny model and text."""

    def make(*tasks: str, **settings: Any) -> Run:
        run = Subject(model=str(shared / "model"), text=str(shared / "text"), split="all")
        defaults = {"lengths": (1000,), "depths": (0, 100), "samples": 2}
        return Evaluation(tasks=tasks, **(defaults | settings)), run

    return make


@pytest.fixture
def longbench(shared: Path, tmp_path: Path) -> Callable[..., Run]:
    """A run of LongBench-E data sets on rows made here."""

    def make(*names: str, **settings: Any) -> Run:
        folder = tmp_path / "official"
        official(folder, *names, count=4)
        own = {"data": str(folder), "max_length": 4000}
        tasks = tuple(f"longbench_{name}_e" for name in names)
        return Evaluation(tasks=tasks, **(own | settings)), Subject(model=str(shared / "model"))

    return make


def test_greedy_scores_of_made_up_tasks(job: Callable[..., Run]) -> None:
    results = measure(*job("needle", "babilong", lengths=(1000, 1100)))
    assert not results.partial
    for task in ("needle_single", "needle_multi_key", "babilong_qa3"):
        for length in (1000, 1100):
            assert [row.n for row in results.select(task=task, length=length, depth=None)] == [4]
            assert [
                row.depth for row in results.select(task=task, length=length) if row.depth is not None
            ] == [0, 100]
    assert all(row.version == 2 and row.unit == "share" for row in results.rows)
    for depth in (None, 0, 100):
        [mean] = results.select(task="babilong", length=1000, depth=depth)
        tasks = [results.select(task=f"babilong_qa{n}", length=1000, depth=depth)[0] for n in range(1, 6)]
        assert mean.value == pytest.approx(fmean(row.value for row in tasks))
        assert mean.n == sum(row.n for row in tasks)
    assert results.provenance["tasks"]["needle_single"]["questions"] == 8
    assert len(results.provenance["tasks"]["needle_single"]["questions_sha256"]) == 64


def test_what_does_not_fit_is_said_of_all_tasks_at_once(job: Callable[..., Run]) -> None:
    """And what they are said to need is enough."""
    asked, subject = job("needle", "babilong", lengths=(64, 1100))
    with pytest.raises(DoesNotFit) as short:
        plan_run(asked, subject)
    assert (short.value.limit, set(short.value.tokens)) == (64, {task.name for task in asked.own_tasks})
    plan_run(*job("needle", "babilong", lengths=(max(short.value.tokens.values()),)))


@needs_lm_eval
def test_what_is_too_long_is_said_of_all_data_sets_at_once(longbench: Callable[..., Run]) -> None:
    with pytest.raises(DoesNotFit) as long:
        plan_run(*longbench("trec", "qasper", max_length=60))
    assert set(long.value.tokens) == {"longbench_trec_e", "longbench_qasper_e"}
    plan_run(*longbench("trec", "qasper", max_length=max(long.value.tokens.values())))


def test_likelihood_mode_ranks_the_answers(job: Callable[..., Run], tmp_path: Path) -> None:
    results = measure(*job("babilong_qa1", mode="likelihood", samples=3, batch_size=4), out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 6
    for line in lines:
        assert len(line["likelihoods"]) == 6
        assert 0 < line["probability"] < 1
        assert all(value < 0 for value in line["likelihoods"].values())
    [row] = results.select(metric="gold_probability", depth=None)
    assert row.value == pytest.approx(fmean(line["probability"] for line in lines))
    [row] = results.select(metric="gold_loss", depth=None)
    assert (row.value, row.unit) == (pytest.approx(fmean(line["gold_loss"] for line in lines)), "nats")
    [row] = results.select(metric="accuracy", depth=None)
    assert row.value == pytest.approx(fmean(line["score"] for line in lines))
    assert [row.value for row in results.select(metric="chance")] == [pytest.approx(1 / 6)]


def test_a_group_leaves_out_what_cannot_be_ranked_and_says_so(job: Callable[..., Run]) -> None:
    results = measure(*job("needle", mode="likelihood", samples=1))
    assert {row.task for row in results.rows} == {"needle_single", "needle_multi_key"}
    assert any("needle_multi_value" in note for note in results.notes)


@needs_lm_eval
def test_longbench_averages(longbench: Callable[..., Run], tmp_path: Path) -> None:
    """Two data sets are of one category, and a bucket has more rows than the others."""
    names = ("qasper", "multifieldqa_en", "lcc")
    results = measure(*longbench(*names), out=tmp_path / "r")
    lines = [json.loads(line) for line in (tmp_path / "r" / "samples.jsonl").read_text().splitlines()]
    bucket = {"r0000": 0, "r0001": 1, "r0002": 2, "r0003": 0}
    scores: dict[str, dict[int, list[float]]] = {}
    for line in lines:
        place = bucket[line["key"].rpartition("/")[2]]
        scores.setdefault(line["task"], {}).setdefault(place, []).append(line["score"])
    one, two, code = (fmean(chain(*scores[f"longbench_{name}_e"].values())) for name in names)
    assert code > 0

    def value(metric: str, **where: Any) -> float:
        [row] = results.select(task="longbench_e", metric=metric, **({"bucket": None} | where))
        return row.value

    assert value("average_rows") == pytest.approx((one + two + code) / 3)
    assert value("average_categories") == pytest.approx((0.5 * (one + two) + code) / 2)
    by_bucket = [fmean(fmean(by[place]) for by in scores.values()) for place in range(3)]
    assert value("average_buckets") == pytest.approx(fmean(by_bucket))
    assert value("average_rows", bucket="4-8k") == pytest.approx(by_bucket[1])
    assert any("3 of 13" in note for note in results.notes)
    assert results.select(task="longbench_lcc_e", bucket="0-4k")[0].n == 2


@needs_lm_eval
def test_prompts_over_the_limit_are_refused_or_counted(longbench: Callable[..., Run]) -> None:
    with pytest.raises(DoesNotFit) as over:
        measure(*longbench("qasper", max_length=60))
    assert f"--max-length {over.value.tokens['longbench_qasper_e']}" in (over.value.fix or "")
    results = measure(*longbench("qasper", max_length=60, truncation="middle"))
    assert results.select(task="longbench_qasper_e", bucket=None)[0].truncated == 4
    assert any("4 of 4" in note and "60" in note for note in results.notes)


@pytest.mark.parametrize(
    ("tasks", "settings", "named"),
    [
        (("needle_single",), {"depths": (120,)}, "120"),
        (("needle_single",), {"depths": (5, 5)}, "5.0, 5.0"),
        (("needle_single",), {"depths": (50.00001, 50.00002)}, "50.00001, 50.00002"),
        (("needle_single",), {"lengths": (63,)}, "63"),
        (("needle_multi_value",), {"mode": "likelihood"}, "needle_multi_value"),
        (("longbench_e",), {"mode": "likelihood", "max_length": 99}, "longbench_e"),
        (("tracking",), {"depths": tuple(range(12))}, "12 depths"),
        (("longbench_e",), {}, "LongBench"),
        (("niddle",), {}, "'niddle'"),
        (("babilong",), {"max_length": 999, "lengths": (1000,)}, "1000 .* 999"),
    ],
)
def test_settings_that_cannot_work(tasks: tuple[str, ...], settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Evaluation(tasks=tasks, **settings)


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("longbench_e", {"lengths": (2048,)}),
        ("longbench_e", {"seed": 0}),
        ("longbench_e", {"text": "books"}),
        ("needle_multi_value", {"depths": (50,)}),
        ("needle", {"truncation": "left"}),
        ("babilong", {"data": "x"}),
    ],
)
def test_a_setting_that_no_task_takes_is_refused_even_at_its_default(task, settings):
    [name] = settings
    common: dict[str, Any] = {"tasks": (task,), "max_length": 9999}
    if task != "longbench_e":
        del common["max_length"]
    Evaluation(**common)
    with pytest.raises(UsageError, match=f"^(a )?{name} is given"):
        if name in Subject.model_fields:
            measure(Evaluation(**common), Subject(model="m", **settings))
        else:
            Evaluation(**common, **settings)


def test_one_task_that_takes_a_setting_is_enough() -> None:
    spec = Evaluation(tasks=("needle", "longbench_trec_e"), depths=(50,), max_length=3000, truncation="left")
    assert spec.model_dump(mode="json")["depths"] == [50.0]


@needs_lm_eval
def test_a_log_of_other_prompts_is_refused(longbench: Callable[..., Run], tmp_path: Path) -> None:
    out = tmp_path / "run"
    spec, run = longbench("trec")
    measure(spec, run, out=out)
    (out / "results.json").unlink()
    path = Path(spec.data or "") / "trec_e.jsonl"
    path.write_text(path.read_text().replace("case 1", "case 9"))
    with pytest.raises(UsageError, match="longbench_trec_e/r000"):
        measure(spec, run, out=out, resume=True)


@pytest.mark.parametrize("mode", ["greedy", "likelihood"])
def test_stopped_after_any_sample_and_resumed_the_log_is_the_same_to_the_last_bit(job, mode, tmp_path):
    settings = job(
        "needle_multi_key", "babilong_qa2", mode=mode, batch_size=3, depths=(0, 50, 100), lengths=(1200,)
    )
    out = tmp_path / "run"
    whole = measure(*settings, out=out)
    kept = (out / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert len(kept) == 12
    for count in (1, 4, 5, 8, 10):
        (out / "results.json").unlink()
        (out / "samples.jsonl").write_bytes(b"".join(kept[:count]) + kept[count][:30])
        assert measure(*settings, out=out, resume=True).rows == whole.rows
        after = (out / "samples.jsonl").read_bytes().splitlines(keepends=True)
        assert after[:count] == kept[:count]
        assert sorted(after) == sorted(kept)


@needs_lm_eval
@pytest.mark.usefixtures("no_weights")
def test_the_plan_counts_without_weights(job: Callable[..., Run], longbench: Callable[..., Run]) -> None:
    plan = plan_run(*job("needle_multi_key", samples=3))
    assert plan["questions"] == {"needle_multi_key": 6}
    # Three contexts, read once for both depths, and replies of 16 tokens.
    assert 3 * 980 + 6 * 16 <= plan["tokens_to_run"] <= 3 * 1000 + 6 * 16
    # A length that is given twice is asked once.
    twice = plan_run(*job("needle_multi_key", samples=3, lengths=(1000, 1000)))
    assert [twice[name] for name in ("questions", "tokens_to_run")] == [
        plan[name] for name in ("questions", "tokens_to_run")
    ]
    cut = plan_run(*longbench("trec", max_length=60, truncation="middle"))
    assert cut["cut"] == {"longbench_trec_e": 4}
    assert cut["memory_bytes"] > 0


@pytest.mark.parametrize("mode", ["greedy", "likelihood"])
def test_a_path_that_loses_nothing_changes_no_score(shared: Path, mode: str) -> None:
    """Chunks that end inside of the common beginning of two questions."""
    spec = Evaluation(tasks=("babilong_qa2",), lengths=(1000,), depths=(0, 100), samples=2, mode=mode)
    run = Subject(model=str(shared / "model"), text=str(shared / "text"), split="all", dtype="float64")
    plain = measure(spec, run)
    along = measure(spec, run.model_copy(update={"read": "chunks=300"}))
    for key, record in plain.records.items():
        assert along.records[key].get("reply") == record.get("reply")
        for answer, value in record.get("likelihoods", {}).items():
            assert along.records[key]["likelihoods"][answer] == pytest.approx(value, abs=1e-6)
    assert along.config["read"] == "chunks=300"
