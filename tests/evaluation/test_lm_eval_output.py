"""Runs made of lm-eval's output, recorded and fresh; our questions as its tasks."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation, import_lm_eval, write_lm_eval_tasks
from lengthwise.evaluation.lm_eval_export import process_results
from lengthwise.measure.difference import difference_of_runs
from lengthwise.measure.runner import run as measure
from lengthwise.report.run_page import build_report
from lengthwise.results import Results, read_results
from lengthwise.testing import save_tiny_model, tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus

RECORDED = Path(__file__).with_name("lm_eval_recorded")
TASKS = {
    "tiny_choice": ("acc", "acc_norm"),
    "tiny_ranked": ("acc", "perplexity"),
    "tiny_group": ("acc",),
    "tiny_filtered": ("exact_match (first)", "exact_match (letters)"),
}


def theirs(folder: Path) -> dict[str, Any]:
    [file] = folder.glob("results_*.json")
    return json.loads(file.read_text())["results"]


def check_scores(results: Results, expected: dict[str, Any]) -> None:
    """Every score of lm-eval is there, those that are means with an interval over their samples."""
    found = {(row.task, row.metric): row for row in results.rows}
    assert set(found) == {(task, metric) for task, metrics in TASKS.items() for metric in metrics}
    for (task, metric), row in found.items():
        name, _, kind = metric.removesuffix(")").partition(" (")
        assert row.value == expected[task][f"{name},{kind or 'none'}"]
        is_mean = (task, metric) not in (("tiny_group", "acc"), ("tiny_ranked", "perplexity"))
        assert (row.documents, row.n, row.unit) == ((5, 5, "share") if is_mean else (None, row.n, "score"))
    assert [found[name, "acc"].version for name in ("tiny_choice", "tiny_ranked", "tiny_group")] == [2, 3, 4]
    low, high = found["tiny_choice", "acc"].ci_low, found["tiny_choice", "acc"].ci_high
    assert low < 0.4 < high


def test_a_recorded_output_becomes_a_run_that_is_compared_and_shown(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two")]
    for run in runs:
        check_scores(import_lm_eval(RECORDED / run.name, run), theirs(RECORDED / run.name))
        assert read_results(run).model_name == run.name
    differences = {
        (row.task, row.metric): row
        for row in difference_of_runs(runs[::-1]).rows
        if row.reference is not None
    }
    # No difference of what is no mean over samples.
    assert set(differences) == {
        ("tiny_choice", "acc"), ("tiny_choice", "acc_norm"), ("tiny_ranked", "acc"),
        ("tiny_filtered", "exact_match (first)"), ("tiny_filtered", "exact_match (letters)"),
    }  # fmt: skip
    one, two = (theirs(RECORDED / run.name)["tiny_choice"]["acc_norm,none"] for run in runs)
    assert differences["tiny_choice", "acc_norm"].value == pytest.approx(one - two)
    assert differences["tiny_choice", "acc_norm"].documents == 5
    assert "Tiny choice" in build_report(runs, tmp_path / "page.html").read_text()


def test_it_is_a_verb(lengthwise: Callable[..., Any], tmp_path: Path) -> None:
    done = lengthwise("import", RECORDED / "one", "--out", tmp_path / "run")
    assert done.code == 0
    assert "40 %" in done.out
    assert lengthwise("import", RECORDED / "one", "--out", tmp_path / "run").code == 2
    assert lengthwise("import", RECORDED / "one", "--out", tmp_path / "run", "--overwrite").code == 0
    assert lengthwise("import", RECORDED / "one").code == 2


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the recorded output, its results changed."""

    def copy(name: str, change: Callable[[dict[str, Any]], None] = lambda found: None) -> Path:
        folder = tmp_path / "out" / name
        shutil.copytree(RECORDED / "one", folder)
        [file] = folder.glob("results_*.json")
        found = json.loads(file.read_text())
        change(found)
        file.write_text(json.dumps(found))
        return folder

    return copy


