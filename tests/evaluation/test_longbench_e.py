from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.longbench_e import (
    BUCKETS,
    DATA_SETS,
    bucket_of,
    longbench_e,
    read_rows,
    rows_of_archive,
    score_reply,
)
from lengthwise.evaluation.longbench_templates import templates
from lengthwise.evaluation.tasks import GROUPS, TASKS, resolve_tasks

needs_lm_eval = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the extra lm-eval")


def test_the_table_is_the_published_one() -> None:
    assert len(DATA_SETS) == 13
    assert len({one.category for one in DATA_SETS.values()}) == 6
    assert [one.name for one in DATA_SETS.values() if one.first_line] == ["trec", "triviaqa", "samsum"]
    unwrapped = [one.name for one in DATA_SETS.values() if not one.chat]
    assert unwrapped == ["trec", "triviaqa", "samsum", "lcc", "repobench-p"]
    for name in DATA_SETS:
        assert TASKS[f"longbench_{name}_e"].metric == DATA_SETS[name].metric


@needs_lm_eval
def test_reply_lengths_are_those_of_lm_eval() -> None:
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "tasks" / "longbench"
    for name, data_set in DATA_SETS.items():
        text = (folder / f"{name}_e.yaml").read_text()
        assert f"max_gen_toks: {data_set.new_tokens}\n" in text


def test_groups_and_names() -> None:
    assert len(GROUPS["longbench_e"]) == 13
    assert resolve_tasks(["babilong_qa2", "needle", "babilong_qa1"]) == (
        *GROUPS["needle"],
        "babilong_qa1",
        "babilong_qa2",
    )
    with pytest.raises(UsageError, match="did you mean 'needle_single'"):
        resolve_tasks(["needle_singel"])
    with pytest.raises(UsageError, match="no task is given"):
        resolve_tasks([])


def test_buckets() -> None:
    assert [bucket_of(n) for n in (0, 3999, 4000, 7999, 8000, 20000)] == [
        BUCKETS[i] for i in (0, 0, 1, 1, 2, 2)
    ]


def test_rows_become_questions(official: Callable[..., Path], tmp_path: Path) -> None:
    official(tmp_path, "trec", count=5)
    rows = read_rows("trec", str(tmp_path))
    questions = longbench_e(
        "trec", rows=rows, template=lambda row: row["context"] + row["input"], samples=None
    )
    assert [question.bucket for question in questions] == ["0-4k", "4-8k", "8k+", "0-4k", "4-8k"]
    assert questions[0].prompt == rows[0]["context"] + rows[0]["input"]
    assert questions[0].classes == ["Location", "City", "Person"]
    assert len({question.key for question in questions}) == 5
    assert len(longbench_e("trec", rows=rows, template=lambda row: "", samples=2)) == 2


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"answers": "garden"}, "line 2: the field 'answers' is a str"),
        ({"answers": []}, r"line 2: the field 'answers' is \[\]"),
        ({"answers": [3]}, r"line 2: the field 'answers' is \[3\]"),
        ({"length": "4000"}, "line 2: the field 'length' is a str"),
        ({"context": None}, "line 2: the field 'context' is a NoneType"),
        ({"all_classes": None}, "line 2 has no field 'all_classes'"),
    ],
)
def test_malformed_rows_name_file_and_line(
    official: Callable[..., Path], tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = official(tmp_path, "trec") / "trec_e.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=f"trec_e.jsonl.*{problem}"):
        read_rows("trec", str(tmp_path))


def test_other_damage(official: Callable[..., Path], tmp_path: Path) -> None:
    path = official(tmp_path, "qasper") / "qasper_e.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    del row["input"]
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"line 1 has no field 'input'"):
        read_rows("qasper", str(tmp_path))
    path.write_text('{"input": "x"\n')
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        read_rows("qasper", str(tmp_path))
    path.write_text("[1]\n")
    with pytest.raises(UsageError, match="line 1 is a list"):
        read_rows("qasper", str(tmp_path))
    path.write_bytes(b'{"input": "\xff"}\n')
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        read_rows("qasper", str(tmp_path))
    path.write_text("\n")
    with pytest.raises(UsageError, match="holds no rows"):
        read_rows("qasper", str(tmp_path))
    with pytest.raises(MissingError, match=r"there is no hotpotqa_e.jsonl"):
        read_rows("hotpotqa", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "answer"), [("passage_retrieval_en", "twelve"), ("passage_count", "twelve")]
)
def test_answers_that_no_reply_can_match_are_malformed(
    official: Callable[..., Path], tmp_path: Path, name: str, answer: str
) -> None:
    path = official(tmp_path, name) / f"{name}_e.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"answers": [answer]})
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=f"{name}_e.jsonl, line 3: the answer 'twelve' can never be right"):
        read_rows(name, str(tmp_path))


def test_the_official_archive(official: Callable[..., Path], tmp_path: Path) -> None:
    official(tmp_path / "rows", "lcc")
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.write(tmp_path / "rows" / "lcc_e.jsonl", "data/lcc_e.jsonl")
    assert rows_of_archive(archive, "lcc") == read_rows("lcc", str(tmp_path / "rows"))
    with pytest.raises(UsageError, match=r"holds no data/trec_e\.jsonl"):
        rows_of_archive(archive, "trec")
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("data/lcc_e.jsonl", (tmp_path / "rows" / "lcc_e.jsonl").read_text() + '{"input"')
    with pytest.raises(UsageError, match=r"data\.zip, data/lcc_e\.jsonl, line 4 is not JSON"):
        rows_of_archive(archive, "lcc")


def test_the_folder_may_be_the_unpacked_archive(official: Callable[..., Path], tmp_path: Path) -> None:
    official(tmp_path / "data", "lcc")
    assert len(read_rows("lcc", str(tmp_path))) == 3


def test_scores_by_data_set() -> None:
    def score(name: str, reply: str, *golds: str) -> float:
        return score_reply(DATA_SETS[name], reply, golds, ["Location", "City"])

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
    found, source = templates(None, tuple(DATA_SETS))
    assert "lm-eval" in source
    row = {"input": "WHOM?", "context": "LONG TEXT {{x}} {y}"}
    for name, template in found.items():
        prompt = template(row)
        assert prompt.count("LONG TEXT {{x}} {y}") == 1
        assert template(row | {"question": "the mirror's name of the input"}) == prompt
        # Summaries, counting and code have no question.
        assert ("WHOM?" in prompt) is (name not in ("gov_report", "multi_news", "passage_count", "lcc")), name


def test_official_templates(tmp_path: Path) -> None:
    path = tmp_path / "LongBench" / "config" / "dataset2prompt.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"qasper": "Read {context}\n\nSay {input}\n"}))
    found, source = templates(str(tmp_path), ("qasper",))
    assert "official" in source
    assert found["qasper"]({"input": "{a}", "context": "c", "length": 3}) == "Read c\n\nSay {a}\n"
    with pytest.raises(UsageError, match="no template for 'trec'"):
        templates(str(tmp_path), ("trec",))
    with pytest.raises(MissingError, match=r"there is no dataset2prompt.json"):
        templates(str(path), ("qasper",))
