"""The literal table of tasks: what each asks, how its replies are scored, and its version. Imports no torch.

A version goes up when the same settings would give other prompts or other scores; every result carries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.errors import UsageError, nearest

Kind = Literal["needle", "babilong", "longbench_e"]


@dataclass(frozen=True)
class Task:
    """One task by name."""

    name: str
    kind: Kind
    version: int
    metric: str
    """What its greedy replies are scored by."""
    what: str
    by_depth: bool = False
    """Whether the answer's depth is chosen."""
    ranks: bool = False
    """Whether there are answers to rank by likelihood."""
    part: str = ""
    """The data set, or the number of the bAbI task."""
    stops_at: str = ""
    """A reply is over at one of these characters: what follows does not count."""


def _longbench(name: str, metric: str, what: str) -> Task:
    return Task(f"longbench_{name}_e", "longbench_e", 1, metric, f"LongBench-E: {what}", part=name)


def _babilong(number: int, what: str) -> Task:
    return Task(
        f"babilong_qa{number}", "babilong", 2, "accuracy", f"bAbI {number} in long text: {what}",
        by_depth=True, ranks=True, part=str(number), stops_at=".",
    )  # fmt: skip


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("needle_single", "needle", 2, "contained", "one number in long text", by_depth=True, ranks=True),
        Task(
            "needle_multi_key",
            "needle",
            2,
            "contained",
            "one number among several",
            by_depth=True,
            ranks=True,
        ),
        Task("needle_multi_value", "needle", 2, "contained", "several numbers for one key"),
        _babilong(1, "where someone is"),
        _babilong(2, "where a thing is that someone carried"),
        _babilong(3, "where a thing was before"),
        _babilong(4, "which room lies beside which"),
        _babilong(5, "who gave what to whom"),
        _longbench("qasper", "f1", "questions on one paper"),
        _longbench("multifieldqa_en", "f1", "questions on one document"),
        _longbench("hotpotqa", "f1", "questions on several documents"),
        _longbench("2wikimqa", "f1", "questions on several documents"),
        _longbench("gov_report", "rouge_l", "summaries of reports"),
        _longbench("multi_news", "rouge_l", "summaries of news"),
        _longbench("trec", "class_match", "kinds of questions from examples"),
        _longbench("triviaqa", "f1", "trivia from examples"),
        _longbench("samsum", "rouge_l", "summaries of dialogues from examples"),
        _longbench("passage_count", "number_share", "how many passages differ"),
        _longbench("passage_retrieval_en", "paragraph_share", "which passage a summary is of"),
        _longbench("lcc", "code_similarity", "the next line of a file"),
        _longbench("repobench-p", "code_similarity", "the next line in a repository"),
    )
}

GROUPS: dict[str, tuple[str, ...]] = {
    kind: tuple(name for name, task in TASKS.items() if task.kind == kind)
    for kind in ("needle", "babilong", "longbench_e")
}


def resolve_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Task names in the table's order, with groups taken apart, each once.

    Raises:
        UsageError: none is given, or one is unknown.
    """
    if not names:
        raise UsageError("no task is given", expected=f"one of: {', '.join((*GROUPS, *TASKS))}")
    wanted: set[str] = set()
    for name in names:
        if name not in TASKS and name not in GROUPS:
            raise UsageError(
                f"unknown task {name!r}",
                expected=nearest(name, (*GROUPS, *TASKS)),
                fix="lengthwise ls tasks; tasks of lm-eval need --backend lm-eval",
            )
        wanted.update(GROUPS.get(name, (name,)))
    return tuple(name for name in TASKS if name in wanted)