def test_other_questions_and_settings_are_not_compared(changed: Any, tmp_path: Path) -> None:
    one = changed("one")
    import_lm_eval(one, tmp_path / "one")
    other = changed("other")
    [samples] = other.glob("samples_tiny_choice_*")
    samples.write_text(samples.read_text().replace('"doc_hash": "', '"doc_hash": "0', 1))
    import_lm_eval(other, tmp_path / "other")
    with pytest.raises(UsageError, match="not of the same items"):
        difference_of_runs([tmp_path / "one", tmp_path / "other"])
    import_lm_eval(
        changed("version", lambda found: found["versions"].update(tiny_choice=9)), tmp_path / "version"
    )
    with pytest.raises(UsageError, match="not of the same items"):
        difference_of_runs([tmp_path / "one", tmp_path / "version"])
    import_lm_eval(changed("cut", lambda found: found.update(max_length=17)), tmp_path / "cut")
    found = difference_of_runs([tmp_path / "one", tmp_path / "cut"])
    assert "lm-eval's max_length differs: 1500, 17." in found.notes
    with pytest.raises(UsageError, match="no perplexity that can be paired"):
        difference_of_runs([tmp_path / "one", tmp_path / "cut"], metrics=["perplexity"])
    import_lm_eval(changed("shots", lambda found: found["n-shot"].update(tiny_choice=5)), tmp_path / "shots")
    with pytest.raises(UsageError, match="n-shot"):
        difference_of_runs([tmp_path / "one", tmp_path / "shots"])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_undefined_and_a_note_says_so(number, changed, tmp_path):
    folder = changed("one", lambda found: found["results"]["tiny_ranked"].update({"perplexity,none": number}))
    results = import_lm_eval(folder, tmp_path / "run")
    [row] = results.select(metric="perplexity")
    assert row.value is None
    assert any("perplexity" in note and str(number) in note for note in results.notes)
    assert read_results(tmp_path / "run").rows == results.rows


def test_the_scores_of_ruler_have_their_length(changed: Any, tmp_path: Path) -> None:
    def ruler(found: dict[str, Any]) -> None:
        found["results"] = {"tiny_choice": {"4096,none": 0.4, "8192,none": -1}}

    folder = changed("one", ruler)
    [samples] = folder.glob("samples_tiny_choice_*")
    samples.write_text(samples.read_text().replace('"acc": ', '"8192": -1, "4096": '))
    [row] = import_lm_eval(folder, tmp_path / "run").rows
    assert (row.metric, row.length, row.value, row.documents) == ("string_match", 4096, 0.4, 5)


def _each_sample(change: Callable[[list[dict[str, Any]]], list[Any]]) -> Callable[[Path], None]:
    """Change the samples of every task."""

    def changed(folder: Path) -> None:
        for file in folder.glob("samples_*"):
            rows = change([json.loads(line) for line in file.read_text().splitlines()])
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return changed


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _scores(**given: Any) -> Callable[[Path], None]:
    """Change a result of tiny_choice, or what stands beside the results."""

    def changed(folder: Path) -> None:
        [file] = folder.glob("results_*.json")
        found = json.loads(file.read_text())
        beside = {name: given.pop(name) for name in [*given] if name in found}
        found["results"]["tiny_choice"] |= {f"{name},none": value for name, value in given.items()}
        file.write_text(json.dumps(found | beside))

    return changed


def _beside(folder: Path) -> None:
    [file] = folder.glob("results_*.json")
    shutil.copy(file, folder / "results_2020-01-01T00-00-00.0.json")


def _renamed(folder: Path) -> None:
    [file] = folder.glob("results_*.json")
    file.rename(folder / file.name.replace("results_", "mine_"))


