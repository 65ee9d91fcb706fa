"""The tables of the study of a real model at the paper's geometry, from its kept rows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lengthwise.report.tables import Table
from lengthwise_studies.claims import shown_p
from lengthwise_studies.paper.methods import ENTROPY, JEFFREYS, PLAIN, SCE
from lengthwise_studies.real.study import LIGHTER, ON_CLEX, ON_YARN
from lengthwise_studies.real.table import Kept, difference, kept_files, levels, mean_of, read_kept
from tools.docs.kept_results import results_folder

YARN, CLEX = ON_YARN.name, ON_CLEX.name
SHOWN = (
    *((YARN, SCE, PLAIN, times) for times in (0.25, 1, 2, 4)),
    *((YARN, SCE, ENTROPY, times) for times in (1, 2, 4)),
    *((YARN, JEFFREYS, PLAIN, times) for times in (1, 2, 4)),
    *((CLEX, SCE, PLAIN, times) for times in (1, 2, 4)),
    (CLEX, SCE, ENTROPY, 2),
    (CLEX, LIGHTER.name, PLAIN, 1),
)
"""The setting, two arms, and the length in multiples of T."""
ASKED = (("needle_multi_key", (0.0, 25.0, 50.0, 75.0)), ("chains_0", (None,)))
"""Tasks, and the depths that are shown of each."""


@cache
def kept_real(root: Path) -> Kept:
    """What is kept of the real model."""
    return read_kept(kept_files(results_folder(root) / "real"))


def perplexity_table(root: Path) -> Table:
    """Perplexity of every arm by length; the number of seeds is in the name."""
    table = levels(kept_real(root), "perplexity", "perplexity")
    rows = [(f"{setting}: {arm} ({seeds})", *means) for setting, arm, seeds, *means in table.rows]
    return Table(columns=["arm (seeds)", *table.columns[3:]], rows=rows)


def difference_table(root: Path) -> Table:
    """An arm minus another: the loss, and the loss at each arm's best temperature."""
    kept = kept_real(root)
    lines = []
    for setting, arm, other, times in SHOWN:
        length = round(times * kept.trained)
        cells = []
        for metric in ("loss", "loss_best_temperature"):
            place = ("perplexity", metric, length, None)
            cells.append(difference(kept, (setting, arm), place, to=other))
        found, tempered = cells
        assert found is not None
        lines.append(
            (
                setting,
                f"{arm} minus {other}",
                f"{times:g}T",
                found.together,
                shown_p(found.p),
                None if found.detectable is None else f"{found.detectable:#.2g}",
                None if tempered is None else tempered.together,
            )
        )
    columns = ("", "nats per token", "at", "difference", "p", "could be seen", "best temperature")
    return Table(columns=columns, rows=lines)


def answer_table(root: Path) -> Table:
    """Accuracy at T of every arm that was asked: needles by depth, and chains."""
    kept = kept_real(root)
    places = [(task, "accuracy", kept.trained, depth) for task, depths in ASKED for depth in depths]
    arms = [arm for setting, arm in kept.numbers if setting == YARN]
    columns = ["", *(task if depth is None else f"needle at {depth:g} %" for task, _, _, depth in places)]
    rows = [
        [arm, *(mean_of(found) for found in own)]
        for arm in arms
        if all(own := [kept.of((YARN, arm), place) for place in places])
    ]
    return Table(columns=columns, rows=rows)


TABLES = {"perplexity": perplexity_table, "differences": difference_table, "answers": answer_table}
"""Name -> what makes it."""
