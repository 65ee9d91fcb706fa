"""LongBench-E: 13 data sets of English and code in three buckets of length, as THUDM/LongBench scores them.

Rows are read from the official jsonl files (`qasper_e.jsonl`, ...) in a folder, or from the hub. Templates of prompts
and scorers of replies are those of lm-eval, which publishes THUDM's; the score is the greatest over all gold answers.
Prompts are cut in the middle as upstream does, and wrapped in the chat template (if the tokenizer has one) except for
the few-shot and code sets. Three data sets are scored by the first line of the reply. Scores are shares; papers print
them times 100.

Upstream prints 13 data sets in three buckets and no single number, so there are three averages, each by name:

    average_rows        mean over the data sets of the mean of all their rows
    average_categories  mean over the six categories of the mean of their data sets
    average_buckets     mean over the buckets of the mean over the data sets of the bucket's rows
"""

from __future__ import annotations

import importlib
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, ValidationError

from lengthwise.errors import MissingError, UsageError, reason, shown
from lengthwise.evaluation.task import ANY_TASK, Family, Question, Task, mean
from lengthwise.files import named_path
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic

BUCKETS = ("0-4k", "4-8k", "8k+")
_HUB = "THUDM/LongBench"

_FACTS: dict[str, tuple[str, str, str, int]] = {
    "qasper": ("single-document QA", "questions on one paper", "f1", 128),
    "multifieldqa_en": ("single-document QA", "questions on one document", "f1", 64),
    "hotpotqa": ("multi-document QA", "questions on several documents", "f1", 32),
    "2wikimqa": ("multi-document QA", "questions on several documents", "f1", 32),
    "gov_report": ("summarisation", "summaries of reports", "rouge_l", 512),
    "multi_news": ("summarisation", "summaries of news", "rouge_l", 512),
    "trec": ("few-shot", "kinds of questions from examples", "class_match", 64),
    "triviaqa": ("few-shot", "trivia from examples", "f1", 32),
    "samsum": ("few-shot", "summaries of dialogues from examples", "rouge_l", 128),
    "passage_count": ("synthetic", "how many passages differ", "number_share", 32),
    "passage_retrieval_en": ("synthetic", "which passage a summary is of", "paragraph_share", 32),
    "lcc": ("code", "the next line of a file", "code_similarity", 64),
    "repobench-p": ("code", "the next line in a repository", "code_similarity", 64),
}
"""Category, content, metric, and the most tokens of a reply."""
_SCORERS = {
    "f1": "qa_f1_score",
    "rouge_l": "rouge_score",
    "class_match": "classification_score",
    "number_share": "count_score",
    "paragraph_share": "retrieval_score",
    "code_similarity": "code_sim_score",
}
"""Metric -> the function of lm-eval."""

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
        UsageError: a row that is not in the official format; file and line are named. See also `named_path`.
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
    home = named_path(source, what="data")
    root = zipfile.Path(home) if zipfile.is_zipfile(home) else home
    places = (root / f"{name}_e.jsonl", root / "data" / f"{name}_e.jsonl")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise MissingError(
            f"there is no {name}_e.jsonl in {home}",
            expected="the folder of LongBench's jsonl files (data.zip of the data set on the hub)",
        )
    rows, lines = list[dict[str, Any]](), dict[bytes, int]()
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            rows.append(_checked(line, metric, where=f"{path}, line {number}"))
            # Rows have an id each.
            if (first := lines.setdefault(line.strip(), number)) != number:
                raise UsageError(f"{path}, line {number} is line {first} again", expected="each row once")
    if not rows:
        raise UsageError(f"{path} holds no rows")
    return rows


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    input: str
    context: str
    length: int
    answers: Annotated[list[str], MinLen(1)]
    all_classes: list[str] | None = None


def _checked(line: bytes, metric: str, *, where: str) -> dict[str, Any]:
    try:
        # Unlike json it refuses half of a surrogate pair, and any depth.
        row = _Row.model_validate_json(line).model_dump()
    except ValidationError as error:
        wrong = error.errors()[0]
        name = "".join(f" the field {field!r}:" for field in wrong["loc"][:1])
        raise UsageError(f"{where}:{name} {wrong['msg']}", expected=_FORMAT) from None
    answers, classes = row["answers"], row["all_classes"]
    found = all(re.search(_ANSWERS.get(metric, r"\S"), each) for each in answers)
    if metric == "class_match":
        # The scorer finds names of classes alone.
        found = found and ({*answers} <= {*classes} if classes else True)
    for name, valid in (("answers", found), ("all_classes", metric != "class_match" or classes)):
        if not valid:
            raise UsageError(f"{where}: the field {name!r} is {shown(row[name])}", expected=_FORMAT)
    return row


def _of_lm_eval(module: str) -> Any:
    """A module of lm-eval; MissingError if the extra is not installed."""
    try:
        with warnings.catch_warnings():
            # Of packages that it imports: escapes in strings, pkg_resources, a slow matcher.
            warnings.simplefilter("ignore")
            return importlib.import_module(f"lm_eval.{module}")
    except ImportError as error:
        raise MissingError(
            f"LongBench's prompts and scorers are those of lm-eval: {reason(error)}",
            fix="pip install 'lengthwise[lm-eval]'",
        ) from error


def read_template(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The prompt template of a data set, as lm-eval publishes it; MissingError if the extra is not installed."""
    apply = _of_lm_eval("utils").apply_template
    path = Path(_of_lm_eval("tasks.longbench.metrics").__file__).with_name(f"{name}_e.yaml")
    # The functions that the file names are read as text.
    template = yaml.safe_load(path.read_text(encoding="utf-8").replace("!function", ""))["doc_to_text"]
    # The mirror that lm-eval reads calls `input` the question.
    return lambda row: apply(template, {**row, "question": row["input"]})


def _task(name: str) -> Task:
    category, what, metric, new_tokens = _FACTS[name]
    few_shot = category == "few-shot"

    def questions(settings: Any, *_: Any) -> list[Question]:
        template = read_template(name)
        rows = read_rows(name, settings.data, metric=metric)
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
        scorer = getattr(_of_lm_eval("tasks.longbench.metrics"), _SCORERS[metric])
        return max(scorer(read, gold, all_classes=question.candidates) for gold in question.golds)

    return Task(
        name=f"longbench_{name}_e",
        what=f"LongBench-E: {what}",
        version=2,
        metric=metric,
        questions=questions,
        score=score,
        takes=ANY_TASK | {"data", "truncation", "chat"},
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
            return mean(self.name, metric, [*branches], bucket=bucket, version=2)

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
