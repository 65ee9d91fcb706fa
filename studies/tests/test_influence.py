"""The study of influential tokens: its verdicts by rule, and the whole of it in small."""

from pathlib import Path

import pytest

from lengthwise.errors import MissingError
from lengthwise.results import Row, read_results
from lengthwise.text.corpus import load_corpus
from lengthwise_studies.claims import judge
from lengthwise_studies.sparsity.influence import CLAIMS, TOO_FEW, Numbers
from lengthwise_studies.study_table import produce


def numbers(documents: int, **shares: tuple[float, float | None, float | None]) -> Numbers:
    return {
        (f"recovered_{name}", k): Row(
            metric=f"recovered_{name}", value=value, ci_low=low, ci_high=high, documents=documents, **AT
        )
        for name, (value, low, high) in shares.items()
        for k in (1, 8)
    }


AT = {"model": "m", "task": "influence"}
CONTROLS = {"random": (0.1, 0.0, 0.2), "recent": (0.1, 0.0, 0.2), "copies": (0.5, 0.4, 0.6)}


@pytest.mark.parametrize(
    ("documents", "greedy", "net", "verdicts"),
    [
        (8, (0.9, 0.82, 0.95), (0.7, 0.6, 0.8), ["holds", "holds", "holds"]),
        (8, (0.7, 0.65, 0.75), (0.3, 0.2, 0.4), ["does not hold", "does not hold", "holds"]),
        (8, (0.8, 0.55, 0.9), (0.5, 0.4, 0.6), ["not decided", "not decided", "not decided"]),
        (8, (0.4, 0.3, 0.5), (0.5, 0.4, 0.6), ["does not hold", "not decided", "does not hold"]),
        (8, (0.9, None, None), (0.5, None, None), [TOO_FEW] * 3),
        (7, (0.9, 0.82, 0.95), (0.7, 0.6, 0.8), [TOO_FEW] * 3),
    ],
)
def test_verdicts_by_rule(documents: int, greedy: tuple, net: tuple, verdicts: list[str]):
    found = numbers(documents, greedy=greedy, net=net, **CONTROLS)
    assert [one.verdict for one in judge(CLAIMS, found)] == verdicts


@pytest.mark.real
@pytest.mark.slow
def test_the_study_in_small_to_its_page(tmp_path: Path):
    try:
        load_corpus("code")
    except MissingError as error:
        pytest.skip(str(error))  # with older versions of the packages that it is made of
    produced = produce("influence", tmp_path / "run", scale="smoke")
    for text in ("books", "code"):
        results = read_results(tmp_path / "run" / f"influence-{text}" / "results.json")
        [gain] = results.select(metric="gain")
        assert gain.value > 0.1
        assert {row.kept for row in results.rows} == {None, 1, 4}
    assert [len(table.columns) for table in produced.tables] == [6, 3] * 2
    assert produced.page.is_file()
