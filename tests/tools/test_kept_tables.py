"""Kept tables carry the rules that decided them, and are shown only while the code has the same rules."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise_studies.claims import FAILS, HOLDS, Claim, Rule, judge, verdict_table
from lengthwise_studies.skeleton import Part, Study
from tools.docs import kept_tables
from tools.docs.kept_results import results_folder
from tools.docs.kept_tables import keep_tables, kept_claims, kept_table


@dataclass(frozen=True)
class Size:
    """It has one limit, which is a part of the rule."""

    limit: int = 1


def study(limit: int = 1, says: str = "it is small", headings: tuple[str, ...] = ("books",)) -> Study:
    """Half is measured, and claimed to be below a limit."""

    def claims(size: Size) -> list[Claim]:
        below = Rule(
            f"below {size.limit}", lambda number: (f"{number}", HOLDS if number < size.limit else FAILS)
        )
        return [Claim(place="Table 1", says=says, paper="0.25", test=below)]

    def sections(results: Results, folder: Path) -> list[Section]:
        numbers = Table(
            columns=["text", "number"], rows=[["a, b", 0.5], ["a", 2], ["c", 3]], caption="Numbers"
        )
        return [Section(title="t", tables=[verdict_table(judge(claims(Size(limit)), 0.5)), numbers])]

    part = Part(
        run=lambda *_, **__: Results(kind="k", model_name="m", config={}, rows=[]),
        sections=sections,
        scales={"default": Size(limit), "paper": Size(limit)},
        claims=claims,
    )
    return Study(title="t", parts=tuple(replace(part, folder=one, heading=one) for one in headings))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("books", "code"):
        (tmp_path / name).mkdir()
        found = Results(kind="k", model_name="m", config={}, rows=[], provenance={"commit": "8269d015"})
        (tmp_path / name / "results.json").write_text(found.to_json())
    (results_folder(tmp_path) / "tables").mkdir(parents=True)
    return tmp_path


def use(now: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "study_named", lambda name: now)


@pytest.mark.parametrize("other", [study(limit=2), study(says="it is tiny")], ids=["rule", "claim"])
def test_a_page_whose_rule_has_changed_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, other: Study
) -> None:
    use(study(), monkeypatch)
    path = keep_tables("small", run, run)
    assert kept_claims(run, "small").rows == [["Table 1", "it is small", "0.25", HOLDS]]
    [part] = json.loads(path.read_text())["parts"]
    assert (part["code"], part["rules"]) == ("8269d015", [["Table 1", "it is small", "below 1"]])
    use(other, monkeypatch)
    for show in (lambda: kept_claims(run, "small"), lambda: kept_table("small", 1, run)):
        with pytest.raises(UsageError) as refused:
            show()
        assert "'it is small': below 1" in refused.value.problem
        assert refused.value.expected
        assert "lengthwise reproduce small --out" in (refused.value.fix or "")


def test_scales_name_their_verdicts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(study(headings=("books", "code")), monkeypatch)
    keep_tables("small", run, run)
    assert keep_tables("small", run, run, "paper").name == "small-paper.json"
    places = [row[0] for row in kept_claims(run, "small", "small-paper").rows]
    assert places == ["Table 1", "Table 1", "Table 1, scale paper", "Table 1, scale paper"]
    assert len(kept_claims(run, "place=Table 2|Table 1", "small", "small-paper").rows) == 2


def test_a_part_that_no_code_makes_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(study(headings=("books", "code")), monkeypatch)
    keep_tables("small", run, run)
    use(study(), monkeypatch)
    with pytest.raises(UsageError, match="the part 'code', which small does not make"):
        kept_table("small", 0, run)


def test_rows_and_columns_are_chosen(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(study(), monkeypatch)
    keep_tables("small", run, run)
    assert kept_table("small", 1, run, "text=a|c", "number=2|9").rows == [["a", "2"]]
    chosen = kept_table("small", 1, run, "text=a|c", "number=2")
    assert (chosen.columns, chosen.rows) == (["text"], [["a"]]), "2 in every row"
    assert kept_table("small", 1, run, "-number").columns == ["text"]
    assert len(kept_table("small", 1, run).rows) == 3
    with pytest.raises(UsageError, match="has 2 kept tables"):
        kept_table("small", 2, run)
    with pytest.raises(UsageError, match="no kept tables 'smal'"):
        kept_table("smal", 0, run)
