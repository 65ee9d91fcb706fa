"""Tables in the documentation, made from the kept results: `python -m tools.docs.doc_tables` (`make tables`).

A page holds a generated part between two comments:

    <!-- table: NAME ARGUMENT -->
    <!-- end of table -->

NAME is a key of `MAKERS`, ARGUMENT what it takes, such as the name of a kept run. What is between them is replaced.
From `<!-- code: FILE as PLACE -->` to `<!-- end of code -->` is a file of `examples/`, and its place in a first line.

The card of the README is drawn again too (`cards`).

`python -m tools.docs.doc_tables keep RUN [SCALE]` keeps the results of a run as KIND-SCALE in `studies/results/`
(`kept_results`): the rows that its tables read, without samples. Of an earlier training of the same table stays what
claims read (`BEFORE`).
`keep-tables STUDY RUN [SCALE]` keeps the tables of a study as text, in `studies/results/tables/`.
`pictures FOLDER RUN...` draws the answers by depth of kept runs.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError, nearest
from lengthwise.files import atomic_write_text
from lengthwise.report.tables import Table, fitted
from lengthwise.report.writers import to_markdown
from lengthwise.results import Results, read_results
from tools.docs.kept_results import BEFORE, add_run, kept_run, kept_runs, results_folder, used_rows

_PART = re.compile(r"(<!-- table: (\S+)((?: \S+)*) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
_CODE = re.compile(r"(<!-- code: (\S+) as (\S+) -->\n).*?(<!-- end of code -->)", flags=re.DOTALL)
PAGES = ("README.md", "docs/**/*.md")
# The provenance that is kept of an earlier training.
_OF_BEFORE = ("packages", "commit", "python", "processor", "started")


def _from(module: str) -> Any:
    """A module beside this one, read when a page asks for its table."""
    return import_module(f"tools.docs.{module}")


def _runs(root: Path, *names: str) -> list[Results]:
    return [kept_run(root, name) for name in names]


def _tiny_books(results: Results) -> Table:
    from lengthwise_studies.tiny_books import differences_beside_plain

    return replace(differences_beside_plain(results), caption="")


def _verdicts(results: Results) -> Table:
    from lengthwise_studies.claims import verdict_table
    from lengthwise_studies.paired_claims import NOTE
    from lengthwise_studies.paper.all_tables import TABLES

    return verdict_table(TABLES[results.kind].judged(results), caption="", notes=[NOTE])


def _differences(results: Results) -> Table:
    from lengthwise_studies.paper.all_tables import TABLES

    return TABLES[results.kind].values(results, differences=True, short=True)


def _times(results: Results) -> Table:
    from lengthwise_studies.paper.all_tables import TABLES

    return replace(TABLES[results.kind].times(results), caption="")


def _index(root: Path, which: str) -> Table:
    from tools.docs import paper_index

    if which in paper_index.MAKERS:
        return paper_index.MAKERS[which](root)
    return paper_index.kept_index(root, which)


def _pretraining(results: dict[str, Results]) -> Table:
    from lengthwise_studies.paper.pretraining import cost_table

    return cost_table(results)


def _table1(results: Results, which: str) -> Table:
    from lengthwise_studies.paper import table1

    if which == "models":
        return replace(table1.models_table(results), caption="")
    return replace(table1.relations(results)[which], caption="")


MAKERS: dict[str, Callable[..., Table]] = {
    "bench": lambda root, which, *of: _from("bench_tables").TABLES[which](root, *of),
    "context-32k": lambda root, which: _from("context_32k").TABLES[which](root),
    "real": lambda root, which: _from("real_tables").TABLES[which](root),
    "far-summary": lambda root: _from("far_summary").summary_table(root),
    "against-chance": lambda root, *names: _from("task_tables").against_chance(_runs(root, *names)),
    "by-quarter": lambda root, *names: _from("task_tables").by_quarter(_runs(root, *names)),
    "limits": lambda root, *names: _from("task_tables").limits(_runs(root, *names)),
    "served": lambda root, name, which: _from("served_tables").TABLES[which](kept_run(root, name)),
    "lab": lambda root, name, which: _from("lab_tables").TABLES[which](kept_run(root, name)),
    "zoo": lambda root, which: _from("zoo_tables").TABLES[which](kept_run(root, "zoo")),
    "llamacpp": lambda root, name: _from("llamacpp_tables").comparisons_table(kept_run(root, name)),
    "recipe-plans": lambda root: _from("recipe_tables").plans_table(),
    "recipe-runs": lambda root, name: _from("recipe_tables").runs_table(kept_run(root, name)),
    "tiny-books": lambda root, name: _tiny_books(kept_run(root, name)),
    "pretraining": lambda root, *names: _pretraining({one.kind: one for one in _runs(root, *names)}),
    "paper-index": _index,
    "paper-temperatures": lambda root, name: _from("temperatures").temperatures_table(kept_run(root, name)),
    "kept": lambda root, name, number, *where: _from("kept_tables").kept_table(
        name, int(number), root, *where
    ),
    "kept-claims": lambda root, *names: _from("kept_tables").kept_claims(root, *names),
    "theorem2": lambda root: _from("exact_tables").exact_table(),
    "hardware": lambda root, which: _from("hardware").TABLES[which](),
}
"""Name of a generated part -> its table, from the repository and the arguments."""


def generated(text: str, root: Path) -> str:
    """The page with every generated part replaced by its present table or file.

    Raises:
        UsageError: a part of an unknown name.
    """

    def made(match: re.Match[str]) -> str:
        name, arguments = match[2], shlex.split(match[3])
        if name not in MAKERS:
            raise UsageError(f"no generated table {name!r}", expected=nearest(name, MAKERS))
        parts = fitted(MAKERS[name](root, *arguments))
        return match[1] + "\n".join(map(to_markdown, parts)) + match[4]

    def code(match: re.Match[str]) -> str:
        return f"{match[1]}```python\n# {match[3]}\n{(root / match[2]).read_text()}```\n{match[4]}"

    return _CODE.sub(code, _PART.sub(made, text))


def pages(root: Path) -> list[Path]:
    """The pages that may hold generated parts."""
    return [path for pattern in PAGES for path in sorted(root.glob(pattern))]


def keep(run: Path, root: Path, scale: str = "") -> Path:
    """Keep the rows of a run that its tables read; nine significant digits, no machine's paths.

    Raises:
        UsageError: no table of the documentation shows results of this kind.
    """
    results = read_results(run / "results.json")
    target = results_folder(root) / f"{_file(results.kind, scale)}.json"
    kept = replace(
        results, rows=used_rows(results, show), provenance=_shortened(_without_folders(results.provenance))
    )
    name = f"{results.kind}-{scale}" if scale else results.kind
    before = kept_runs(results_folder(root))
    earlier = _trained_before(before[name].results, kept) if name in before else None
    # The new one first: the earlier would share what it has with its own rows, and all of them would stay.
    add_run(target, name, kept, scale=scale)
    if earlier is not None:
        while name in before:
            name += "-again"
        add_run(target, name, earlier, scale=scale, variant=BEFORE)
    return target


def _trained_before(earlier: Results, results: Results) -> Results | None:
    """The differences that claims read of an earlier training of the same arms; None if there are none."""
    from lengthwise_studies.paper.all_tables import TABLES
    from lengthwise_studies.paper.sizes import Size

    table = TABLES.get(results.kind)
    began = [one.provenance.get("started") for one in (earlier, results)]
    if table is None or began[0] == began[1]:
        return None
    one, other = (table.trainings(Size.of(each.config["size"])) for each in (earlier, results))
    if one != other:
        return None
    rows = [row for row in used_rows(earlier, table.judged) if row.reference is not None]
    provenance = {name: earlier.provenance[name] for name in _OF_BEFORE if name in earlier.provenance}
    return replace(earlier, rows=rows, notes=[], provenance=provenance) if rows else None


def _file(kind: str, scale: str) -> str:
    """The file of a run: one for each scale of the paper's tables, one for the studies of far context."""
    from lengthwise_studies.far.studies import PARTS
    from lengthwise_studies.paper.all_tables import TABLES

    if kind in PARTS:
        return "far"
    return f"paper-{scale or 'default'}" if kind in (*TABLES, "table1") else kind


