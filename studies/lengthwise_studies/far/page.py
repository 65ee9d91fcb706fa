"""The tables and the page of any study of far context, made from what it measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results
from lengthwise_studies.arm_tables import Line, recall_lines
from lengthwise_studies.far.pictures import depth_pictures
from lengthwise_studies.paired_claims import PairedClaim
from lengthwise_studies.verdicts import judge, over_seeds, verdict_table

Claims = Callable[[Results], Sequence[PairedClaim]]


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
    judged = judge(claims(results), results.rows, length=shortest_read(results))
    return verdict_table(judged, caption="What a form has to do")


def far_tables(results: Results, reference: str) -> list[Table]:
    """Every arm, the differences over seeds and of each seed, and the depths at every length."""
    tasks = tasks_of(results)
    shares = (
        "; gold is the right answer's probability among the ranked answers, gold loss -log of it (nats)"
        if tasks
        else ""
    )
    others = dict.fromkeys(row.reference for row in results.rows if row.reference not in (None, reference))
    return [
        arms_table(results, caption=f"Every arm{shares}"),
        *(
            table
            for table in (over_seeds_table(results, reference), depths_over_seeds_table(results, reference))
            if table.rows
        ),
        *(
            arms_table(results, caption=f"Paired difference from {other}", reference=other)
            for other in (reference, *others)
        ),
        *(depths_table(results, length, task) for task in tasks for length in _asked(results)["lengths"]),
    ]


def arms_table(results: Results, *, caption: str, reference: str | None = None) -> Table:
    """One row for each arm (and seed), one column for each of `lines`, with 95 % intervals."""
    shown = lines(results)
    rows: list[list[Cell]] = []
    for arm, seed in arms_and_seeds(results, reference):
        own = [row for row in results.rows if (row.arm, row.seed, row.reference) == (arm, seed, reference)]
        cells = [
            next((row_estimate(row) for row in own if line.matches(row) and row.depth is None), None)
            for line in shown
        ]
        rows.append([arm_and_seed(arm, seed), *cells])
    return Table(columns=["", *(line.heading for line in shown)], rows=rows, caption=caption)


def over_seeds_table(results: Results, reference: str) -> Table:
    """Every compared pair over all seeds, one column for each of `lines`. Empty with too few seeds."""
    columns = [(line.heading, line, None) for line in lines(results)]
    return _over_seeds(results, reference, columns, caption=f"Paired difference from {reference}")


def depths_over_seeds_table(results: Results, reference: str) -> Table:
    """The same at each depth of the longest prompts."""
    asked = _asked(results)
    longest = max(asked.get("lengths", [0]))
    columns = [
        (f"{line.heading}, depth {depth:g} %", line, depth)
        for line in lines(results)
        if line.length == longest and line.task in tasks_of(results)
        for depth in asked["depths"]
    ]
    return _over_seeds(results, reference, columns, caption=f"Paired difference from {reference} by depth")


def _over_seeds(
    results: Results, reference: str, columns: Sequence[tuple[str, Line, float | None]], *, caption: str
) -> Table:
    rows = [row for row in results.rows if row.arm is not None and row.reference is not None]

    def cell(pair: tuple[str | None, str | None], line: Line, depth: float | None) -> Cell:
        return over_seeds(
            [
                row
                for row in rows
                if ((row.arm, row.reference), row.depth) == (pair, depth) and line.matches(row)
            ]
        )

    found: list[list[Cell]] = [
        [pair[0] if pair[1] == reference else f"{pair[0]} minus {pair[1]}", *cells]
        for pair in dict.fromkeys((row.arm, row.reference) for row in rows)
        if any(cells := [cell(pair, line, depth) for _, line, depth in columns])
    ]
    return Table(
        columns=["", *(heading for heading, _, _ in columns)],
        rows=found,
        caption=f"{caption} where no other is named, mean over seeds, 95 % intervals over seeds and documents",
    )


def depths_table(results: Results, length: int | None = None, task: str | None = None) -> Table:
    """Accuracy and gold at each depth of the prompts of this length and task; by default the longest, and the first.

    A loss of answers is for comparing: it is in `depths_over_seeds_table`.
    """
    measured = _asked(results)
    length = length or max(measured["lengths"])
    task = task or tasks_of(results)[0]
    shown = [numbers for numbers in answer_numbers(results) if numbers[1] != "gold_loss"]
    rows: list[list[Cell]] = []
    for arm, seed in arms_and_seeds(results, None):
        own = [
            row
            for row in results.select(task=task, length=length, arm=arm, reference=None)
            if row.seed == seed
        ]
        cells = [
            next((row_estimate(row) for row in own if (row.metric, row.depth) == (metric, depth)), None)
            for _, metric, _ in shown
            for depth in measured["depths"]
        ]
        rows.append([arm_and_seed(arm, seed), *cells])
    heads = [f"{name}, depth {depth:g} %" for name, _, _ in shown for depth in measured["depths"]]
    return Table(columns=["", *heads], rows=rows, caption=f"{task} by depth, at {length:,} tokens")


def lines(results: Results) -> list[Line]:
    """The numbers of an arm, from what was measured."""
    measures = results.config["measures"]
    tasks = tasks_of(results)
    found = [
        Line(f"{task_prefix(task, tasks)}{name} at {length:,}", task, metric, decimals, length=length)
        for task in tasks
        for length in _asked(results)["lengths"]
        for name, metric, decimals in answer_numbers(results)
    ]
    found += [
        Line(f"loss at {length:,}", "perplexity", "loss", 3, length=length)
        for length in measures["perplexity"]["lengths"]
    ]
    if "longppl" in measures:
        found.append(Line("loss of key tokens", "longppl", "loss_key", 3))
    if "limit" in measures:
        found += [Line(f"{kind} up to", "limit", f"{kind}_up_to", 0) for kind in ("sound", "used")]
    return [*found, *recall_lines(measures.get("recall", {}).get("distances", ()))]


def answer_numbers(results: Results) -> list[tuple[str, str, int]]:
    """What is known of the answers: heading, metric and decimals. Runs of earlier versions have no `gold_loss`."""
    known = (("accuracy", "accuracy", 2), ("gold", "gold_probability", 3), ("gold loss", "gold_loss", 2))
    found = {row.metric for row in results.rows}
    return [numbers for numbers in known if numbers[1] in found]


def shortest_read(results: Results) -> int:
    """The shortest length that losses are measured at, in tokens. Claims count lengths and distances in it."""
    return min(results.config["measures"]["perplexity"]["lengths"])


def tasks_of(results: Results) -> list[str]:
    """The tasks whose questions were asked; none where no questions were."""
    return list(_asked(results).get("tasks", ()))


def task_prefix(task: str, tasks: Sequence[str]) -> str:
    """What comes before a number of this task, where several were asked."""
    return "" if len(tasks) == 1 else f"{task}: "


def _asked(results: Results) -> Mapping[str, Any]:
    return results.config["measures"].get("eval", {})


def arms_and_seeds(results: Results, reference: str | None) -> list[tuple[str, int | None]]:
    """Arms and seeds with rows, in the order of the rows."""
    return list(
        dict.fromkeys(
            (row.arm, row.seed) for row in results.rows if row.reference == reference and row.arm is not None
        )
    )


def arm_and_seed(arm: str, seed: int | None) -> str:
    """What a line is called; the first seed has no number."""
    return arm if seed in (None, 0) else f"{arm} (seed {seed})"
