"""LongBench-E: 13 data sets of English and code in three buckets of length, as THUDM/LongBench scores them.

Rows are read from the official jsonl files (`qasper_e.jsonl`, ...) in a folder, or from the hub. Prompt templates
are read from where they are published. Prompts are cut in the middle as upstream does, and wrapped in the chat
template (if the tokenizer has one) except for the few-shot and code sets. Three data sets are scored by the first
line of the reply. Scores are shares; papers print them times 100.

Upstream prints 13 data sets in three buckets and no single number, so there are three averages, each by name:

    average_rows        mean over the data sets of the mean of all their rows
    average_categories  mean over the six categories of the mean of their data sets
    average_buckets     mean over the buckets of the mean over the data sets of the bucket's rows
"""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import from_json

from lengthwise.errors import MissingError, UsageError, reason, shown
from lengthwise.evaluation import scoring
from lengthwise.evaluation.task import ANY_TASK, Family, Question, Task, mean
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic

BUCKETS = ("0-4k", "4-8k", "8k+")
_HUB = "THUDM/LongBench"

_FACTS: dict[str, tuple[str, str, Callable[..., float], int]] = {
    "qasper": ("single-document QA", "questions on one paper", scoring.f1, 128),
    "multifieldqa_en": ("single-document QA", "questions on one document", scoring.f1, 64),
    "hotpotqa": ("multi-document QA", "questions on several documents", scoring.f1, 32),
    "2wikimqa": ("multi-document QA", "questions on several documents", scoring.f1, 32),
    "gov_report": ("summarisation", "summaries of reports", scoring.rouge_l, 512),
    "multi_news": ("summarisation", "summaries of news", scoring.rouge_l, 512),
    "trec": ("few-shot", "kinds of questions from examples", scoring.class_match, 64),
    "triviaqa": ("few-shot", "trivia from examples", scoring.f1, 32),
    "samsum": ("few-shot", "summaries of dialogues from examples", scoring.rouge_l, 128),
    "passage_count": ("synthetic", "how many passages differ", scoring.number_share, 32),
    "passage_retrieval_en": ("synthetic", "which passage a summary is of", scoring.paragraph_share, 32),
    "lcc": ("code", "the next line of a file", scoring.code_similarity, 64),
    "repobench-p": ("code", "the next line in a repository", scoring.code_similarity, 64),
}
"""Category, content, scorer, and the most tokens of a reply."""

_FORMAT = "an object with input, context, length, answers (texts to match), and for trec all_classes"
# What a gold answer must contain for its metric to find it.
_ANSWERS = {"number_share": r"^\d+$", "paragraph_share": r"Paragraph (\d+)"}


def bucket_of(length: int) -> str:
    """The bucket of a row's `length` field, which counts words (not tokens)."""
    return BUCKETS[0] if length < 4000 else BUCKETS[1] if length < 8000 else BUCKETS[2]


def read_rows(name: str, source: str | None, *, metric: str) -> list[dict[str, Any]]:
    """The rows of a data set, as in the official files; `metric` says what a gold answer must contain.

    `source` is the folder of its file `<name>_e.jsonl`, or of the folder `data` with it, or the official data.zip,
    which None takes from the hub.

    Raises:
        MissingError: no such file, or the hub cannot be reached.
        UsageError: a row that is not in the official format; file and line are named.
    """
    if source is None:
        from huggingface_hub import hf_hub_download

        try:
            source = hf_hub_download(_HUB, "data.zip", repo_type="dataset")
        except Exception as error:
            # The hub library has changed its HTTP library more than once, so no error class of theirs is named.
            raise MissingError(
                f"LongBench cannot be downloaded from the hub: {reason(error)}",
                fix=f"on a machine with the hub: hf download --repo-type dataset {_HUB}; then --data FOLDER",
            ) from error
    home = Path(source)
    root = zipfile.Path(home) if zipfile.is_zipfile(home) else home
    places = (root / f"{name}_e.jsonl", root / "data" / f"{name}_e.jsonl")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise MissingError(
            f"there is no {name}_e.jsonl in {home}",
            expected="the folder of LongBench's jsonl files (data.zip of the data set on the hub)",
        )
    rows = [
        _checked(line, metric, where=f"{path}, line {number}")
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise UsageError(f"{path} holds no rows")
    return rows


def _checked(line: bytes, metric: str, *, where: str) -> dict[str, Any]:
    def texts(value: Any, pattern: str = "") -> bool:
        return (
            isinstance(value, list)
            and bool(value)
            and all(isinstance(each, str) and re.search(pattern, each) for each in value)
        )

    try:
        # Unlike json it refuses half of a surrogate pair, and any depth.
        row = from_json(line)
        valid = {
            "input": isinstance(row["input"], str),
            "context": isinstance(row["context"], str),
            "length": type(row["length"]) is int,
            "answers": texts(row["answers"], _ANSWERS.get(metric, "")),
            "all_classes": metric != "class_match" or texts(row["all_classes"]),
        }
    except KeyError as error:
        raise UsageError(f"{where} has no field {error}", expected=_FORMAT) from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where}: {reason(error)}", expected=_FORMAT) from None
    for name in valid:
        if not valid[name]:
            raise UsageError(f"{where}: the field {name!r} is {shown(row[name])}", expected=_FORMAT)
    return row


