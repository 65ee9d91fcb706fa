"""What `make llamacpp` found, as tables."""

from __future__ import annotations

from pathlib import Path

from lengthwise.results import Results, Row
from tools.docs.doc_tables import show
from tools.docs.kept_results import kept_run
from tools.docs.llamacpp_tables import KIND, comparisons_table, positions_table, verdicts_table


def of(metric: str, value: float, **more: object) -> Row:
    return Row(
        model="m", task="difference", metric=metric, value=value, length=256, arm="B against A", **more
    )  # type: ignore[arg-type]


ROWS = [
    of("difference", 0.25),
    of("kl", 0.01),
    of("largest", 1.5),
    of("shift", 0.125),
    of("same_top", 0.5),
    *(
        of(f"benefit_{side}", value, distance=d)
        for side, d, value in (("a", 64, 3), ("a", 192, 2), ("b", 192, 1))
    ),
    of("difference", 0.1, position=0, position_end=32),
    of("difference", 0.3, position=32, position_end=128),
    of("difference", 0.7, position=128, position_end=256),
]


def test_tables():
    results = Results(
        kind=KIND, model_name="m", config={}, rows=ROWS, notes=["B against A, 256 tokens: Apart: far."]
    )
    line = ("B against A", 256, "0.25", "0.01", "1.5", "+0.12", "0.500", "2.00, 1.00")
    assert comparisons_table(results).rows == [line]
    # Weighted by the positions of a bin; a window shorter than the next edge has no number there.
    assert positions_table(results).rows == [("B against A", 256, "0.25", "", "", "", "", "")]
    assert verdicts_table(results).rows == [("B against A, 256 tokens", "Apart: far.")]


def test_the_kept_results_fill_every_table():
    kept = kept_run(Path(__file__).parents[2], KIND)
    lengths = {len(table.rows) for table in show(kept)[:2]}
    assert lengths == {len({(row.arm, row.length) for row in kept.rows})}