def show(results: Results) -> list[Table]:
    """Every table of the documentation, and of a far study's own page, that these results can fill.

    The text of the documentation quotes numbers of the pages of far studies.
    """
    from lengthwise_studies.far.studies import PARTS
    from lengthwise_studies.paper.all_tables import TABLES

    kind = results.kind
    if kind in PARTS:
        return list(PARTS[kind].tables(results).values())
    if kind in TABLES:
        levels = TABLES[kind].values(results, differences=False, short=True)
        found = [_verdicts(results), _differences(results), levels, _times(results)]
        found += [_from("temperatures").temperatures_table(results)] if kind == "table4" else []
        found += [_from("real_tables").steps_table(results)] if kind == "real-steps" else []
        return [*found, _pretraining({kind: results})]
    if kind == "eval":
        of = _from("task_tables")
        tasks = results.config["tasks"]
        # A group of tasks has no answers by depth.
        if {row.task for row in results.rows} == {tasks[0]} and any(row.depth for row in results.rows):
            return [of.answers_by_depth(results, tasks[0])]
        return [of.against_chance([results]), of.by_quarter([results])]
    if kind in ("limit", "compare"):
        return [_from("context_32k").read_of(results)]
    others: dict[str, Callable[[], list[Table]]] = {
        "table1": lambda: [_table1(results, which) for which in ("all", "small", "models")],
        "tiny-books": lambda: [_tiny_books(results)],
        "lab": lambda: [table(results) for table in _from("lab_tables").TABLES.values()],
        "zoo": lambda: [table(results) for table in _from("zoo_tables").TABLES.values()],
        "served-real": lambda: [table(results) for table in _from("served_tables").TABLES.values()],
        "llamacpp-real": lambda: [_from("llamacpp_tables").comparisons_table(results)],
        "sharded-recipes": lambda: [_from("recipe_tables").runs_table(results)],
    }
    if kind not in others:
        raise UsageError(f"no table shows results of {kind!r}", fix="keep-tables keeps its tables as text")
    return others[kind]()


