"""The tables and the page of any study of far context, made from what it measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row
from lengthwise_studies.arm_tables import arms_table, by_line, first_estimate
from lengthwise_studies.claims import Claim, judge, verdict_table
from lengthwise_studies.far.pictures import depth_pictures
from lengthwise_studies.paired_claims import NOTE, Measured, Paired, Quantity, over_seeds

Claims = Callable[[Results], Sequence[Claim[Paired]]]
_ANSWERS = (
    ("accuracy", "accuracy", "share"),
    ("gold", "gold_probability", "share"),
    ("gold loss", "gold_loss", "nats"),
)
"""What is measured of answers: heading, metric and unit."""


def far_sections(
    results: Results, heading: str, reference: str | None, claims: Claims | None
) -> list[Section]:
    """A part as one section of a page: what was done, verdicts, and `far_tables`."""
    assert reference is not None
    recipe = results.config["recipe"]
    screen = " One seed: a screen." if results.config["seeds"] == 1 else ""
    verdicts = [] if claims is None else [verdicts_table(results, claims)]
    return [
        Section(
            title=heading,
            paragraphs=[
                f"`{results.model_name}` before and after {recipe['steps']} steps on windows of "
                f"{recipe['length']:,} tokens, on text that it was not trained on.{screen}"
            ],
            tables=[*verdicts, *far_tables(results, reference)],
            figures=depth_pictures(results),
            notes=results.notes,
        )
    ]


def verdicts_table(results: Results, claims: Claims) -> Table:
    """Each claim with its mean difference over seeds and documents, and the verdict."""
    judged = judge(claims(results), Measured(rows=results.rows))
    return verdict_table(judged, caption="What a form has to do", notes=[NOTE])


def far_tables(results: Results, reference: str) -> list[Table]:
    """Every arm, the differences over seeds and of each seed, and the depths at every length."""
    tasks = tasks_of(results)
    shares = (
        "; gold is the right answer's probability among the ranked answers, gold loss -log of it (nats)"
        if tasks
        else ""
    )
    others = dict.fromkeys(row.reference for row in results.rows if row.reference not in (None, reference))
    means = (over_seeds_table(results, reference), depths_over_seeds_table(results, reference))
    return [
        seeds_table(results, caption=f"Every arm{shares}"),
        *(table for table in means if table.rows),
        *(
            seeds_table(results, caption=f"Paired difference from {other}", reference=other)
            for other in (reference, *others)
        ),
        *(depths_table(results, length, task) for task in tasks for length in _asked(results)["lengths"]),
    ]


def seeds_table(results: Results, *, caption: str = "", reference: str | None = None) -> Table:
    """One row for each arm (and seed), with 95 % intervals; of differences where `reference` is given."""
    return arms_table(_arms_and_seeds(results, reference), numbers(results), first_estimate, caption=caption)


def depths_table(results: Results, length: int | None = None, task: str | None = None) -> Table:
    """Accuracy and gold at each depth of the prompts of this length and task; by default the longest, and the first.

    A loss of answers is for comparing: it is in `depths_over_seeds_table`.
    """
    length = length or max(_asked(results)["lengths"])
    task = task or tasks_of(results)[0]
    shown = [
        _answer(f"{name}, depth {depth:g} %", task, metric, length, depth=depth)
        for name, metric, _ in _ANSWERS[:2]
        for depth in _asked(results)["depths"]
    ]
    caption = f"{task} by depth, at {length:,} tokens"
    return arms_table(_arms_and_seeds(results, None), shown, first_estimate, caption=caption)


def over_seeds_table(results: Results, reference: str) -> Table:
    """Every compared pair over all seeds, one column for each number. Empty with too few seeds."""
    return _over_seeds(results, reference, numbers(results), caption=f"Paired difference from {reference}")


def depths_over_seeds_table(results: Results, reference: str) -> Table:
    """The same at each depth of the longest prompts."""
    asked = _asked(results)
    shown = [
        replace(one, heading=f"{one.heading}, depth {depth:g} %", depth=depth)
        for one in numbers(results)
        if one.task in tasks_of(results) and one.times == max(asked["lengths"])
        for depth in asked["depths"]
    ]
    return _over_seeds(results, reference, shown, caption=f"Paired difference from {reference} by depth")


def _over_seeds(results: Results, reference: str, shown: Sequence[Quantity], *, caption: str) -> Table:
    def name(row: Row) -> str | None:
        if row.arm is None or row.reference is None:
            return None
        return row.arm if row.reference == reference else f"{row.arm} minus {row.reference}"

    return arms_table(
        by_line(results.rows, name),
        shown,
        over_seeds,
        caption=f"{caption} where no other is named, mean over seeds, 95 % intervals over seeds and documents",
    )


def numbers(results: Results) -> list[Quantity]:
    """The numbers of an arm that its measures can give; lengths and distances are tokens."""
    measures = results.config["measures"]
    tasks = tasks_of(results)
    found = [
        _answer(f"{task_prefix(task, tasks)}{name} at {length:,}", task, metric, length, unit=unit)
        for task in tasks
        for length in _asked(results)["lengths"]
        for name, metric, unit in _ANSWERS
    ]
    found += [loss_at(length) for length in measures["perplexity"]["lengths"]]
    found += [KEY_LOSS, *(LIMITS[kind] for kind in ("sound", "used"))]
    return [
        *found,
        *(
            Quantity(heading=f"recall at {distance}", task="recall", metric="benefit", distance=distance)
            for distance in measures.get("recall", {}).get("distances", ())
        ),
    ]


def loss_at(length: int) -> Quantity:
    """The loss in windows of so many tokens."""
    return Quantity(heading=f"loss at {length:,}", task="perplexity", metric="loss", times=length)


KEY_LOSS = Quantity(heading="loss of key tokens", task="longppl", metric="loss_key")
LIMITS = {
    kind: Quantity(heading=f"{kind} up to", task="limit", metric=f"{kind}_up_to", unit="tokens")
    for kind in ("sound", "used")
}


def _answer(heading: str, task: str, metric: str, length: int, **more: Any) -> Quantity:
    return Quantity(heading=heading, task=task, metric=metric, times=length, **more)


def tasks_of(results: Results) -> list[str]:
    """The tasks whose questions were asked; none where no questions were."""
    return list(_asked(results).get("tasks", ()))


def task_prefix(task: str, tasks: Sequence[str]) -> str:
    """What comes before a number of this task, where several were asked."""
    return "" if len(tasks) == 1 else f"{task}: "


def _asked(results: Results) -> Mapping[str, Any]:
    return results.config["measures"].get("eval") or {"tasks": (), "lengths": (0,), "depths": ()}


def _arms_and_seeds(results: Results, reference: str | None) -> dict[str, list[Row]]:
    """The rows of every arm and seed; the first seed has no number."""

    def name(row: Row) -> str | None:
        if row.arm is None or row.reference != reference:
            return None
        return row.arm if row.seed in (None, 0) else f"{row.arm} (seed {row.seed})"

    return by_line(results.rows, name)
