"""How a notebook, or an interpreter, shows the results of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.errors import UsageError, require_known
from lengthwise.results import Results
from lengthwise.versions import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sentence(results: Results) -> str:
    """The answer of a run in one sentence."""
    from lengthwise.report.sentence import said

    return said(results).sentence


def html(results: Results) -> str:
    """The sentence, and the headline numbers folded under it."""
    from lengthwise.report.html import render_table
    from lengthwise.report.tables import in_order, page_table

    table = page_table(in_order([row for row in results.rows if row.is_whole]))
    return render_table(sentence(results), table)


def picture(results: Results, name: str | None) -> Figure:
    """See `Results.picture`."""
    need("matplotlib")
    from lengthwise.report.figures import figures_of
    from lengthwise.report.tables import in_order, tasks_in_order

    pictures = {
        drawn.name: drawn.figure
        for task in tasks_in_order(row.task for row in results.rows)
        for drawn in figures_of(task, in_order([row for row in results.rows if row.task == task]))
    }
    if not pictures:
        raise UsageError(f"a run of {results.kind!r} with these rows has no picture")
    name = next(iter(pictures)) if name is None else name
    require_known(name, pictures, "there is no picture")
    return pictures[name]