MEANS = 5
"""Scores of the recorded output that are means over their samples."""
OUTPUTS: dict[str, tuple[Callable[[Path], None], int | str, str]] = {
    "samples that do not name their filter, before 0.4.8": (
        _each_sample(lambda rows: [_without(row, "filter", "metrics") for row in rows]), MEANS, "",
    ),
    "numbers of 32 bits, which are written as text": (
        _each_sample(lambda rows: [row | {"acc": str(row["acc"])} if "acc" in row else row for row in rows]),
        MEANS, "",
    ),
    "a score as text": (_scores(acc="0.4"), MEANS, ""),
    "a number that is too large": (_scores(big=10**400), MEANS, "tiny_choice: big is not defined"),
    "samples that were cut off": (_each_sample(lambda rows: rows[:3]), "3 samples .* had 5", ""),
    "a sample without a score": (
        _each_sample(lambda rows: [_without(rows[0], "acc"), *rows[1:]]), MEANS - 2, "there: tiny_choice acc,",
    ),
    "a sample whose score is NaN": (
        _each_sample(lambda rows: [rows[0] | {"acc_norm": math.nan}, *rows[1:]]), MEANS - 1, "acc_norm,",
    ),
    "results of another start": (_beside, MEANS, "1 more results"),
    "results of another name": (_renamed, MEANS, ""),
    "samples that are there twice": (_each_sample(lambda rows: rows + rows), "is there again", ""),
    "no document": (_each_sample(lambda rows: [_without(row, "doc_id") for row in rows]), "doc_id", ""),
    "samples that are numbers": (_each_sample(lambda rows: [3]), "line 1", ""),
    "replies without scores": (_scores(bypass=999), "--predict_only", ""),
    "results in a list": (_scores(results=[]), "results is wrong", ""),
    "a task that is a number": (_scores(results={"one": 3}), "results.one is wrong", ""),
    "versions that are none": (_scores(versions=None), "versions is wrong", ""),
}  # fmt: skip
"""How an output differs from the recorded one; how many scores then have intervals, or the error; a note."""


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_gives_its_numbers_says_what_lacks_or_is_refused(case, changed, tmp_path):
    change, expected, note = OUTPUTS[case]
    folder = changed("one")
    change(folder)
    source = next(iter(folder.glob("mine_*")), folder)
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            import_lm_eval(source, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    results = import_lm_eval(source, tmp_path / "run")
    rows = {(row.task, row.metric): row for row in results.rows}
    assert sum(row.documents == 5 for row in rows.values()) == expected
    plain = import_lm_eval(RECORDED / "one", tmp_path / "plain")
    for row in plain.rows:
        assert rows[row.task, row.metric].value == row.value
    assert any(note in each for each in results.notes)
    if not note:
        assert results.notes == plain.notes


def test_without_samples_there_are_numbers_and_no_intervals(changed: Any, tmp_path: Path) -> None:
    folder = changed("one")
    for file in folder.glob("samples_*"):
        file.unlink()
    results = import_lm_eval(folder.parent, tmp_path / "run")
    assert {row.documents for row in results.rows} == {None}
    assert any("--log_samples" in note for note in results.notes)


def test_what_is_no_output_of_lm_eval(changed: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no results_\*"):
        import_lm_eval(tmp_path, tmp_path / "run")
    folder = changed("one", lambda found: found.update(results={}))
    with pytest.raises(UsageError, match="no scores"):
        import_lm_eval(folder, tmp_path / "run")
    torn = changed("torn")
    with pytest.raises(UsageError, match="several models"):
        import_lm_eval(folder.parent, tmp_path / "run")
    next(torn.glob("samples_*")).write_text('{"doc_id": 0')
    with pytest.raises(UsageError, match="line 1"):
        import_lm_eval(torn, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestWithLmEval:
    """What the installed lm-eval writes and reads."""

    @pytest.fixture(autouse=True)
    def _offline(self, offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("lm_eval", reason="needs the extra lm-eval")
        import datasets.config

        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")

    def test_a_fresh_output_has_the_form_of_the_recorded_one(self, tmp_path: Path) -> None:
        from tests.evaluation.lm_eval_runs import run_lm_eval, write_tasks

        write_tasks(tmp_path / "tasks")
        model = str(save_tiny_model(tmp_path / "one", max_position_embeddings=2048))
        found = run_lm_eval(model, ["tiny_group", "tiny_filtered"], tmp_path / "tasks", tmp_path / "out")
        fresh = import_lm_eval(tmp_path / "out", tmp_path / "run")
        check_scores(fresh, found["results"])
        recorded = import_lm_eval(RECORDED / "one", tmp_path / "recorded")
        assert fresh.provenance["measurement"] == recorded.provenance["measurement"]
        assert {key: record["question"] for key, record in fresh.records.items()} == {
            key: record["question"] for key, record in recorded.records.items()
        }

    @pytest.mark.parametrize("mode", ["likelihood", "greedy"])
    def test_our_questions_have_our_scores_there(self, mode: Any, tmp_path: Path) -> None:
        from tests.evaluation.lm_eval_runs import run_lm_eval

        text = as_corpus([tiny_text(900)])
        model = str(save_tiny_model(tmp_path / "one", max_position_embeddings=2048))
        ours = Evaluation(
            tasks=("needle_multi_key",), mode=mode, lengths=(448, 512), depths=(0.0, 50.0), samples=3
        )
        names = write_lm_eval_tasks(ours, tiny_tokenizer(), text, tmp_path / "tasks")
        assert names == ["needle_multi_key_448", "needle_multi_key_512"]
        run_lm_eval(model, names, tmp_path / "tasks", tmp_path / "out")
        found = {row.task: row for row in import_lm_eval(tmp_path / "out", tmp_path / "run").rows}
        expected = measure(ours, model, text).rows
        for name, length in zip(names, ours.lengths, strict=True):
            metric = "accuracy" if mode == "likelihood" else found[name].metric
            [row] = [one for one in expected if (one.metric, one.length, one.depth) == (metric, length, None)]
            assert found[name].n == row.n == 6
            assert found[name].value == pytest.approx(row.value)
        if mode == "greedy":
            doc = json.loads((tmp_path / "tasks" / f"{names[0]}.jsonl").read_text().splitlines()[0])
            assert process_results(doc, [f" {doc['golds'][0]}."]) == {row.metric: 1.0}
