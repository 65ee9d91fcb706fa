from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation
from lengthwise.measure import Limit, LongPpl, Misalignment, Perplexity, paired_difference
from lengthwise.measure.difference import difference_of_runs, holm
from lengthwise.measure.runner import run as measure
from lengthwise.measure.statistics import few_documents
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.testing import tiny_text
from lengthwise.text import as_corpus

SIZES = Perplexity(lengths=(16, 32), windows=8)


def write(path: Path, kind: str, results: Results) -> Path:
    """A run folder as `run` leaves it."""
    with RunFolder(path, kind=kind, config={"model": results.model_name}) as folder:
        for key, record in results.records.items():
            folder.samples.append(key, record)
        folder.write_results(replace(results, kind=kind))
    return path


@pytest.fixture
def runs(model, other_model, documents, tmp_path) -> list[Path]:
    return [write(tmp_path / m.name, "ppl", measure(SIZES, m, documents)) for m in (model, other_model)]


def difference(value: float, stderr: float, documents: int = 30) -> Row:
    return Row(
        model="m", task="t", metric="x", value=value, stderr=stderr, documents=documents, reference="r"
    )


def test_holm_by_hand():
    # t = 2.0452, 2.7564, 3.6594 leave 5 %, 1 % and 0.1 % at 29 degrees of freedom.
    rows = [
        difference(2.0452, 1),
        difference(3.6594, 1),
        Row(model="m", task="t", metric="y", value=None),
        difference(2.7564, 1),
    ]
    found = [row.p_holm for row in holm(rows)]
    assert found[2] is None
    assert [found[0], found[1], found[3]] == pytest.approx([0.05, 0.003, 0.02], rel=2e-3)
    # Monotone: a larger p never ends below a smaller one.
    equal = [row.p_holm for row in holm([difference(2.0452, 1), difference(2.05, 1)])]
    assert equal[0] == equal[1] == pytest.approx(0.0989, rel=0.01)
    assert holm([difference(0, 0)])[0].p_holm == 1
    assert holm([difference(1, 0, documents=4)])[0].p_holm == 1 / 8


def test_differences_and_verdicts(runs, model, other_model, documents):
    before = [(run / "samples.jsonl").read_bytes() for run in runs]
    found = difference_of_runs(runs)
    assert [(run / "samples.jsonl").read_bytes() for run in runs] == before
    a, b = (measure(SIZES, m, documents) for m in (model, other_model))
    plain = [row for row in found.rows if row.reference is None]
    differences = [row for row in found.rows if row.reference is not None]
    assert len(plain) == 2 * len(differences)
    for row in differences:
        mine, theirs = (
            next(r for r in side.rows if (r.metric, r.length, r.position) == (row.metric, row.length, None))
            for side in (b, a)
        )
        assert (row.model, row.reference) == ("other", "tiny")
        assert row.value == pytest.approx(mine.value - theirs.value, abs=1e-9)
        assert not row.p_holm < 0.05 or row.ci_low > 0 or row.ci_high < 0
    beyond = sum(row.p_holm < 0.05 for row in differences)
    assert f"{beyond} of {len(differences)} differences are more than noise" in found.notes[0]
    assert found.notes[1:] == few_documents(4, "documents")
    assert found.kind == "difference"


def test_the_bins_are_paired_too(model, other_model, documents):
    a, b = (measure(Misalignment(lengths=(16,), windows=8), m, documents) for m in (model, other_model))
    for mine, theirs, row in zip(a.rows, b.rows, paired_difference(a, b), strict=True):
        assert (row.model, row.reference, row.n) == ("tiny", "other", mine.n)
        assert row.place == mine.place == theirs.place
        assert row.value == pytest.approx(mine.value - theirs.value, abs=1e-12)


def test_other_settings_and_missing_windows_are_refused(model, documents):
    a, b = (measure(SIZES.model_copy(update={"seed": seed}), model, documents) for seed in (0, 1))
    with pytest.raises(UsageError, match="seed: 0 and 1"):
        paired_difference(a, b)
    fewer = replace(a, records=dict(list(a.records.items())[:-2]))
    with pytest.raises(UsageError, match="only one has perplexity/L16/s0007 and 1 more"):
        paired_difference(a, fewer)


