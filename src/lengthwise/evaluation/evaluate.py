"""`lengthwise eval` as a measurement: its items are questions.

run(Evaluation(tasks=("babilong_qa1",), lengths=(2048,)), "smollm2-135m", out="runs/e")
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, MinLen
from cyclopts import Parameter
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.evaluation.effective_length import KEPT, clear_effective_lengths
from lengthwise.evaluation.lm_eval_output import imported_statistics
from lengthwise.evaluation.prompts import Truncation, prompt_notes, unfinished_thoughts
from lengthwise.evaluation.scoring import ranking
from lengthwise.evaluation.task import DoesNotFit, Family, Question, Task, estimated
from lengthwise.evaluation.tasks import FAMILIES, TASKS, resolve_tasks
from lengthwise.measure.measurement import About, Item, Measurement, Reads, Record, in_groups
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row, percent
from lengthwise.settings import Count, Finite, Seed, Whole
from lengthwise.subjects.reading import Predictor, Reader
from lengthwise.text.corpus import Corpus


class Evaluation(Measurement):
    """Does a model answer questions over long input?

    Needles, BABILong by length and depth, LongBench-E. No prompt is cut unless you say how, and every result says
    how many were cut. `lengthwise import` makes a run of what lm-eval wrote, for its tasks.
    """

    about = About(
        kind="eval",
        levels=("chance", "effective_length"),
        examples=(
            "lengthwise eval smollm2-135m needle_multi_key --lengths 2048 4096",
            "lengthwise eval smollm2-135m babilong --mode likelihood --lengths 2048 --samples 20 --out runs/babilong",
            "lengthwise eval ./my-model longbench_e --data LongBench/data --max-length 3500 --truncation middle",
        ),
        reads="questions",
        units="samples",
        # The source of the questions shows in the questions themselves.
        no_facts=("data", "stories"),
        caches=2,
    )

    tasks: Annotated[tuple[str, ...], MinLen(1), Parameter("TASK...")]
    """Names or groups of `lengthwise ls tasks`."""
    mode: Literal["greedy", "likelihood"] = "greedy"
    """Score greedy replies, or rank the possible answers by likelihood (for small models too)."""
    lengths: Annotated[tuple[Annotated[Whole, Ge(64)], ...], MinLen(1), Parameter(metavar="TOKENS")] = (2048,)
    """Tokens of the whole prompt, for tasks that are made up."""
    depths: Annotated[
        tuple[Annotated[Finite, Ge(0), Le(100)], ...], MinLen(1), Parameter(metavar="PERCENT")
    ] = (0.0, 25.0, 50.0, 75.0, 100.0)
    """Positions of the answer in per cent of the context."""
    samples: Annotated[Count, Le(1_000_000)] | None = None
    """Samples at each length and depth (default 10), or rows of a data set (default all)."""
    data: str | None = None
    """Folder of LongBench's jsonl files (default: the hub)."""
    stories: str | None = None
    """Folder of bAbI's own files, for BABILong."""
    max_length: Annotated[Annotated[Whole, Ge(2)] | None, Parameter(metavar="TOKENS")] = None
    """Most tokens of a data set's prompt."""
    truncation: Truncation | None = None
    """How longer prompts are cut. Without it they are refused."""
    chat: Literal["auto", "never"] = "auto"
    """auto uses the tokenizer's chat template where LongBench does; its date is always 26 July 2024."""
    seed: Seed = 0
    """Seed of what is made up."""
    batch_size: Count = 1
    """Prompts, or endings of one prompt, at a time. More needs more memory; the scores stay the same."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        # The name of a question has six digits of its depth.
        if len({float(f"{depth:g}") for depth in self.depths}) < len(self.depths):
            raise UsageError(f"a depth is given twice: {self.depths}")
        if not self.own_tasks:
            raise UsageError(
                f"no task of {', '.join(self.tasks)} has answers to rank", fix="use --mode greedy"
            )
        self._refuse_untaken(self.model_fields_set)
        if self.max_length is None and "data" in self._takes:
            raise UsageError(
                "LongBench needs the greatest number of tokens of a prompt",
                expected="--max-length TOKENS; it takes 3500 for a model of 4k, and leaves room for the reply",
            )
        longest = max(self.lengths)
        for task in self.own_tasks:
            if self.mode == "likelihood" and not task.ranks:
                raise UsageError(f"{task.name} has no answers to rank", fix="use --mode greedy for it")
            if "lengths" in task.takes and longest > (self.max_length or longest):
                raise UsageError(
                    f"{task.name} is made for {longest} tokens, and max_length is {self.max_length}",
                    fix="shorter lengths; or data sets, which max_length is for, in a run of their own",
                )
            if len(self.depths) > task.most_depths:
                raise UsageError(
                    f"{task.name} with {len(self.depths)} depths", expected=f"at most {task.most_depths}"
                )
        return self

    @property
    def _families(self) -> dict[Family, list[Task]]:
        found = {family: [one for one in own if self._asks(one)] for family, own in self._named.items()}
        return {family: own for family, own in found.items() if own}

    @property
    def _named(self) -> dict[Family, list[Task]]:
        return resolve_tasks(self.tasks)

    def _asks(self, task: Task) -> bool:
        """Of a group, tasks without answers to rank are left out where answers are ranked."""
        return self.mode == "greedy" or task.ranks or task.name in self.tasks

    @property
    def own_tasks(self) -> list[Task]:
        """The tasks of the run."""
        return list(chain.from_iterable(self._families.values()))

    @property
    def _takes(self) -> frozenset[str]:
        """The settings that some task of the run takes."""
        return frozenset[str]().union(*(task.takes for task in self.own_tasks))

    @property
    def reads(self) -> Reads | None:
        """A text, where a task is made from one."""
        return self.about.reads if "text" in self._takes else None

    @property
    def writes(self) -> bool:
        """Greedy replies; answers that are ranked are read."""
        return self.mode == "greedy"

    def _refuse_untaken(self, given: Iterable[str]) -> None:
        """Raise UsageError if `given` names a setting that only tasks outside the run take, unless it is None."""
        for name in sorted(set(given) - self._takes):
            takers = [each.name for each in FAMILIES if any(name in task.takes for task in each.tasks)]
            if takers and getattr(self, name, "") is not None:
                raise UsageError(
                    f"{name} is given, and no task of this run takes it",
                    expected=f"a task of {', '.join(takers)}",
                    fix=f"leave {name} out",
                )

    def items(self, model: Reader, text: Corpus | None, other: Reader) -> list[Item]:
        """All questions with their prompts; DoesNotFit names every task whose prompts do not fit."""
        found, refused = list[Item](), list[DoesNotFit]()
        for task in self.own_tasks:
            try:
                found += task.items(self, model.tokenizer, text)
            except DoesNotFit as error:
                refused.append(error)
        if refused:
            how = refused[0].how
            alike = [each for each in refused if each.how == how]
            tokens = {name: most for each in alike for name, most in each.tokens.items()}
            raise DoesNotFit(min(each.limit for each in alike), tokens, how)
        return found

    def batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """All questions of one context; or up to `batch_size` questions of one task, each with its own context.

        Batches of one task are of nearly equal length, the longest first, so that too little memory shows at once.
        """
        contexts: dict[str, list[Item]] = {}
        for item in items:
            contexts.setdefault(item.content.context or item.key, []).append(item)

        def place(context: list[Item]) -> tuple[str, int, str]:
            first = context[0]
            return first.facts["task"], -first.facts["tokens"], first.key

        size = 1 if self.mode == "likelihood" else self.batch_size
        ordered = sorted(contexts.values(), key=place)
        alone = (context[0] for context in ordered if len(context) == 1)
        by_task = groupby(alone, key=lambda item: item.facts["task"])
        batches = [batch for _, own in by_task for batch in in_groups(own, size)]
        return batches + [context for context in ordered if len(context) > 1]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> list[Record]:
        """The score of each question, with its reply or likelihoods."""
        from lengthwise.evaluation.likelihood import likelihoods

        questions: list[Question] = [item.content for item in items]
        prompts = [question.ids for question in questions]
        if self.mode == "likelihood":
            ranked = likelihoods(model, prompts, [q.answers for q in questions], batch_size=self.batch_size)
            return [
                ranking(q.candidates, q.golds[0], scores) for q, scores in zip(questions, ranked, strict=True)
            ]
        task = TASKS[items[0].facts["task"]]
        stop = model.tokenizer(task.stop_text, add_special_tokens=False).input_ids[-1:]
        written = model.write(
            prompts,
            new_tokens=max(question.new_tokens for question in questions),
            at_once=self.batch_size,
            stop_ids=frozenset(stop),
            at_least=len(stop),
            until=task.is_over,
        )
        return [
            {"score": task.scored(question, reply), "reply": reply}
            for question, reply in zip(questions, written, strict=True)
        ]

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """Rows of each task by length and depth (or bucket), by length over all depths, and of each family.

        The bootstrap resamples units: samples (each with all its depths and tasks) or rows of a data set.
        """
        if records and "scores" in records[0]:
            return imported_statistics(records)
        own = _by_task(records)
        by_task = [task.statistics(own[task.name]) for task in self.own_tasks]
        by_family = [
            family.statistics({task.name: own[task.name] for task in tasks})
            for family, tasks in self._families.items()
        ]
        return [*chain(*by_task, *by_family)]

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The scores with their intervals."""
        return clear_effective_lengths([*map(estimated, statistics)])

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """Version, metric and questions of each task."""
        tasks: dict[str, Any] = {}
        facts = _by_task(item.facts for item in items)
        for task in self.own_tasks:
            own = facts[task.name]
            questions = json.dumps([each["question"] for each in own])
            tasks[task.name] = {
                "version": task.version,
                "metric": task.metric,
                "questions": len(own),
                "questions_sha256": hashlib.sha256(questions.encode()).hexdigest(),
                "chat": own[0]["chat"],
            }
        return {"tasks": tasks}

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """Questions and cuts by task, the longest prompt, and about how many tokens are read."""
        tasks = _by_task(item.facts for item in items)
        return {
            "questions": {name: len(own) for name, own in tasks.items()},
            "cut": {name: sum(facts["cut"] > 0 for facts in own) for name, own in tasks.items()},
            "longest_prompt": max(item.facts["tokens"] for item in items),
            "tokens_to_run": sum(item.tokens for item in items),
        }

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """What was cut, how scores and averages are meant."""
        notes = prompt_notes(_by_task(item.facts for item in items), self.truncation, self.max_length)
        notes += unfinished_thoughts(model.tokenizer, items, results.records)
        if self.samples is not None and "data" in self._takes:
            notes.append(f"Data sets have only their first {self.samples} rows.")
        for family, own in self._families.items():
            part = f" Here: {len(own)} of {len(family.tasks)} tasks." if len(own) < len(family.tasks) else ""
            notes += [f"{family.note}{part}"] if family.note else []
        named = chain.from_iterable(self._named.values())
        if left_out := [task.name for task in named if not self._asks(task)]:
            notes.append(f"Left out, because there are no answers to rank: {', '.join(left_out)}.")
        notes.append("Scores are shares from 0 to 1; papers print them times 100.")
        if len(set(self.lengths)) > 1 and "lengths" in self._takes:
            notes.append(
                f"Up to effective_length every score is at least {percent(KEPT)} of that at {min(self.lengths)} "
                "tokens. A task that is not clearly above guessing there has none."
            )
        if self.mode == "likelihood":
            notes.append(
                "gold_loss is -log of the right answer's probability among the ranked answers, in nats."
            )
        if any(row.value in (0.0, 1.0) and row.ci_low is not None for row in results.rows):
            notes.append(
                "If all samples score 0, or all 1, the interval is the exact one of a binomial share."
            )
        return notes


def _by_task(facts: Iterable[Mapping[str, Any]]) -> defaultdict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for each in facts:
        found[each["task"]].append(each)
    return found
