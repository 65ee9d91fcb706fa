"""Tables in the documentation, made from the kept results: `python -m tools.docs.doc_tables` (`make tables`).

A page holds a generated part between two comments:

    <!-- table: NAME ARGUMENT -->
    <!-- end of table -->

NAME is a key of `MAKERS`, ARGUMENT what it takes, such as the file of a kept run. What is between them is replaced.

`python -m tools.docs.doc_tables keep RUN` keeps the results of a run, as `studies/results/KIND.json`
(`studies/results/KIND-SCALE.json` with a second argument): numbers without samples, see `kept_rows`.
`keep-tables STUDY RUN` keeps the tables of a study as text, as `studies/results/tables/STUDY.json`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError, nearest
from lengthwise.files import atomic_write_text
from lengthwise.report.tables import Table
from lengthwise.report.writers import to_markdown
from lengthwise.results import Results, Row, read_results
from lengthwise_studies.arms import is_final

_PART = re.compile(r"(<!-- table: (\S+)((?: \S+)*) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
PAGES = ("README.md", "docs/**/*.md")


def _far(results: Results, which: str, length: str = "") -> Table:
    from lengthwise_studies.far import page
    from lengthwise_studies.far.studies import PARTS

    part = PARTS[results.kind]
    reference = part.experiment.reference
    assert reference is not None
    if which == "verdicts":
        assert part.claims is not None
        return replace(page.verdicts_table(results, part.claims), caption="", notes=[])
    made = {
        "arms": lambda: page.arms_table(results, caption=""),
        "differences": lambda: page.arms_table(results, caption="", reference=reference),
        "over-seeds": lambda: page.over_seeds_table(results, reference),
        "depths-over-seeds": lambda: page.depths_over_seeds_table(results, reference),
        "depths": lambda: page.depths_table(results, int(length) if length else None),
    }
    return replace(made[which](), caption="")


def _against_chance(root: Path, *files: str) -> Table:
    from tools.docs.task_tables import against_chance

    return against_chance([read_results(root / file) for file in files])


def _answers_by_depth(results: Results, task: str) -> Table:
    from tools.docs.task_tables import answers_by_depth

    return answers_by_depth(results, task)


def _served(results: Results, which: str) -> Table:
    from tools.docs import served_tables

    return {
        "comparisons": served_tables.comparisons_table,
        "verdicts": served_tables.verdicts_table,
        "verbs": served_tables.verbs_table,
    }[which](results)


def _recipe_plans(root: Path) -> Table:
    from tools.docs.recipe_tables import plans_table

    return plans_table()


def _recipe_runs(results: Results) -> Table:
    from tools.docs.recipe_tables import runs_table

    return runs_table(results)


def _tiny_books(results: Results) -> Table:
    from lengthwise_studies.tiny_books import differences_beside_plain

    return differences_beside_plain(results)


def _verdicts(results: Results) -> Table:
    from lengthwise_studies.paper.rebuttal import TABLES
    from lengthwise_studies.verdicts import verdict_table

    return verdict_table(TABLES[results.kind].judged(results), caption="")


def _differences(results: Results) -> Table:
    from lengthwise_studies.paper.rebuttal import TABLES

    return TABLES[results.kind].differences_at_the_end(results)


def _times(results: Results) -> Table:
    from lengthwise_studies.paper.paper_table import times_table

    return replace(times_table(results.rows), caption="")


def _claims(root: Path) -> Table:
    from tools.docs.paper_index import claims_index

    return claims_index(root / "studies" / "results")


def _across(root: Path, scale: str) -> Table:
    from tools.docs.across import across_table

    return across_table(root / "studies" / "results", scale)


def _temperatures(results: Results) -> Table:
    from tools.docs.temperatures import temperatures_table

    return temperatures_table(results)


def _table1(results: Results, which: str) -> Table:
    from lengthwise_studies.paper import table1
    from lengthwise_studies.paper.dependence import relations_table

    if which == "models":
        return replace(table1.models_table(results), caption="")
    return relations_table(table1.relations(results)[which], caption="")


def _encodings(results: Results) -> Table:
    from lengthwise_studies.paper.encoding_misalignment import encodings_table

    return replace(encodings_table(results), caption="")


def _items(root: Path) -> Table:
    from tools.docs.paper_index import items_table

    return items_table()


def _kept(root: Path, name: str, number: str) -> Table:
    from tools.docs.kept_tables import kept_table

    return kept_table(name, int(number), root)


def _sparsity(root: Path) -> Table:
    from tools.docs.kept_tables import sparsity_index

    return sparsity_index(root)


def _hardware(root: Path, which: str, *arguments: str) -> Table:
    from tools.docs.hardware_tables import TABLES

    return TABLES[which](root, *arguments)


MAKERS: dict[str, Callable[..., Table]] = {
    "far": lambda root, file, *which: _far(read_results(root / file), *which),
    "against-chance": _against_chance,
    "answers-by-depth": lambda root, file, task: _answers_by_depth(read_results(root / file), task),
    "served": lambda root, file, which: _served(read_results(root / file), which),
    "recipe-plans": _recipe_plans,
    "recipe-runs": lambda root, file: _recipe_runs(read_results(root / file)),
    "tiny-books": lambda root, file: _tiny_books(read_results(root / file)),
    "verdicts": lambda root, file: _verdicts(read_results(root / file)),
    "paper-differences": lambda root, file: _differences(read_results(root / file)),
    "paper-times": lambda root, file: _times(read_results(root / file)),
    "paper-across": _across,
    "paper-temperatures": lambda root, file: _temperatures(read_results(root / file)),
    "paper-table1": lambda root, file, which: _table1(read_results(root / file), which),
    "paper-encodings": lambda root, file: _encodings(read_results(root / file)),
    "paper-items": _items,
    "paper-claims": _claims,
    "kept": _kept,
    "sparsity-claims": _sparsity,
    "hardware": _hardware,
}
"""Name of a generated part -> its table, from the repository and the arguments."""


def generated(text: str, root: Path) -> str:
    """The page with every generated part made anew.

    Raises:
        UsageError: a part of an unknown name.
    """

    def made(match: re.Match[str]) -> str:
        name, arguments = match[2], match[3].split()
        if name not in MAKERS:
            raise UsageError(f"no generated table {name!r}", expected=nearest(name, MAKERS))
        return match[1] + to_markdown(MAKERS[name](root, *arguments)) + match[4]

    return _PART.sub(made, text)


def pages(root: Path) -> list[Path]:
    """The pages that may hold generated parts."""
    return [path for pattern in PAGES for path in sorted(root.glob(pattern))]


def keep(run: Path, root: Path, scale: str = "") -> Path:
    """Copy a run's results into `studies/results/`: `kept_rows`, nine significant digits, no machine's paths."""
    results = read_results(run / "results.json")
    target = root / "studies" / "results" / f"{results.kind}{f'-{scale}' if scale else ''}.json"
    plain = json.loads(replace(results, rows=kept_rows(results.rows)).to_json(), parse_float=_nine_digits)
    plain["provenance"] = _without_folders(plain["provenance"])
    atomic_write_text(target, json.dumps(plain, separators=(",", ":")) + "\n")
    return target


def kept_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows without those that only the run's own page shows.

    Those are bins by position, pairs of contexts, the curves that a limit is read from, perplexities beside losses,
    and everything but losses of arms after fewer steps, on which no claim is made.
    """
    return [
        row
        for row in rows
        if row.position is None
        and row.context_other is None
        and row.metric != "perplexity"
        and (row.task, row.metric) != ("limit", "benefit")
        and (row.metric == "loss" or is_final(row.arm))
    ]


def _nine_digits(number: str) -> float:
    return float(f"{float(number):.9g}")


def _without_folders(value: Any) -> Any:
    """Every absolute path in it as its last name."""
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def main(arguments: list[str], root: Path) -> None:
    """Generate all pages below `root`, or keep a run or the tables of a study."""
    if arguments[:1] == ["keep"]:
        print(keep(Path(arguments[1]), root, *arguments[2:]))
        return
    if arguments[:1] == ["keep-tables"]:
        from tools.docs.kept_tables import keep_tables

        print(keep_tables(arguments[1], Path(arguments[2]), root))
        return
    for path in pages(root):
        before = path.read_text()
        after = generated(before, root)
        if after != before:
            atomic_write_text(path, after)
            print(f"written: {path}")


if __name__ == "__main__":
    main(sys.argv[1:], Path.cwd())