def test_the_reference_and_fewer_metrics(runs):
    found = difference_of_runs(runs, reference=runs[1], metrics=["loss"])
    assert {row.metric for row in found.rows} == {"loss"}
    assert {row.reference for row in found.rows} == {None, "other"}
    whole = {
        row.length: row.p_holm
        for row in difference_of_runs(runs).rows
        if row.metric == "loss" and row.reference
    }
    for row in found.rows:
        if row.reference:
            assert row.p_holm <= whole[row.length], "fewer tests, less correction"
    with pytest.raises(UsageError, match="no metric 'los'"):
        difference_of_runs(runs, metrics=["los"])


def test_runs_on_other_tokens_are_refused_with_the_reason(model, documents, make_documents, tmp_path):
    here = write(tmp_path / "here", "ppl", measure(SIZES, model, documents))
    other = make_documents([900, 700, 800, 600], seed=5)
    there = write(tmp_path / "there", "ppl", measure(SIZES, model, other))
    with pytest.raises(
        UsageError, match=r"there cannot be compared with .*here: .*not of the same (windows|items)"
    ):
        difference_of_runs([here, there])
    pairs = measure(Misalignment(lengths=(16,), windows=4), model, documents)
    with pytest.raises(UsageError, match=r"several kinds \(.*here: ppl; .*pairs: measure\)"):
        difference_of_runs([here, write(tmp_path / "pairs", "measure", pairs)])


def test_what_is_no_finished_run_is_refused(runs, model, documents, tmp_path):
    with pytest.raises(UsageError, match="nothing to compare"):
        difference_of_runs(runs[:1])
    with pytest.raises(UsageError, match="gone"):
        difference_of_runs([runs[0], tmp_path / "gone"])
    unfinished = replace(measure(SIZES, model, documents), partial=True)
    with pytest.raises(UsageError, match="is not finished"):
        difference_of_runs([runs[0], write(tmp_path / "unfinished", "ppl", unfinished)])
    (runs[1] / "samples.jsonl").unlink()
    with pytest.raises(UsageError, match=r"other has no samples\.jsonl"):
        difference_of_runs(runs)


def test_lower_bounds_have_no_difference(model, other_model, documents, tmp_path):
    settings: dict[str, Any] = {"max_length": 256, "reference": 64, "passage": 16, "scored": 12, "windows": 4}
    # So tolerant that both models are sound to the end.
    found = [measure(Limit(tolerance=50.0, **settings), m, documents) for m in (model, other_model)]
    runs = [write(tmp_path / one.model_name, "limit", one) for one in found]
    result = difference_of_runs(runs)
    (sound,) = [row for row in result.rows if row.metric == "sound_up_to" and row.reference]
    assert sound.value is None
    assert sound.p_holm is None
    assert any(row.metric == "benefit" and row.value is not None and row.reference for row in result.rows)
    assert not any(row.metric in ("tolerance", "used_level") and row.reference for row in result.rows)
    assert any("lower bound" in note for note in result.notes)
    # Forty points of a curve would weaken the tests of two headline numbers.
    tested = {row.metric: row.p_holm is not None for row in result.rows if row.reference and row.stderr}
    assert tested["recent_loss"]
    assert not tested["benefit"]
    assert "Holm's correction over recent_loss" in result.notes[0]
    assert any(
        note.startswith("Points of curves are not tested") and "benefit" in note for note in result.notes
    )
    alone = difference_of_runs(runs, metrics=["benefit"])
    assert all(row.p_holm is not None for row in alone.rows if row.reference and row.stderr)


