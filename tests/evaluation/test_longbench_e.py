import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation import longbench_e
from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.evaluation.longbench_e import BUCKETS, DATA_SETS, bucket_of, read_template
from lengthwise.evaluation.task import Question
from lengthwise.evaluation.tasks import resolve_tasks
from tests.evaluation.longbench_files import needs_lm_eval, official


def read_rows(name: str, source: str) -> list[dict[str, Any]]:
    """The rows of a data set, checked for its own metric."""
    return longbench_e.read_rows(name, source, metric=DATA_SETS[name].metric)


def test_the_table_is_the_published_one() -> None:
    assert len(DATA_SETS) == 13
    assert [name for name, task in DATA_SETS.items() if task.is_over] == ["trec", "triviaqa", "samsum"]
    unwrapped = [name for name, task in DATA_SETS.items() if not task.chat]
    assert unwrapped == ["trec", "triviaqa", "samsum", "lcc", "repobench-p"]
    assert [one.name for one in DATA_SETS.values() if one.stop_text] == ["longbench_samsum_e"]


@needs_lm_eval
def test_reply_lengths_are_those_of_lm_eval(tmp_path: Path) -> None:
    official(tmp_path, count=1)
    spec = importlib.util.find_spec("lm_eval")
    folder = Path(spec.origin).parent / "tasks" / "longbench"
    for name, task in DATA_SETS.items():
        settings = Evaluation(tasks=(task.name,), data=str(tmp_path), max_length=99)
        [question] = task.questions(settings, None, None)
        text = (folder / f"{name}_e.yaml").read_text()
        assert f"max_gen_toks: {question.new_tokens}\n" in text


def test_groups_and_names() -> None:
    [tasks] = resolve_tasks(["longbench_e"]).values()
    assert len(tasks) == 13
    found = resolve_tasks(["babilong_qa2", "needle", "babilong_qa1"])
    assert [family.name for family in found] == ["needle", "babilong"]
    needles, stories = found.values()
    assert [task.name for task in needles] == ["needle_single", "needle_multi_key", "needle_multi_value"]
    assert [task.name for task in stories] == ["babilong_qa1", "babilong_qa2"]
    with pytest.raises(UsageError) as mistyped:
        resolve_tasks(["needle_singel"])
    assert "'needle_single'" in (mistyped.value.expected or "")


def test_buckets() -> None:
    assert [bucket_of(n) for n in (0, 3999, 4000, 7999, 8000, 20000)] == [
        BUCKETS[i] for i in (0, 0, 1, 1, 2, 2)
    ]


@needs_lm_eval
def test_rows_become_questions(tmp_path: Path) -> None:
    official(tmp_path, "trec", count=5)
    rows = read_rows("trec", str(tmp_path))

    def ask(**settings: Any) -> list[Question]:
        spec = Evaluation(tasks=("longbench_trec_e",), data=str(tmp_path), max_length=99, **settings)
        return DATA_SETS["trec"].questions(spec, None, None)

    questions = ask(chat="never")
    assert [question.bucket for question in questions] == ["0-4k", "4-8k", "8k+", "0-4k", "4-8k"]
    assert questions[0].prompt == read_template("trec")(rows[0])
    assert rows[0]["context"] in questions[0].prompt
    assert questions[0].candidates == ["Location", "City", "Person"]
    assert len({question.key for question in questions}) == 5
    assert ask(chat="never", samples=2) == questions[:2]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("trec", {"answers": "garden"}),
        ("trec", {"answers": []}),
        ("trec", {"answers": [3]}),
        ("trec", {"length": "4000"}),
        ("trec", {"context": None}),
        ("trec", {"all_classes": None}),
        # Answers that no reply can match.
        ("passage_retrieval_en", {"answers": ["twelve"]}),
        ("passage_count", {"answers": ["twelve"]}),
        ("trec", {"answers": ["River"]}),
        ("qasper", {"answers": ["garden", " "]}),
    ],
)
def test_malformed_rows_name_file_and_line(tmp_path: Path, name: str, change: dict[str, Any]) -> None:
    path = official(tmp_path, name) / f"{name}_e.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=f"{name}_e.jsonl, line 2.*'{next(iter(change))}'"):
        read_rows(name, str(tmp_path))


