"""What `make check-llamacpp` found, as a table."""

from __future__ import annotations

from pathlib import Path

from tools.docs.doc_tables import show
from tools.docs.kept_results import kept_run
from tools.docs.llamacpp_tables import KIND


def test_the_kept_results_fill_the_table():
    kept = kept_run(Path(__file__).parents[2], KIND)
    [table] = show(kept)
    assert len(table.rows) == len({(row.arm, row.length) for row in kept.rows})
