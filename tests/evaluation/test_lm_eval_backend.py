"""lm-eval as a backend, offline, on rows made here, against lm-eval's own HFLM on the same tasks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import Interrupted, MissingError, UsageError
from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.measure.runner import plan_run
from lengthwise.measure.runner import run as measure
from lengthwise.settings import Subject
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_text
from tests.evaluation.longbench_files import hub_layout, official

pytest.importorskip("lm_eval", reason="needs the extra lm-eval")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TASK = "longbench_trec_e"


_DATA = """\
task: tiny_{}
dataset_path: json
dataset_kwargs: {{data_files: {{test: choice.jsonl}}}}
test_split: test
"""
_CHOICE = """\
output_type: multiple_choice
doc_to_text: "{{context}} {{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list:
- {metric: acc, aggregation: mean, higher_is_better: true}
- {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 2}
"""
_RANKED = """\
output_type: loglikelihood
doc_to_text: "{{context}}"
doc_to_target: " {{question}}"
metric_list:
- {metric: perplexity, aggregation: perplexity, higher_is_better: false}
- {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 3}
"""
_ROLLING = """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{context}}"
metric_list:
- {metric: word_perplexity}
- {metric: bits_per_byte}
metadata: {version: 1}
"""
_DRAWN = """\
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{question}}"
repeats: 3
generation_kwargs: {do_sample: true, temperature: 1.0, max_gen_toks: 6, until: []}
filter_list:
- {name: first, filter: [{function: take_first}]}
- {name: letters, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
"""
_GROUP = """\
group: tiny_group
task: [tiny_choice, tiny_ranked]
aggregate_metric_list:
- {metric: acc, weight_by_size: true}
metadata: {version: 4}
"""


def _choice_rows() -> Iterator[dict[str, Any]]:
    for index in range(5):
        yield {
            "context": tiny_text(20 + 9 * index, seed=index),
            "question": "Where is the king?",
            "choices": [" garden", " house", " in the old garden"],
            "gold": index % 3,
        }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model."""
    return str(save_tiny_model(tmp_path_factory.mktemp("lm-eval") / "model", max_position_embeddings=2048))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all, because lm-eval's index takes seconds and is kept for one folder."""
    home = hub_layout(tmp_path_factory.mktemp("harness-data"), "trec", count=4)
    babilong = home / "RMT-team" / "babilong-1k-samples"
    configs = []
    for name in ("1k", "2k"):
        rows = [
            {
                "input": f"{tiny_text(int(name[0]) * 30, seed=index)} Mary went to the garden.",
                "question": "Where is Mary?",
                "target": "garden",
            }
            for index in range(3)
        ]
        _write(babilong / f"{name}.jsonl", rows)
        configs.append(f"- config_name: {name}\n  data_files:\n  - split: qa1\n    path: {name}.jsonl\n")
    (babilong / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")
    _write(home / "choice.jsonl", list(_choice_rows()))
    tasks = {"choice": _CHOICE, "ranked": _RANKED, "rolling": _ROLLING, "drawn": _DRAWN}
    for name, text in tasks.items():
        (home / f"tiny_{name}.yaml").write_text(_DATA.format(name) + text)
    (home / "tiny_group.yaml").write_text(_GROUP)
    return home


@pytest.fixture(autouse=True)
def _offline(offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)


def job(folder: str, data: Path | str, *tasks: str, **settings: Any) -> tuple[Evaluation, Subject]:
    settings = {"backend": "lm-eval", "data": str(data), "max_length": 1500} | settings
    return Evaluation(tasks=tasks, **settings), Subject(model=folder)


def lines(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "samples.jsonl").read_text().splitlines()]


def requests(run: str) -> list[dict[str, Any]]:
    return [line for line in lines(run) if "reply" in line]


def own_scores(folder: str, data: Path, *tasks: str, max_length: int) -> dict[str, Any]:
    """lm-eval's scores with its own HFLM and the same limit."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    model = load(folder)
    with contextlib.chdir(data):
        found = simple_evaluate(
            model=HFLM(
                pretrained=model.model, tokenizer=model.tokenizer, max_length=max_length, device="cpu"
            ),
            tasks=list(tasks),
            task_manager=TaskManager(include_path=str(data), include_defaults=False),
            bootstrap_iters=0,
        )
    assert found is not None
    return dict(found["results"])


@pytest.mark.parametrize("max_length", [1500, 90])
def test_ranked_and_rolling_scores_are_those_of_lm_eval(folder: str, data: Path, max_length: int) -> None:
    tasks = ("tiny_group", "tiny_rolling")
    expected = own_scores(folder, data, *tasks, max_length=max_length)
    results = measure(
        *job(folder, data, *tasks, max_length=max_length, truncation="left", batch_size=3), out="run"
    )
    found = {(row.task, row.metric): row for row in results.rows}
    assert set(found) == {
        ("tiny_choice", "acc"), ("tiny_choice", "acc_norm"), ("tiny_ranked", "acc"),
        ("tiny_ranked", "perplexity"), ("tiny_rolling", "word_perplexity"), ("tiny_rolling", "bits_per_byte"),
        ("tiny_group", "acc"),
    }  # fmt: skip
    for (task, metric), row in found.items():
        assert row.value == pytest.approx(expected[task][f"{metric},none"], rel=1e-5), (task, metric)
    assert [found[task, "acc"].version for task in ("tiny_choice", "tiny_ranked", "tiny_group")] == [2, 3, 4]
    assert found["tiny_rolling", "bits_per_byte"].unit == "score"
    assert {row.unit for row in found.values() if row.metric == "acc"} == {"share"}
    assert found["tiny_choice", "acc"].ci_low is not None
    assert found["tiny_group", "acc"].n == 10
    # Three answers for each of five documents, one, and one text.
    assert len(requests("run")) == 15 + 5 + 5
    cut = [found[name].truncated for name in (("tiny_choice", "acc"), ("tiny_ranked", "acc"))]
    if max_length == 90:
        assert 0 < cut[0] <= 5
        assert found["tiny_group", "acc"].truncated == sum(cut)
        shortened = sum(line["cut"] > 0 for line in requests("run") if line["task"] == "tiny_choice")
        assert any(f"{shortened} of 15 " in note for note in results.notes)
    else:
        assert cut == [0, 0]


def test_prompts_over_the_limit_are_refused_before_anything_is_asked(folder: str, data: Path) -> None:
    with pytest.raises(UsageError, match=r"of 25 .* 90 .* tiny_choice, tiny_rank"):
        measure(*job(folder, data, "tiny_group", "tiny_rolling", max_length=90), out="run")
    assert not Path("run/samples.jsonl").exists()
    with pytest.raises(UsageError, match="tiny_choice"):
        measure(*job(folder, data, "tiny_choice", max_length=90, truncation="middle"))
    with pytest.raises(UsageError, match=r"longbench_trec_e .* 64 .* 60"):
        measure(*job(folder, data, TASK, max_length=60))
    with pytest.raises(UsageError, match=r"4 of 4 .* 150 .* longbench_trec_e"):
        measure(*job(folder, data, TASK, max_length=150))


def test_local_data_and_our_own_task_score_alike(folder: str, data: Path, tmp_path: Path) -> None:
    results = measure(*job(folder, data, TASK, max_length=1000, batch_size=2), out="run")
    [row] = results.select(task=TASK, metric="classification_score")
    assert (row.n, row.truncated, row.version) == (4, 0, 5)
    assert len(requests("run")) == 4
    assert results.provenance["tasks"][TASK]["data_set"] == "Xnhyacinth/LongBench"

    official(tmp_path / "official", "trec", count=4)
    ours = measure(
        Evaluation(tasks=(TASK,), data="official", max_length=1000, chat="never"),
        Subject(model=folder),
        out="ours",
    )
    written = sorted(line["reply"].split("\n")[0] for line in lines("ours"))
    assert written == sorted(line["reply"] for line in requests("run"))
    assert ours.select(task=TASK, metric="class_match", bucket=None)[0].value == row.value

    cut = measure(*job(folder, data, TASK, max_length=150, truncation="middle"))
    assert cut.select(task=TASK, metric="score")[0].truncated == 4
    assert any("4 of 4 " in note and "150" in note for note in cut.notes)


def test_a_torn_run_is_resumed_with_equal_results(folder: str, data: Path) -> None:
    # Replies that are drawn at random, three for each document, are the hardest to have again.
    settings = job(folder, data, "tiny_drawn", "tiny_choice", batch_size=2)
    results = measure(*settings, out="run")
    drawn = [line["reply"] for line in requests("run") if line["task"] == "tiny_drawn"]
    assert len(drawn) == 15
    assert len(set(drawn)) > 12, "each is drawn by itself"
    rows = results.select(task="tiny_drawn")
    assert {row.metric for row in rows} == {"exact_match (first)", "exact_match (letters)"}
    assert [row.n for row in rows] == [5, 5], "filters do not count documents twice"

    kept = Path("run/samples.jsonl").read_bytes().splitlines(keepends=True)
    for count in (4, 17, len(kept) - 1):
        Path("run/results.json").unlink()
        Path("run/samples.jsonl").write_bytes(b"".join(kept[:count]) + kept[count][:9])
        again = measure(*settings, out="run", resume=True)
        assert again.rows == results.rows
        after = Path("run/samples.jsonl").read_bytes()
        assert after.startswith(b"".join(kept[:count])), "nothing is asked twice"
        assert sorted(after.splitlines()) == sorted(b"".join(kept).splitlines())


def test_babilong_once_for_each_length(folder: str, data: Path) -> None:
    results = measure(*job(folder, data, "babilong_qa1", lengths=(2048, 1000), samples=2))
    rows = results.select(metric="acc")
    assert [(row.task, row.length, row.n) for row in rows] == [
        ("babilong_qa1", 1000, 2),
        ("babilong_qa1", 2048, 2),
    ]
    assert results.provenance["tasks"]["babilong_qa1"]["questions"] == 4
    with pytest.raises(UsageError, match=r"1\.5k"):
        measure(*job(folder, data, "babilong_qa1", lengths=(1500,)))
    with pytest.raises(UsageError, match=r"babilong_qa1: .*64k"):
        measure(*job(folder, data, "babilong_qa1", lengths=(65536,)))


def test_ruler_is_made_for_each_length(folder: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wonderwords", reason="needs lm-eval's extra ruler")
    # RULER fetches a sentence splitter when it is imported; this task has no need of it.
    monkeypatch.setattr("nltk.download", lambda *_: False)
    settings = job(folder, data, "niah_single_1", lengths=(900, 1300), samples=2, max_length=1300)
    results = measure(*settings, out="run")
    assert [(row.task, row.metric, row.length, row.n, row.unit) for row in results.rows] == [
        ("niah_single_1", "string_match", 900, 2, "share"),
        ("niah_single_1", "string_match", 1300, 2, "share"),
    ]
    assert all(row.version == 1 for row in results.rows)
    assert len(requests("run")) == 4
    Path("run/results.json").unlink()
    before = Path("run/samples.jsonl").read_bytes()
    assert measure(*settings, out="run", resume=True).rows == results.rows
    assert Path("run/samples.jsonl").read_bytes() == before, "the same data are made again"
    with pytest.raises(UsageError, match=r"niah_single_1: .*=300"):
        measure(*job(folder, data, "niah_single_1", lengths=(300,)))
    with pytest.raises(MissingError, match=r"niah_single_2 .*paul_graham_essays"):
        measure(*job(folder, data, "niah_single_2", lengths=(500,)))


@pytest.mark.usefixtures("no_weights")
def test_the_plan_counts_requests_and_tokens(folder: str, data: Path) -> None:
    plan = plan_run(*job(folder, data, "tiny_group", "tiny_drawn", TASK, max_length=150, truncation="left"))
    assert plan["questions"] == {"tiny_choice": 15, "tiny_ranked": 5, "tiny_drawn": 15, TASK: 4}
    assert plan["cut"][TASK] == 4
    assert 0 < plan["cut"]["tiny_choice"] < 15
    assert plan["longest_prompt"] > 150
    assert plan["memory_bytes"] > 0


def test_what_is_needed_is_said(folder: str, data: Path) -> None:
    with pytest.raises(MissingError, match="gone"):
        measure(*job(folder, "gone", TASK))
    with pytest.raises(UsageError, match=r"lengths.*tiny_choice"):
        measure(*job(folder, data, "tiny_choice", lengths=(2048,)))
    with pytest.raises(UsageError, match="'longbench_trek'"):
        measure(*job(folder, data, "longbench_trek"))
    with pytest.raises(UsageError, match="'tiny_choice'"):
        measure(*job(folder, data, "tiny_choice", "tiny_group"))


def test_ctrl_c_keeps_finished_requests(folder: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.models.huggingface import HFLM

    settings = job(folder, data, "tiny_choice")
    whole = measure(*settings)
    plain, calls = HFLM.loglikelihood, iter(range(2))

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return plain(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(HFLM, "loglikelihood", interrupted)
        with pytest.raises(Interrupted, match=" 6 of 15 "):
            measure(*settings, out="run")
    kept = Path("run/samples.jsonl").read_bytes()
    assert measure(*settings, out="run", resume=True).rows == whole.rows
    assert Path("run/samples.jsonl").read_bytes().startswith(kept), "nothing is asked twice"
