import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import RunFolder
from lengthwise_studies.claims import tally
from lengthwise_studies.skeleton import Part, Study, computed, produce_page


@dataclass(frozen=True)
class Size:
    """The study has one."""


@pytest.mark.parametrize(
    ("sections", "lead", "seen"),
    [
        # A page of one part says its first paragraph once, at the top.
        ([["What was done.", "What came out."]], (), {"What was done.": 1, "What came out.": 1}),
        ([["What was done."], ["More."]], (), {"What was done.": 1, "More.": 1}),
        ([["What was done."]], ("In short.",), {"What was done.": 1, "In short.": 1}),
    ],
)
def test_what_a_page_begins_with(sections, lead, seen, tmp_path):
    made = [Section(title=f"part {number}", paragraphs=said) for number, said in enumerate(sections)]
    results = Results(kind="sentences", model_name="m", config={}, rows=[])
    part = Part(run=lambda *_, **__: results, sections=lambda *_: made, scales={"default": Size()})
    page = produce_page(Study(title="A study", parts=(part,), lead=lead), tmp_path).page.read_text()
    assert {sentence: page.count(sentence) for sentence in seen} == seen


def test_the_verdicts_are_counted_before_anything_else(tmp_path):
    """Each under its own name, whatever reason follows it; of a rule that is neither, in other words."""
    verdicts = [
        "reproduced",
        "not decided (could see 0.1)",
        "not decided: too few",
        "holds",
        "holds for 3 of 10",
    ]
    table = Table(columns=("claim", "verdict"), rows=[("c", each) for each in verdicts])
    said = 'The verdicts on 5 claims: 1 "reproduced", 2 "not decided", 1 "holds", 1 in other words.'
    assert tally([table]) == [said]
    assert tally([Table(columns=("claim",), rows=[("c",)])]) == []
    made = [Section(title="part", paragraphs=["What was done."], tables=[table])]
    results = Results(kind="sentences", model_name="m", config={}, rows=[])
    part = Part(run=lambda *_, **__: results, sections=lambda *_: made, scales={"default": Size()})
    page = produce_page(Study(title="A study", parts=(part,)), tmp_path).page.read_text()
    assert unescape(page).index(said) < unescape(page).index("What was done.")


@dataclass(frozen=True)
class Seeds:
    """The study may have several."""

    seeds: int = 1


@pytest.mark.parametrize("folders", [(".",), (".", "parts/b"), ("parts/a", "parts/b")])
def test_an_earlier_run_of_any_part_is_in_the_way_continued_or_replaced(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """Parts below a part's folder too: they were continued without a word, and not replaced."""
    ran: list[int] = []

    def rows(size: Seeds) -> list[Row]:
        ran.append(size.seeds)
        return [Row(model="m", task="t", metric="m", value=1.0)]

    parts = tuple(
        Part(
            run=computed("k", rows, model_name="m"),
            sections=lambda results, folder: [Section(title="t", paragraphs=["p"])],
            scales={"default": Seeds()},
            folder=folder,
        )
        for folder in folders
    )
    study = Study(title="s", parts=parts, takes=("seeds",))

    def run(**how: Any) -> list[int]:
        ran.clear()
        produce_page(study, tmp_path / "run", **how)
        kept = [read_results(tmp_path / "run" / folder / "results.json") for folder in folders]
        assert len({one.config["scale"]["seeds"] for one in kept}) == 1
        return [*ran]

    each = len(folders)
    assert run() == [1] * each
    for refused in ({}, {"seeds": 2}, {"seeds": 2, "resume": True}):
        with pytest.raises(UsageError, match="holds"):
            run(**refused)
    assert run(resume=True) == []
    assert run(seeds=2, overwrite=True) == [2] * each
    # Only a later part is left of an earlier run.
    (tmp_path / "run" / folders[0] / "results.json").unlink()
    assert run(seeds=2, resume=True) == [2]


@dataclass
class Stopped:
    """A study of two grids, each of two cells, that ends with an error before one of them."""

    out: Path
    before: str = ""

    def __post_init__(self) -> None:
        self.done: list[str] = []
        parts = tuple(
            Part(
                run=partial(self._grid, name), sections=_one_section, scales={"default": Seeds()}, folder=name
            )
            for name in ("a", "b")
        )
        self.study = Study(title="s", parts=parts, takes=("seeds",))

    def _grid(self, name: str, out: Path, scale: Seeds, **how: Any) -> Results:
        with RunFolder(out, kind="k", config={"seeds": scale.seeds}, **how) as folder:
            for cell in ("1", "2"):
                if cell not in folder.samples:
                    if self.before == name + cell:
                        raise KeyboardInterrupt
                    self.done.append(name + cell)
                    folder.samples.append(cell, {"seeds": scale.seeds})
            row = Row(model="m", task="t", metric="m", value=float(scale.seeds))
            results = Results(kind="k", model_name="m", config={}, rows=[row])
            folder.write_results(results)
            return results

    def run(self, *, stop: str = "", **how: Any) -> list[str]:
        """The cells that were computed, until `stop`."""
        self.done, self.before = [], stop
        with pytest.raises(KeyboardInterrupt) if stop else nullcontext():
            produce_page(self.study, self.out, **how)
        return self.done


def _one_section(results: Results, folder: Path) -> list[Section]:
    return [Section(title="t", paragraphs=["p"])]


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("stop", ["a2", "b1", "b2"])
def test_a_study_that_is_replaced_half_way_is_resumed_as_a_whole(tmp_path: Path, stop: str, seeds: int):
    """Later parts of the earlier run were refused, with other settings, or kept, with the same."""
    study = Stopped(tmp_path / "run")
    cells = study.run()
    assert cells == ["a1", "a2", "b1", "b2"]
    assert study.run(seeds=seeds, overwrite=True, stop=stop) == cells[: cells.index(stop)]
    assert study.run(seeds=seeds, resume=True) == cells[cells.index(stop) :]
    # Once: all are of the new run now.
    assert study.run(seeds=seeds, resume=True) == []


def test_a_study_that_is_replaced_is_killed_before_the_first_result_of_a_part(tmp_path: Path):
    study = Stopped(tmp_path / "run")
    study.run()
    study.run(seeds=2, overwrite=True, stop="b1")
    # As a kill leaves it: the new part was begun, and the earlier one is set aside.
    folder = study.out / "b"
    earlier = folder / ".earlier"
    earlier.mkdir()
    for name in ("config.yaml", "env.json", "samples.jsonl", "results.json", "README.md"):
        os.replace(folder / name, earlier / name)
    for name in ("env.json", "config.yaml"):
        (folder / name).write_text((study.out / "a" / name).read_text())
    assert study.run(seeds=2, resume=True) == ["b1", "b2"]


def test_a_study_that_was_not_replaced_after_all_is_read(tmp_path: Path):
    """Stopped before its first result: the earlier run is back, and whole."""
    study = Stopped(tmp_path / "run")
    study.run()
    assert study.run(overwrite=True, stop="a1") == []
    assert study.run(resume=True) == []


@pytest.mark.parametrize("name", ["report.html", "figures/tables.md"])
@pytest.mark.parametrize("how", [{}, {"overwrite": True}])
def test_a_page_of_something_else_is_not_replaced(tmp_path: Path, name: str, how: dict[str, bool]):
    other = tmp_path / "run" / name
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    study = Stopped(tmp_path / "run")
    with pytest.raises(UsageError, match="no part of this study"):
        study.run(**how)
    assert study.done == []
    assert other.read_text() == "mine"
