import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import SCHEMA_VERSION, Results, Row, read_results
from tests.report import made_rows
from tools.reference import results_page


def row(**given: Any) -> Row:
    return Row(**{"model": "m", "task": "misalignment", "metric": "sce", "value": 1.0} | given)


def some_results() -> Results:
    return Results(
        kind="measure",
        model_name="m",
        config={"lengths": [64, 128]},
        rows=[
            row(value=6.9, length=64, stderr=0.1, ci_low=6.7, ci_high=7.1, n=100, documents=4),
            row(value=6.5, length=128, position=0, position_end=16),
            row(value=None, length=128),
        ],
        notes=["one", "zwei Wörter"],
        provenance={"seed": 0},
    )


def test_absent_fields_are_left_out_but_an_undefined_value_is_said() -> None:
    plain = json.loads(some_results().to_json())
    assert next(iter(plain)) == "kind"
    assert plain["schema_version"] == SCHEMA_VERSION
    assert plain["rows"][2] == {
        "model": "m",
        "task": "misalignment",
        "metric": "sce",
        "value": None,
        "unit": "nats",
        "length": 128,
        "truncated": 0,
    }


def test_bins_pairs_and_differences_are_no_headlines() -> None:
    rows = row(), row(position=0), row(context=8, context_other=4), row(reference="n")
    assert [each.is_headline for each in rows] == [True, False, False, False]
    assert [each.is_whole for each in rows] == [True, False, False, True]


@pytest.mark.parametrize("name", ["value", "stderr", "ci_low", "ci_high"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_are_finite_or_absent(name: str, number: float) -> None:
    with pytest.raises(AssertionError, match=f"sce: {name} is {number}"):
        Results(kind="k", model_name="m", config={}, rows=[row(**{name: number})])


def test_select() -> None:
    results = some_results()
    assert results.select(length=64) == [results.rows[0]]
    assert results.select(length=128, position=None) == [results.rows[2]]
    assert results.select(distance=None) == results.rows
    assert results.select(length=64, position=0) == []
    with pytest.raises(UsageError, match="did you mean 'length'"):
        results.select(lenght=64)


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ({"metric": "sec"}, "metric = 'sec'.*did you mean 'sce'"),
        ({"length": 46}, "length = 46.*one of: 64, 128"),
        ({"length": "64"}, "length = '64'.*did you mean 64"),
        ({"distance": 5}, "distance = 5.*one of: nothing"),
    ],
)
def test_a_value_that_no_row_has_is_refused_with_the_nearest(wanted: dict[str, Any], near: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){near}"):
        some_results().select(**wanted)


def test_in_a_notebook() -> None:
    results = Results(kind="limit", model_name="m", config={}, rows=made_rows.limit_rows())
    shown = results._repr_html_()
    assert shown.startswith("<p><b>m: sound up to 10,000 [9,600, 10,440] tokens;")
    assert 'data-value="7000"' in shown
    assert repr(results).startswith("<Results of limit, ")
    assert ": m: sound up to 10,000 [9,600, 10,440] tokens;" in repr(results)
    assert len(results.picture().axes) == 2
    assert results.picture()._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"
    assert results.picture("limit").axes[0].get_title(loc="left").startswith("Sound?")
    with pytest.raises(UsageError, match="did you mean 'limit'"):
        results.picture("limits")
    with pytest.raises(UsageError, match="no picture"):
        Results(kind="limit", model_name="m", config={}, rows=[]).picture()


def test_as_a_table_of_pandas() -> None:
    rows = made_rows.limit_rows(sound=None)
    table = Results(kind="limit", model_name="m", config={}, rows=rows).to_pandas()
    assert len(table) == len(rows)
    assert list(table["value"]) == [row.value for row in rows]
    assert table["at_least"][0] is True
    assert "depth" not in table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "results.json"),
        ("[" * 200_000, "results.json"),
        ("\udcff", "results.json"),
        ("[]", "list"),
        ('{"kind": "measure"}', "None"),
        ('{"schema_version": "1"}', "'1'"),
        (f'{{"schema_version": {SCHEMA_VERSION + 1}}}', str(SCHEMA_VERSION + 1)),
        (f'{{"schema_version": {SCHEMA_VERSION}, "kind": "measure"}}', "model_name"),
        (some_results().to_json().replace("6.9", "NaN"), "NaN"),
    ],
)
def test_what_is_no_results_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    with pytest.raises(UsageError):
        read_results(path)
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=message):
        read_results(path)


def test_every_field_is_explained_in_the_schema() -> None:
    schema = json.loads(results_page.schema())
    properties = {**schema["properties"], **schema["$defs"]["Row"]["properties"]}
    unexplained = [name for name, field in properties.items() if not field.get("description")]
    assert unexplained == []
