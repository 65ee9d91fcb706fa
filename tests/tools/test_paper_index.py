"""The index of the papers' claims: no two rows of one name, one verdict a number, nothing judged unseen."""

from collections import Counter
from pathlib import Path

import pytest

from lengthwise_studies.claims import EXCLUDED, NOT_DECIDED, NOT_JUDGED, REPRODUCED
from lengthwise_studies.paper.agreed import number_of
from tools.docs.kept_results import BEFORE
from tools.docs.kept_tables import kept_claims
from tools.docs.paper_index import (
    every_table,
    headline_table,
    table_runs,
    tables_index,
    verdicts_table,
)

ROOT = Path(__file__).parents[2]
KEPT = [path.stem for path in sorted((ROOT / "studies" / "results" / "tables").glob("*.json"))]


@pytest.mark.parametrize(
    "made", [verdicts_table, lambda root: kept_claims(root, *KEPT)], ids=["tables", "others"]
)
def test_no_two_rows_have_one_name(made):
    names = Counter(tuple(row[:2]) for row in made(ROOT).rows)
    assert max(names.values()) == 1, names.most_common(3)


def test_a_number_has_one_verdict():
    verdicts: dict[object, set[str]] = {}
    for run, judged in table_runs(ROOT):
        for one in judged:
            verdicts.setdefault(number_of(run, one.claim), set()).add(one.verdict)
    assert all(len(several) == 1 for several in verdicts.values())


def test_what_decides_nothing_says_what_could_have_been_seen():
    judged = [one for _, _, several in every_table(ROOT) for one in several]
    undecided = [one for one in judged if one.verdict == NOT_DECIDED and one.p is not None]
    assert len(undecided) > 10
    for one in undecided:
        assert one.excluded in (None, False)
        assert "could see" in one.text or "no number differs" in one.text
    assert all(one.excluded for one in judged if one.verdict == EXCLUDED)


def test_an_earlier_training_has_no_line_of_its_own():
    runs = [run for run, _ in table_runs(ROOT)]
    assert {run.variant for run in runs} > {"", BEFORE}
    labels = [label for label, _, _ in every_table(ROOT)]
    assert all(labels.count(run.table.label) == 1 for run in runs)


def test_python_source_is_no_pg19():
    found = [one for _, _, several in every_table(ROOT) for one in several if "PG19" in one.claim.says]
    assert {one.verdict for one in found} == {NOT_JUDGED}


def test_the_headline_counts_help_and_harm_apart_and_each_number_once():
    table = headline_table(ROOT)
    (name, *claims), *verdicts = table.rows
    assert (name, verdicts[0][0]) == ("claims", REPRODUCED)
    assert claims == [sum(int(row[kind] or 0) for row in verdicts) for kind in range(1, len(claims) + 1)]
    index = tables_index(ROOT)
    # Tables share numbers, so the index has more than the headline.
    assert sum(claims) < sum(row[2] for row in index.rows)
