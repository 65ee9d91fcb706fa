"""LongBench-E: 13 data sets of English and code in three buckets of length, as THUDM/LongBench scores them.

Rows are read from the official jsonl files (`qasper_e.jsonl`, ...) in a folder, or from the hub. Prompts are
cut in the middle as upstream does, and wrapped in the chat template (where the tokenizer has one) but for the
few-shot and code sets. Three data sets are scored by the first line of the reply. Scores are shares; papers
print them times 100.

Upstream prints 13 data sets in three buckets and no single number, so there are three averages, each by name:

    average_rows        mean over the data sets of the mean of all their rows
    average_categories  mean over the six categories of the mean of their data sets
    average_buckets     mean over the buckets of the mean over the data sets of the bucket's rows
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.longbench_templates import Template
from lengthwise.evaluation.questions import Question
from lengthwise.evaluation.scoring import LONGBENCH_SCORERS, best_over_golds, class_match, first_line

HUB = "THUDM/LongBench"
BUCKETS = ("0-4k", "4-8k", "8k+")


@dataclass(frozen=True)
class DataSet:
    """How one of the data sets is prompted and scored."""

    name: str
    category: str
    metric: str
    new_tokens: int
    chat: bool = True
    """Whether upstream wraps its prompt in the chat template."""
    first_line: bool = False


DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet("qasper", "single-document QA", "f1", 128),
        DataSet("multifieldqa_en", "single-document QA", "f1", 64),
        DataSet("hotpotqa", "multi-document QA", "f1", 32),
        DataSet("2wikimqa", "multi-document QA", "f1", 32),
        DataSet("gov_report", "summarisation", "rouge_l", 512),
        DataSet("multi_news", "summarisation", "rouge_l", 512),
        DataSet("trec", "few-shot", "class_match", 64, chat=False, first_line=True),
        DataSet("triviaqa", "few-shot", "f1", 32, chat=False, first_line=True),
        DataSet("samsum", "few-shot", "rouge_l", 128, chat=False, first_line=True),
        DataSet("passage_count", "synthetic", "number_share", 32),
        DataSet("passage_retrieval_en", "synthetic", "paragraph_share", 32),
        DataSet("lcc", "code", "code_similarity", 64, chat=False),
        DataSet("repobench-p", "code", "code_similarity", 64, chat=False),
    )
}

# What a gold answer must look like for its metric to be able to find it.
_ANSWERS = {"number_share": r"^\d+$", "paragraph_share": r"Paragraph (\d+)"}
# Field, and what its value must be.
_FIELDS: tuple[tuple[str, type], ...] = (("input", str), ("context", str), ("answers", list), ("length", int))


def bucket_of(length: int) -> str:
    """The bucket of a row's `length` field, which counts words (not tokens)."""
    return BUCKETS[0] if length < 4000 else BUCKETS[1] if length < 8000 else BUCKETS[2]


def score_reply(data_set: DataSet, reply: str, golds: Sequence[str], classes: Sequence[str]) -> float:
    """The score of one reply, the greatest over the gold answers."""
    read = first_line(reply) if data_set.first_line else reply
    if data_set.metric == "class_match":
        return best_over_golds(lambda text, gold: class_match(text, gold, classes), read, golds)
    return best_over_golds(LONGBENCH_SCORERS[data_set.metric], read, golds)


def longbench_e(
    name: str, *, rows: Sequence[Mapping[str, Any]], template: Template, samples: int | None
) -> list[Question]:
    """A question for each of the first `samples` rows (all: None) of the data set `name`."""
    data_set = DATA_SETS[name]
    return [
        Question(
            key=f"longbench_{name}_e/r{index:04d}",
            unit=f"{name}/r{index:04d}",
            context=f"{name}/r{index:04d}",
            prompt=template(row),
            golds=list(row["answers"]),
            classes=list(row.get("all_classes") or []),
            new_tokens=data_set.new_tokens,
            bucket=bucket_of(row["length"]),
        )
        for index, row in enumerate(rows[:samples])
    ]


def read_rows(name: str, source: str | None) -> list[dict[str, Any]]:
    """The rows of a data set, from `<source>/<name>_e.jsonl` or, without a source, from the hub.

    Raises:
        MissingError: no such file, or the hub cannot be reached.
        UsageError: a row that is not in the official format; file and line are named.
    """
    if source is None:
        return _from_hub(name)
    folder = Path(source)
    path = next(
        (one for one in (folder / f"{name}_e.jsonl", folder / "data" / f"{name}_e.jsonl") if one.is_file()),
        None,
    )
    if path is None:
        raise MissingError(
            f"there is no {name}_e.jsonl in {source}",
            expected="the folder of LongBench's jsonl files (data.zip of the data set on the hub)",
        )
    return _rows_of(path.read_bytes(), name, where=str(path))


def _rows_of(content: bytes, name: str, *, where: str) -> list[dict[str, Any]]:
    """The checked rows of a jsonl file."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{where}, line {number} is not JSON: {error}") from error
            rows.append(checked_row(row, name, where=f"{where}, line {number}"))
    if not rows:
        raise UsageError(f"{where} holds no rows")
    return rows


def checked_row(row: Any, name: str, *, where: str) -> dict[str, Any]:
    """The row if it is in the official format.

    Raises:
        UsageError: it is not; `where` is named.
    """
    expected = "an object with input, context, answers (a list of texts), length and all_classes"
    if not isinstance(row, dict):
        raise UsageError(f"{where} is a {type(row).__name__}", expected=expected)
    for field, kind in _FIELDS:
        if field not in row:
            raise UsageError(f"{where} has no field {field!r}", expected=expected)
        if not isinstance(row[field], kind) or isinstance(row[field], bool):
            raise UsageError(
                f"{where}: the field {field!r} is a {type(row[field]).__name__}", expected=expected
            )
    if not _texts(row["answers"]):
        raise UsageError(f"{where}: the field 'answers' is {row['answers']!r}", expected=expected)
    metric = DATA_SETS[name].metric
    if metric == "class_match" and not _texts(row.get("all_classes")):
        raise UsageError(f"{where} has no field 'all_classes'", expected="the class names, for trec")
    pattern = _ANSWERS.get(metric)
    for answer in row["answers"]:
        if pattern is not None and not re.search(pattern, answer):
            raise UsageError(
                f"{where}: the answer {answer!r} can never be right", expected=f"a text with {pattern}"
            )
    return row


def _texts(value: Any) -> bool:
    """Whether it is a list of texts, not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _from_hub(name: str) -> list[dict[str, Any]]:
    from huggingface_hub import hf_hub_download

    try:
        archive = hf_hub_download(HUB, "data.zip", repo_type="dataset")
    except Exception as error:
        # The hub library has changed its HTTP library more than once, so no error class of theirs is named.
        raise MissingError(
            f"LongBench cannot be had from the hub: {(str(error) or type(error).__name__).splitlines()[0]}",
            fix=f"on a machine with the hub: hf download --repo-type dataset {HUB}; then --data FOLDER",
        ) from error
    return rows_of_archive(Path(archive), name)


def rows_of_archive(archive: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a data set in the official data.zip.

    Raises:
        UsageError: no such file in it, or a row that is not in the official format.
    """
    import zipfile

    member = f"data/{name}_e.jsonl"
    with zipfile.ZipFile(archive) as files:
        if member not in files.namelist():
            raise UsageError(f"{archive} holds no {member}", expected="LongBench's data.zip")
        content = files.read(member)
    return _rows_of(content, name, where=f"{archive}, {member}")
