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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.averages import mean_over
from lengthwise.evaluation.family import ANY_TASK, Family, Question, QuestionSet, Task
from lengthwise.evaluation.longbench_rows import read_rows
from lengthwise.evaluation.longbench_templates import Template, read_template
from lengthwise.evaluation.prompts import takes_chat
from lengthwise.evaluation.scoring import LONGBENCH_SCORERS, best_over_golds, class_match, first_line
from lengthwise.measure.statistics import Statistic

if TYPE_CHECKING:
    from lengthwise.evaluation.settings import EvaluationSettings
    from lengthwise.measure.measurement import Record
    from lengthwise.text import Corpus

BUCKETS = ("0-4k", "4-8k", "8k+")


def bucket_of(length: int) -> str:
    """The bucket of a row's `length` field, which counts words (not tokens)."""
    return BUCKETS[0] if length < 4000 else BUCKETS[1] if length < 8000 else BUCKETS[2]


@dataclass(frozen=True, kw_only=True)
class DataSet(Task):
    """How one of the data sets is prompted and scored."""

    data_set: str
    category: str
    new_tokens: int
    chat: bool = True
    """Whether upstream wraps its prompt in the chat template."""
    first_line: bool = False
    """Whether only the first line of a reply is scored."""
    version: int = 1
    takes: frozenset[str] = ANY_TASK | {"data", "templates", "truncation", "chat"}
    cut_to_limit: bool = True

    def check(self, spec: EvaluationSettings) -> None:
        """Refuse a run without `max_length`."""
        if spec.max_length is None:
            raise UsageError(
                "LongBench needs the greatest number of tokens of a prompt",
                expected="--max-length TOKENS; upstream takes 3500 for a model of 4k, and leaves room for the reply",
            )

    def question_set(self, spec: EvaluationSettings, tokenizer: Any, corpus: Corpus | None) -> QuestionSet:
        """A question for each of the first `samples` rows of the data (all if None)."""
        template, source = read_template(spec.templates, self.data_set)
        chat = spec.chat == "auto" and self.chat and takes_chat(tokenizer)
        rows = read_rows(self.data_set, spec.data, metric=self.metric)[: spec.samples]
        questions = [self.question(index, row, template) for index, row in enumerate(rows)]
        return QuestionSet(questions, chat, {"templates": source, "chat": chat})

    def question(self, index: int, row: Mapping[str, Any], template: Template) -> Question:
        """The question of one row."""
        place = f"{self.data_set}/r{index:04d}"
        return Question(
            key=f"{self.name}/r{index:04d}",
            unit=place,
            context=place,
            prompt=template(row),
            golds=list(row["answers"]),
            classes=list(row.get("all_classes") or []),
            new_tokens=self.new_tokens,
            bucket=bucket_of(row["length"]),
        )

    def score(self, question: Question, reply: str) -> float:
        """The score of one reply, the greatest over the gold answers."""
        read = first_line(reply) if self.first_line else reply
        if self.metric == "class_match":
            return best_over_golds(
                lambda text, gold: class_match(text, gold, question.classes), read, question.golds
            )
        return best_over_golds(LONGBENCH_SCORERS[self.metric], read, question.golds)


def _has_first_line(reply: str) -> bool:
    return "\n" in reply.lstrip("\n")


def _data_set(name: str, what: str, category: str, metric: str, new_tokens: int, **options: Any) -> DataSet:
    return DataSet(
        name=f"longbench_{name}_e",
        what=f"LongBench-E: {what}",
        data_set=name,
        category=category,
        metric=metric,
        new_tokens=new_tokens,
        **options,
    )


_FEW_SHOT: dict[str, Any] = {"chat": False, "first_line": True, "is_over": _has_first_line}


class _LongBenchE(Family):
    name = "longbench_e"
    mean = "average_rows"
    tasks = (
        _data_set("qasper", "questions on one paper", "single-document QA", "f1", 128),
        _data_set("multifieldqa_en", "questions on one document", "single-document QA", "f1", 64),
        _data_set("hotpotqa", "questions on several documents", "multi-document QA", "f1", 32),
        _data_set("2wikimqa", "questions on several documents", "multi-document QA", "f1", 32),
        _data_set("gov_report", "summaries of reports", "summarisation", "rouge_l", 512),
        _data_set("multi_news", "summaries of news", "summarisation", "rouge_l", 512),
        _data_set("trec", "kinds of questions from examples", "few-shot", "class_match", 64, **_FEW_SHOT),
        _data_set("triviaqa", "trivia from examples", "few-shot", "f1", 32, **_FEW_SHOT),
        # As upstream: its replies end at a newline, and have one token at least.
        _data_set(
            "samsum",
            "summaries of dialogues from examples",
            "few-shot",
            "rouge_l",
            128,
            stop_text="\n",
            **_FEW_SHOT,
        ),
        _data_set("passage_count", "how many passages differ", "synthetic", "number_share", 32),
        _data_set(
            "passage_retrieval_en", "which passage a summary is of", "synthetic", "paragraph_share", 32
        ),
        _data_set("lcc", "the next line of a file", "code", "code_similarity", 64, chat=False),
        _data_set("repobench-p", "the next line in a repository", "code", "code_similarity", 64, chat=False),
    )

    def statistics(self, tasks: Sequence[Task], records: Sequence[Record]) -> list[Statistic]:
        """The three averages, over cells that are data set x bucket, and `average_rows` of each bucket."""
        if not records:
            return []
        names = [task.name for task in tasks]
        cells = {
            (name, bucket): index * len(BUCKETS) + place
            for index, name in enumerate(names)
            for place, bucket in enumerate(BUCKETS)
        }
        placed = [(cells[record["task"], record["bucket"] or ""], record) for record in records]
        sets = {name: [cells[name, bucket] for bucket in BUCKETS] for name in names}
        categories: dict[str, list[list[int]]] = {}
        for one in DATA_SETS.values():
            if one.name in sets:
                categories.setdefault(one.category, []).append(sets[one.name])
        buckets = [[[cells[name, bucket]] for name in names] for bucket in BUCKETS]

        def average(metric: str, tree: Sequence[Any], bucket: str | None = None) -> Statistic:
            return mean_over(self.name, metric, placed, tree, bucket=bucket, version=tasks[0].version)

        return [
            average("average_rows", list(sets.values())),
            average("average_categories", list(categories.values())),
            average("average_buckets", buckets),
            *(average("average_rows", tree, bucket) for bucket, tree in zip(BUCKETS, buckets, strict=True)),
        ]

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """What the averages are."""
        whole = (
            "" if len(tasks) == len(self.tasks) else f" Here: {len(tasks)} of {len(self.tasks)} data sets."
        )
        return [
            "average_rows is the mean over data sets of all their rows, average_categories the mean over categories "
            f"of their data sets, average_buckets the mean over the three buckets of the mean over data sets.{whole}"
        ]


LONGBENCH_E = _LongBenchE()
DATA_SETS = {one.data_set: one for one in LONGBENCH_E.tasks if isinstance(one, DataSet)}
