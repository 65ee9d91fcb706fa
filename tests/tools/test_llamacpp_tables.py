"""What `make llamacpp` found, as tables."""

from __future__ import annotations

from pathlib import Path

from lengthwise.results import Results, Row
from tools.docs.doc_tables import show
from tools.docs.kept_results import kept_run
from tools.docs.llamacpp_tables import KIND, positions_table


def of(metric: str, value: float, **more: object) -> Row:
    return Row(
        model="m", task="difference", metric=metric, value=value, length=256, arm="B against A", **more
    )  # type: ignore[arg-type]


def test_positions_are_weighted_by_those_of_a_bin():
    rows = [
        of("difference", 0.25),
        of("difference", 0.1, position=0, position_end=32),
        of("difference", 0.3, position=32, position_end=128),
        of("difference", 0.7, position=128, position_end=256),
    ]
    results = Results(kind=KIND, model_name="m", config={}, rows=rows)
    # A window shorter than the next edge has no number there.
    assert positions_table(results).rows == [("B against A", 256, "0.25", "", "", "", "", "")]


def test_the_kept_results_fill_every_table():
    kept = kept_run(Path(__file__).parents[2], KIND)
    lengths = {len(table.rows) for table in show(kept)[:2]}
    assert lengths == {len({(row.arm, row.length) for row in kept.rows})}