def test_longppl_needs_one_evaluator(model, other_model, tmp_path):
    corpus = as_corpus([tiny_text(200, seed=index) for index in range(4)])
    settings: dict[str, Any] = {
        "max_length": 120, "short": 40, "stride": 16, "windows": 4, "alpha": 0.5, "beta": -6.0
    }  # fmt: skip
    same = [measure(LongPpl(**settings), m, corpus, other=model) for m in (model, other_model)]
    result = difference_of_runs([write(tmp_path / f"same{i}", "longppl", one) for i, one in enumerate(same)])
    assert any(row.metric == "longppl" and row.reference and row.value is not None for row in result.rows)
    own = measure(LongPpl(**settings), other_model, corpus)
    with pytest.raises(UsageError, match="evaluator: 'other' and 'tiny'"):
        difference_of_runs([tmp_path / "same0", write(tmp_path / "own", "longppl", own)])
    # The same name, but other weights.
    settings = {**own.provenance["measurement"], "evaluator": model.name}
    imposter = replace(own, provenance={**own.provenance, "measurement": settings})
    with pytest.raises(UsageError, match="not of the same key tokens"):
        difference_of_runs([tmp_path / "same0", write(tmp_path / "imposter", "longppl", imposter)])


def evaluation(path: Path, model: str, records: dict[str, dict[str, Any]], **settings: Any) -> Path:
    """A run folder of `eval` as `run` leaves it."""
    tasks = dict.fromkeys(record["task"] for record in records.values() if "task" in record)
    measurement = Evaluation(**{"tasks": tuple(tasks), **settings})
    found = list(records.values())
    results = Results(
        kind="eval",
        model_name=model,
        config={},
        rows=[replace(row, model=model) for row in measurement.rows(measurement.statistics(found), found)],
        provenance={"measurement": dict(measurement)},
        records=records,
    )
    return write(path, "eval", results)


def question(task: str, length: int, document: str, score: float, **other: Any) -> dict[str, Any]:
    return {
        "document": document, "task": task, "version": 2, "length": length, "depth": 50.0, "bucket": None,
        "question": 7, "prompt": 8, "cut": 0, "score": score, **other,
    }  # fmt: skip


def needles(scores: Any, **other: Any) -> dict[str, dict[str, Any]]:
    return {
        f"s{index:03d}": question(
            "needle_single", 1024 if index % 2 else 2048, f"u{index}", float(score), **other
        )
        for index, score in enumerate(scores)
    }


def test_evaluations_are_paired_by_question(tmp_path):
    rng = np.random.default_rng(0)
    before = rng.integers(2, size=40).astype(float)
    # Better on every second question that was wrong before.
    after = np.where((before == 0) & (np.arange(40) % 4 < 2), 1.0, before)
    # Another tokenizer makes other tokens of the same questions.
    runs = [
        evaluation(tmp_path / "a", "a", needles(before)),
        evaluation(tmp_path / "b", "b", needles(after, prompt=9)),
    ]
    rows = [row for row in difference_of_runs(runs).rows if row.reference]
    assert [(row.task, row.metric, row.length) for row in rows] == [
        ("needle_single", "contained", 1024),
        ("needle_single", "contained", 2048),
    ]
    for row, start in zip(rows, (1, 0), strict=True):
        assert row.value == pytest.approx((after - before)[start::2].mean())
    for name, change in (("c", {"question": 10}), ("d", {"version": 3})):
        other = evaluation(tmp_path / name, name, needles(after, **change))
        with pytest.raises(UsageError, match="not of the same items"):
            difference_of_runs([runs[0], other])


def test_ranked_answers_have_the_names_of_the_runs_own_rows(tmp_path):
    ranked = needles([0, 1, 1, 0], probability=0.25, gold_loss=1.5, chance=0.1)
    runs = [evaluation(tmp_path / name, name, ranked, mode="likelihood") for name in "ab"]
    differences = [row for row in difference_of_runs(runs).rows if row.reference is not None]
    assert {row.metric: row.unit for row in differences} == {
        "accuracy": "share", "gold_probability": "share", "gold_loss": "nats",
    }  # fmt: skip