def _shortened(provenance: dict[str, Any]) -> dict[str, Any]:
    """Without what a setting of a table repeats of the run, the losses of a pretraining, and the files of a store."""
    found = {}
    for name, value in provenance.items():
        if name == "arms":
            continue
        if isinstance(value, dict):
            value = {one: each for one, each in value.items() if each != provenance.get(one)}
            if isinstance(pretraining := value.get("pretraining", value), dict):
                pretraining.pop("losses", None)
        found[name] = value
    return found


def _without_folders(value: Any) -> Any:
    """Every absolute path in it as its last name."""
    if isinstance(value, dict):
        return {name: _without_folders(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_folders(one) for one in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def draw_pictures(folder: Path, root: Path, *names: str) -> list[Path]:
    """Draw the answers by depth of kept far studies into `folder`; returns the files."""
    from lengthwise_studies.far.page import depth_pictures

    paths = []
    for found in (picture for name in names for picture in depth_pictures(kept_run(root, name))):
        paths.append(folder / f"{found.name}.svg")
        atomic_write_text(paths[-1], found.svg + "\n")
    return paths


def main(arguments: list[str], root: Path) -> None:
    """Generate all pages below `root`, or keep a run or the tables of a study."""
    if arguments[:1] == ["keep"]:
        print(keep(Path(arguments[1]), root, *arguments[2:]))
        return
    if arguments[:1] == ["pictures"]:
        print(*draw_pictures(Path(arguments[1]), root, *arguments[2:]), sep="\n")
        return
    if arguments[:1] == ["keep-tables"]:
        from tools.docs.kept_tables import keep_tables

        print(keep_tables(arguments[1], Path(arguments[2]), root, *arguments[3:]))
        return
    for path in pages(root):
        before = path.read_text(encoding="utf-8")
        after = generated(before, root)
        if after != before:
            atomic_write_text(path, after)
            print(f"written: {path}")
    print(f"drawn: {_from('cards').write_card(root)}")


if __name__ == "__main__":
    main(sys.argv[1:], Path.cwd())