def read_template(folder: str | None, name: str) -> Callable[[Mapping[str, Any]], str]:
    """The prompt template of a data set. The two sources differ in some spaces and newlines.

    `folder` is a copy of the official repository, or its config folder. None takes lm-eval's templates.

    Raises:
        MissingError: no such file, or lm-eval is not installed.
        UsageError: no template for the data set, or a file that cannot be read.
    """
    if folder is None:
        return _template_of_lm_eval(name)
    homes = (Path(folder) / part / "dataset2prompt.json" for part in ("", "config", "LongBench/config"))
    path = next((place for place in homes if place.is_file()), None)
    if path is None:
        raise MissingError(
            f"there is no dataset2prompt.json in {folder}",
            expected="a copy of the repository THUDM/LongBench",
        )
    try:
        text = json.loads(path.read_text(encoding="utf-8"))[name]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{path} has no template for {name!r}", expected="the official dataset2prompt.json"
        ) from error
    return lambda row: text.format(**row)


def _template_of_lm_eval(name: str) -> Callable[[Mapping[str, Any]], str]:
    spec = importlib.util.find_spec("lm_eval")
    path = Path((spec and spec.origin) or "").parent / "tasks" / "longbench" / f"{name}_e.yaml"
    if not path.is_file():
        raise MissingError(
            "LongBench's prompt templates are not here",
            expected="the package lm-eval, or a copy of the repository THUDM/LongBench",
            fix="pip install 'lengthwise[lm-eval]', or --templates FOLDER",
        )
    from lm_eval.utils import apply_template

    # The functions that the file names are read as text.
    text = re.sub(r"!function", "", path.read_text(encoding="utf-8"))
    template = yaml.safe_load(text)["doc_to_text"]
    # The mirror that lm-eval reads calls `input` the question.
    return lambda row: apply_template(template, {**row, "question": row["input"]})


def _task(name: str) -> Task:
    category, what, scorer, new_tokens = _FACTS[name]
    few_shot = category == "few-shot"

    def questions(settings: Any, *_: Any) -> list[Question]:
        template = read_template(settings.templates, name)
        rows = read_rows(name, settings.data, metric=scorer.__name__)
        return [
            Question(
                key=f"longbench_{name}_e/r{index:04d}",
                prompt=template(row),
                golds=row["answers"],
                candidates=row.get("all_classes") or [],
                new_tokens=new_tokens,
                bucket=bucket_of(row["length"]),
            )
            for index, row in enumerate(rows[: settings.samples])
        ]

    def score(question: Question, reply: str) -> float:
        read = reply.lstrip("\n").split("\n")[0] if few_shot else reply
        options = {"classes": question.candidates} if scorer is scoring.class_match else {}
        return max(scorer(read, gold, **options) for gold in question.golds)

    return Task(
        name=f"longbench_{name}_e",
        what=f"LongBench-E: {what}",
        version=1,
        metric=scorer.__name__,
        questions=questions,
        score=score,
        takes=ANY_TASK | {"data", "templates", "truncation", "chat"},
        chat=category not in ("few-shot", "code"),
        is_over=(lambda reply: "\n" in reply.lstrip("\n")) if few_shot else None,
        # As upstream: its replies end at a newline, and have one token at least.
        stop_text="\n" if name == "samsum" else "",
    )


class _LongBenchE(Family):
    def statistics(self, records: Mapping[str, Sequence[Record]]) -> list[Statistic]:
        """The three averages, and `average_rows` of each bucket."""
        if not any(records.values()):
            return []
        categories: dict[str, list[Sequence[Record]]] = {}
        for name, (category, *_) in _FACTS.items():
            if (task := DATA_SETS[name].name) in records:
                categories.setdefault(category, []).append(records[task])
        buckets = {
            bucket: [[record for record in own if record["bucket"] == bucket] for own in records.values()]
            for bucket in BUCKETS
        }

        def average(metric: str, branches: Any, bucket: str | None = None) -> Statistic:
            return mean(self.name, metric, [*branches], bucket=bucket, version=1)

        return [
            average("average_rows", records.values()),
            average("average_categories", categories.values()),
            average("average_buckets", buckets.values()),
            *(average("average_rows", some, bucket) for bucket, some in buckets.items()),
        ]


DATA_SETS = {name: _task(name) for name in _FACTS}
LONGBENCH_E = _LongBenchE(
    "longbench_e",
    tuple(DATA_SETS.values()),
    note="average_rows is the mean over data sets of all their rows, average_categories the mean over categories of "
    "their data sets, average_buckets the mean over the three buckets of the mean over data sets.",
)