def test_the_mean_over_tasks_is_compared(tmp_path):
    """Tasks count alike, however many questions they have; one sample is one unit in all tasks."""

    def records(shift: float) -> dict[str, dict[str, Any]]:
        return {
            f"qa{task}/s{sample}": question(
                f"babilong_qa{task}", 1024, f"s{sample}", (sample % 2) * shift / task
            )
            for task, samples in ((1, 4), (2, 8))
            for sample in range(samples)
        }

    runs = [evaluation(tmp_path / str(shift), str(shift), records(shift)) for shift in (0.5, 1.0)]
    found = difference_of_runs(runs, metrics=["accuracy"])
    (mean,) = [row for row in found.rows if row.reference and row.task == "babilong"]
    assert (mean.length, mean.documents) == (1024, 8)
    assert mean.value == pytest.approx((0.25 + 0.125) / 2)


def test_samples_that_differ_alike_have_no_interval(tmp_path):
    """0.1 + 0.2 on one side rounds otherwise than on the other."""
    low = [0.1 + 0.2 * (index % 3) for index in range(5)]
    runs = [
        evaluation(tmp_path / name, name, needles(np.repeat(scores, 2)))
        for name, scores in (("a", low), ("b", [score + 0.2 for score in low]))
    ]
    found = difference_of_runs(runs)
    for row in found.rows:
        if row.reference:
            assert row.value == pytest.approx(0.2)
            assert (row.ci_low, row.ci_high) == (None, None)
            assert row.p_holm == pytest.approx(2 * 2 / 2**5)
    assert any("differ by the same" in note for note in found.notes)
    equal = difference_of_runs([runs[0], evaluation(tmp_path / "c", "c", needles(np.repeat(low, 2)))])
    assert "All numbers are equal." in equal.notes
    assert all(row.p_holm == 1 and row.ci_low is None for row in equal.rows if row.reference)


def test_one_sample_says_nothing_about_noise(tmp_path):
    runs = [evaluation(tmp_path / str(score), str(score), needles([score])) for score in (0, 1)]
    found = difference_of_runs(runs)
    (row,) = [row for row in found.rows if row.reference]
    assert (row.value, row.ci_low, row.p_holm) == (1, None, None)
    assert found.notes == ["No difference can be told from noise here.", *few_documents(1, "samples")]


def test_runs_go_by_their_folders(runs, model, documents, monkeypatch, tmp_path):
    """Two of one model are told apart, and one by two paths is one."""
    again = write(tmp_path / "again", "ppl", measure(SIZES, model, documents))
    same = difference_of_runs([runs[0], again])
    assert {row.model for row in same.rows} == {"tiny", "again"}
    assert all(row.value == 0 and row.p_holm == 1 for row in same.rows if row.reference)
    monkeypatch.chdir(runs[0].parent)
    with pytest.raises(UsageError, match="given twice"):
        difference_of_runs([runs[0], Path(runs[0].name)])
    found = difference_of_runs(runs, reference=Path(runs[1].name))
    assert {row.reference for row in found.rows} == {None, "other"}
    assert found.model_name == "tiny against other"


def test_runs_go_by_the_names_that_are_given_to_them(runs, model, documents, tmp_path):
    plain = difference_of_runs(runs)
    one, other = runs
    for named, reference, expected in (
        ([f"plain={one}", f"new={other}"], None, "new against plain"),
        ([f"plain={one}", other], None, "other against plain"),
        ([f"plain={one}", f"new={other}"], "new", "plain against new"),
        ([f"plain={one}", f"new={other}"], other, "plain against new"),
        ([f"plain={one}"], f"new={other}", "plain against new"),
    ):
        found = difference_of_runs(named, reference=reference)
        assert found.model_name == expected
        sign = 1 if expected.endswith("plain") else -1
        for ours, theirs in zip(found.rows, plain.rows, strict=True):
            if theirs.reference:
                assert ours.value == pytest.approx(sign * theirs.value)
                assert (ours.model, ours.reference) == tuple(expected.split(" against "))
    for named, says in (
        ([f"same={one}", f"same={other}"], "two runs have one name"),
        ([f"a={one}", f"b={one}"], "given twice"),
        ([f"a={one}", "b=gone"], "gone"),
    ):
        with pytest.raises(UsageError, match=says):
            difference_of_runs(named)
    # A folder with such a name is a folder.
    odd = write(tmp_path / "a=b", "ppl", measure(SIZES, model, documents))
    assert difference_of_runs([odd, f"new={other}"]).model_name == "new against tiny"