def test_other_damage(tmp_path: Path) -> None:
    path = official(tmp_path, "qasper") / "qasper_e.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    del row["input"]
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"line 1.*'input'"):
        read_rows("qasper", str(tmp_path))
    for damaged in (
        b"[1]",
        b'{"input": "x"',
        b'{"input": "\xff"}\n',
        json.dumps(row | {"input": "\ud800"}).encode(),
        b"[" * 100_000,
    ):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="line 1:"):
            read_rows("qasper", str(tmp_path))
    path.write_text("\n")
    with pytest.raises(UsageError, match=r"qasper_e\.jsonl"):
        read_rows("qasper", str(tmp_path))
    with pytest.raises(MissingError, match=r"hotpotqa_e\.jsonl"):
        read_rows("hotpotqa", str(tmp_path))
    path = official(tmp_path, "lcc") / "lcc_e.jsonl"
    path.write_text(path.read_text() * 2)
    with pytest.raises(UsageError, match="line 4 is line 1 again"):
        read_rows("lcc", str(tmp_path))


def test_the_folder_is_named_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell does not expand `--data=~/LongBench`, and a blank name was that of the current folder."""
    official(tmp_path, "lcc")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert read_rows("lcc", "~") == read_rows("lcc", ".")
    for bad in ("", "x" * 300):
        with pytest.raises(UsageError, match="data"):
            read_rows("lcc", bad)


def test_without_lm_eval_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lm_eval.utils", raising=False)
    monkeypatch.delitem(sys.modules, "lm_eval.tasks.longbench.metrics", raising=False)
    with pytest.raises(MissingError) as missing:
        read_template("qasper")
    assert "lengthwise[lm-eval]" in missing.value.fix


def test_the_official_archive(tmp_path: Path) -> None:
    """Its file, its folder `data` and the folder that holds it."""
    official(tmp_path / "data", "lcc")
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.write(tmp_path / "data" / "lcc_e.jsonl", "data/lcc_e.jsonl")
    for source in (archive, tmp_path):
        assert read_rows("lcc", str(source)) == read_rows("lcc", str(tmp_path / "data"))
    with pytest.raises(MissingError, match=r"trec_e\.jsonl"):
        read_rows("trec", str(archive))
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("data/lcc_e.jsonl", (tmp_path / "data" / "lcc_e.jsonl").read_text() + '{"input"')
    with pytest.raises(UsageError, match=r"data\.zip.data/lcc_e\.jsonl, line 4"):
        read_rows("lcc", str(archive))


@needs_lm_eval
def test_scores_by_data_set() -> None:
    def score(name: str, reply: str, *golds: str) -> float:
        question = Question(prompt="", golds=list(golds), candidates=["Location", "City"])
        return DATA_SETS[name].score(question, reply)

    assert score("triviaqa", "\nParis\nQuestion: Rome?", "Paris") == 1
    assert score("qasper", "\nParis\nQuestion: Rome?", "Paris") == pytest.approx(0.5)
    assert score("trec", "Location\nCity", "Location") == 1
    assert score("trec", "Location or City", "Location") == 0.5
    assert score("passage_count", "3 of 4", "3") == 0.5
    assert score("passage_retrieval_en", "Paragraph 12", "Paragraph 12") == 1
    assert score("lcc", "# first\n    return x\nmore", "    return x") == 1
    assert score("samsum", "a king. \n the queen", "the queen") == 0
    assert score("gov_report", "the king walks", "a queen", "the king walks") == pytest.approx(1, abs=1e-7)


@needs_lm_eval
def test_templates_of_lm_eval_hold_context_and_question() -> None:
    row = {"input": "WHOM?", "context": "LONG TEXT {{x}} {y}"}
    for name in DATA_SETS:
        template = read_template(name)
        prompt = template(row)
        assert prompt.count("LONG TEXT {{x}} {y}") == 1
        assert template(row | {"question": "the mirror's name of the input"}) == prompt
        # Summaries, counting and code have no question.
        assert ("WHOM?" in prompt) is (name not in ("gov_report", "multi_news", "passage_count", "lcc")), name
