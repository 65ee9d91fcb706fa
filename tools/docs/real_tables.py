"""The tables of the study of a real model at the paper's geometry, from its kept rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from lengthwise.report.tables import Table
from lengthwise_studies.claims import shown_p
from lengthwise_studies.paper.methods import ENTROPY, PLAIN, SCE
from lengthwise_studies.real.table import Kept, difference, kept_files, perplexities, read_kept
from tools.docs.kept_results import results_folder

YARN, CLEX = "YaRN x4", "CLEX x4"
SHOWN = (
    *((YARN, PLAIN, times) for times in (0.25, 1, 2, 4)),
    *((YARN, ENTROPY, times) for times in (1, 2, 4)),
    *((CLEX, PLAIN, times) for times in (1, 2, 4)),
)
"""The setting, the arm that SCE is compared with, and the length in multiples of T."""


@cache
def kept_real(root: Path) -> Kept:
    """What is kept of the real model."""
    return read_kept(kept_files(results_folder(root) / "real"))


def perplexity_table(root: Path) -> Table:
    """Perplexity of every arm by length."""
    return replace(perplexities(kept_real(root)), caption="", notes=[])


def difference_table(root: Path) -> Table:
    """SCE minus another arm: the loss, and the loss at each arm's best temperature."""
    kept = kept_real(root)
    lines = []
    for setting, other, times in SHOWN:
        length = round(times * kept.trained)
        cells = []
        for metric in ("loss", "loss_best_temperature"):
            place = ("perplexity", metric, length, None)
            cells.append(difference(kept, (setting, SCE), place, to=other))
        found, tempered = cells
        assert found is not None
        lines.append(
            (
                setting,
                f"{SCE} minus {other}",
                f"{times:g}T",
                found.together,
                shown_p(found.p),
                None if found.detectable is None else f"{found.detectable:#.2g}",
                None if tempered is None else tempered.together,
            )
        )
    columns = ("", "nats per token", "at", "difference", "p", "could be seen", "at the best temperature")
    return Table(columns=columns, rows=lines)


TABLES = {"perplexity": perplexity_table, "differences": difference_table}
"""Name -> what makes it."""
