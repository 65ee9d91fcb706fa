"""Every table, figure and theorem of both papers in one line, with the verdicts on its claims.

Verdicts are those of kept results. Every claim, arm and number is on the page that its study writes.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from lengthwise.report.tables import Cell, Table
from lengthwise_studies.claims import (
    EXCLUDED,
    FAILS,
    HARMLESS,
    HARMS,
    HELPS,
    HOLDS,
    NOT_DECIDED,
    NOT_JUDGED,
    NOT_RUN,
    OPPOSITE,
    OTHER,
    OUTSIDE,
    REPRODUCED,
    VERDICTS,
    Judged,
    shown_p,
    shown_power,
)
from lengthwise_studies.paper import table1
from lengthwise_studies.paper.agreed import TableRun, judge_runs, number_of
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.statements import OURS
from lengthwise_studies.paper.yardsticks import EFFECTS, MARGINS
from lengthwise_studies.real.study import REAL
from tools.docs.kept_results import results_folder, runs_of
from tools.docs.kept_tables import read_kept
from tools.docs.real_tables import kept_real

COLUMNS = (OPPOSITE, OUTSIDE, EXCLUDED, NOT_DECIDED, NOT_JUDGED, NOT_RUN)
TERMS = (HELPS, HARMLESS, HARMS, OTHER)
FIGURES = {
    "figure1": "Fig. 1: mean, length, reparameterized length",
    "figure1-paper": "Fig. 1 with SGD for the paper's 40,000 steps",
    "figure3": "Fig. 3: sum and length by training length",
    "figure4": "Fig. 4, App. C: the sum",
    "figure5": "Fig. 5, App. F: the mean with a uniform count",
    "theorem1": "Theorem 1, Eq. 3: a bound on the error",
    "theorem2": "Theorem 2, Eq. 5-11: errors of linear attention",
}
SPARSITY = {
    "sparse-parity": "sparse parity by length, k and locality",
    "position-coupling": "ids that couple tokens, given or predicted",
    "influence": "Fig. 2, 6: few tokens of the context decide",
    "sparsity-bounds": "Theorem 4.3 and the rebuttal's bound",
    "sparsity-bridge-real": "ours: which tokens alignment forgets",
}


def tables_index(root: Path) -> Table:
    """One line for each table of the alignment paper and its rebuttal, and for each kept run: claims by verdict.

    What is reproduced is counted by what the claim says of the term, the rest by verdict.
    """
    rows: list[list[Cell]] = [
        [label, study, len(judged), *_counts(judged)] for label, study, judged in every_table(root)
    ]
    return Table(columns=["table", "study", "claims", REPRODUCED, "other verdicts", NOT_RUN], rows=rows)


def _counts(judged: list[Judged]) -> list[Cell]:
    reproduced = Counter(one.claim.term for one in judged if one.verdict in (REPRODUCED, HOLDS))
    others = Counter(one.verdict for one in judged)
    said = ", ".join(f"{reproduced[term]}: {term}" for term in TERMS if reproduced[term])
    rest = ", ".join(f"{others[verdict]}: {verdict}" for verdict in COLUMNS[:-1] if others[verdict])
    return [said, rest, others[NOT_RUN] or None]


def headline_table(root: Path) -> Table:
    """The papers' claims by what they say of the term, and by verdict; then our own.

    A number that several tables judge is counted once. Statements on many models are left out.
    """
    once: dict[object, Judged] = {}
    for run, several in table_runs(root):
        for one in several:
            if not run.variant:
                once.setdefault(number_of(run, one.claim), one)
    judged = [*once.values(), *_on_real(root)]
    papers, ours = (
        [one for one in judged if (one.claim.place == OURS) == is_ours] for is_ours in (False, True)
    )
    kinds = {term: [one for one in papers if one.claim.term == term] for term in TERMS} | {
        "ours, of any kind": ours
    }
    counts = [Counter(one.verdict for one in own) for own in kinds.values()]
    rows: list[list[Cell]] = [["claims", *map(len, kinds.values())]]
    rows += [[verdict, *(own[verdict] or None for own in counts)] for verdict in (REPRODUCED, *COLUMNS)]
    return Table(columns=["what the claim says of the term", *kinds], rows=rows)


def verdicts_table(root: Path) -> Table:
    """One line for each claim of these tables, with our number and the verdict."""
    rows: list[list[Cell]] = [
        [
            label,
            one.claim.says,
            one.claim.paper,
            one.found.ours,
            shown_p(one.p),
            one.text,
            shown_power(one),
        ]
        for label, _, judged in every_table(root)
        for one in judged
    ]
    columns = ["table", "claim", "paper", "ours", "p (Holm)", "verdict", "the paper's size, could be seen"]
    return Table(columns=columns, rows=rows)


def meanings_table(root: Path) -> Table:
    """What each verdict says."""
    return Table(columns=["verdict", "what it says"], rows=[[name, says] for name, says in VERDICTS.items()])


def margins_table(root: Path) -> Table:
    """The margins and the sizes that claims are judged with; places that share one are in one line."""
    places: dict[tuple[str, str], list[str]] = {}
    for place, margin in MARGINS.items():
        value = "its own" if margin.value is None else f"{margin.value:.2g}"
        places.setdefault((f"margin {value}", margin.because), []).append(place)
    for place, effect in EFFECTS.items():
        where = f"what {effect.where} has of the term, for a claim that it helps and has no number"
        places.setdefault((f"size {effect.nats:+.3f}", where), []).append(place)
    rows: list[list[Cell]] = [[value, "; ".join(own), where] for (value, where), own in places.items()]
    return Table(columns=["", "claims of", "where it comes from"], rows=rows)


@cache
def every_table(root: Path) -> list[tuple[str, str, list[Judged]]]:
    """Name, study and verdicts of each kept run, and of each table that was not run. No two names are equal.

    An earlier training of a table has no line: it is within the numbers of the table's run (`agreed.pooled`).
    """
    found: list[tuple[str, str, list[Judged]]] = []
    for run in runs_of(results_folder(root), "table1"):
        for who, every in table1.judged(run.results).items():
            papers = [one for one in every if one.claim.place in table1.PAPERS]
            found.append((f"Table 1, {who} models", "table1", papers))
    for run, judged in table_runs(root):
        if not run.variant:
            found.append((run.table.label, run.table.in_study or run.table.name, judged))
    found.append((REAL.label, REAL.name, _on_real(root)))
    assert len({label for label, _, _ in found}) == len(found)
    return found


@cache
def _on_real(root: Path) -> list[Judged]:
    return REAL.judged(kept_real(root))


@cache
def table_runs(root: Path) -> list[tuple[TableRun, list[Judged]]]:
    """Each kept run of a table with its verdicts, over all of them; a table without one as it is."""
    folder = results_folder(root)
    runs = [
        TableRun(table=table, variant=variant, results=results)
        for name, table in TABLES.items()
        for variant, results in [(run.variant, run.results) for run in runs_of(folder, name)] or [("", None)]
    ]
    return list(zip(runs, judge_runs(runs), strict=True))


def kept_index(root: Path, which: str) -> Table:
    """One line for each study of figures and theorems, or of the sparsity paper: claims by verdict."""
    rows: list[list[Cell]] = []
    for name, about in {"figures": FIGURES, "sparsity": SPARSITY}[which].items():
        kept = read_kept(name, root)
        verdicts = [row[-1] for row in kept.verdicts()]
        hold, fail = verdicts.count(HOLDS), verdicts.count(FAILS)
        counts = (len(verdicts), hold, fail, len(verdicts) - hold - fail)
        rows.append([about, kept.command, *(each or None for each in counts)])
    return Table(
        columns=["item", "study", "claims", "hold", "do not hold", "in part, or not decided"], rows=rows
    )


MAKERS = {
    "headline": headline_table,
    "tables": tables_index,
    "verdicts": verdicts_table,
    "meanings": meanings_table,
    "margins": margins_table,
}
"""Name of a generated part -> what makes it; other names are those of `kept_index`."""
