"""What the studies of far context claim and show: verdicts, tables and pictures."""

from dataclasses import replace
from typing import Any

import pytest

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.training import read_recipe
from lengthwise_studies.claims import NOT_DECIDED, OPPOSITE, OUTSIDE
from lengthwise_studies.far.claims import ANSWERS
from lengthwise_studies.far.page import depth_pictures
from lengthwise_studies.far.studies import CONTROL, EVERY, HALF, ON_BOOKS, ON_CODE, PARTS, REPEATS

NEEDLE = ("needle_multi_key", "accuracy")
LOSS = ("perplexity", "loss")


def results(values: dict[tuple[str, str, int], float], *arms: str, **measures: Any) -> Results:
    """Three seeds around these differences of the arms from the control, over a hundred documents."""
    asked = {"tasks": ["needle_multi_key"], "lengths": [2048, 7000], "depths": [0.0]}
    rows = [
        Row(
            model="m",
            task=task,
            metric=metric,
            value=value * (1 + 0.01 * seed),
            stderr=0.001,
            documents=100,
            length=length,
            arm=arm,
            reference=CONTROL.name,
            seed=seed,
        )
        for seed in range(3)
        for arm in arms or (HALF.name,)
        for (task, metric, length), value in values.items()
    ]
    config = {"measures": measures or {"eval": asked, "perplexity": {"lengths": [1024, 2048]}}}
    return Results(kind="far-repeats", model_name="m", config=config, rows=rows)


def answers(far: float, cost: float, near: float) -> Results:
    """Differences of accuracy on long prompts, of the loss, and of accuracy on short prompts."""
    return results({(*NEEDLE, 7000): far, (*LOSS, 1024): cost, (*NEEDLE, 2048): near})


def column(table: Table, name: str) -> list[Cell]:
    return [row[table.columns.index(name)] for row in table.rows]


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ((0.2, 0.004, 0.0), ["reproduced"] * 3),
        ((-0.2, 0.03, -0.2), [OPPOSITE, OUTSIDE, OUTSIDE]),
        ((0.0, 0.01, -0.05), [NOT_DECIDED] * 3),
        # A gain contradicts neither the allowed cost nor the allowed loss.
        ((0.2, -0.03, 0.2), ["reproduced"] * 3),
    ],
)
def test_the_form_is_judged_by_its_three_claims(differences: tuple[float, float, float], expected: list[str]):
    part = replace(PARTS["far-repeats"], claims=((HALF, CONTROL, ANSWERS),))
    table = part.tables(answers(*differences))["verdicts"]
    assert [str(cell).partition(" (could see")[0] for cell in column(table, "verdict")] == expected
    # No paper says anything of this form.
    assert "paper" not in table.columns


def test_differences_over_seeds_name_another_reference_and_need_three_seeds() -> None:
    found = answers(0.2, 0.004, 0.0)
    found.rows += [replace(row, depth=0.0, value=0.5) for row in found.rows if row.length == 7000]
    found.rows += [replace(row, reference=HALF.name, arm=EVERY.name, value=0.1) for row in found.rows]
    tables = PARTS["far-repeats"].tables(found)
    table, depths = tables["differences"], tables["differences by depth"]
    pairs = [HALF.name, f"{EVERY.name} minus {HALF.name}"]
    assert column(table, "") == column(depths, "") == pairs
    assert depths.columns == ["", "accuracy at 7,000, depth 0 %"]
    means = (column(depths, depths.columns[1]), column(table, "loss at 1,024"))
    for cells, mean in zip(means, (0.5, 0.00404), strict=True):
        values = [cell.value for cell in cells if isinstance(cell, Estimate)]
        assert values == pytest.approx([mean, 0.1])
    two = replace(found, rows=[row for row in found.rows if row.seed != 2])
    assert "differences" not in PARTS["far-repeats"].tables(two)


@pytest.mark.parametrize("kind", [kind for kind, part in PARTS.items() if part.claims])
def test_every_claim_has_its_differences(kind: str) -> None:
    """A claim about a pair that the experiment does not compare would never get a verdict."""
    part = PARTS[kind]
    measures = part.scales["default"].measures
    reference = part.experiment.reference
    compared = {(arm.name, reference) for arm in part.experiment.arms} | {
        (each.arm, each.against) for each in part.experiment.contrasts
    }
    values = {
        **{(*LOSS, length): 0.004 for length in measures["perplexity"]["lengths"]},
        ("longppl", "loss_key", 8192): -0.2,
        ("limit", "used_up_to", 12288): 900.0,
    }
    asked = measures.get("eval", {"tasks": (), "lengths": (), "depths": ()})
    for task in asked["tasks"]:
        for length in asked["lengths"]:
            values |= {(task, metric, length): 0.2 for metric in ("accuracy", "gold_probability")}
    found = results(values, **measures)
    found.rows = [replace(row, arm=arm, reference=other) for row in found.rows for arm, other in compared]
    found.rows += [replace(row, depth=depth) for row in found.rows for depth in asked["depths"]]
    verdicts = column(part.tables(found)["verdicts"], "verdict")
    assert len(verdicts) >= 3
    assert set(verdicts) == {"reproduced"}


def test_long_texts_are_judged_at_each_length_by_the_means_that_are_shown() -> None:
    part, reach = PARTS["far-long-texts"], PARTS["far-reach"]
    scale = part.scales["default"]
    assert (scale.measures, scale.seeds) == (reach.scales["default"].measures, 3)
    lengths = [1024, 4096, 8192]
    values = {(*LOSS, length): of for length, of in zip(lengths, (0.004, 0.009, 0.03), strict=True)}
    values |= {("longppl", "loss_key", 8192): -0.2, ("limit", "used_up_to", 12288): 900.0}
    arms = (HALF.name, REPEATS.name)
    # No question is asked, so no table has depths, and no arm has a number of its own here.
    tables = part.tables(results(values, *arms, **scale.measures))
    assert list(tables) == ["verdicts", "arms", "differences"]
    one = ["reproduced", NOT_DECIDED, OUTSIDE, "reproduced", "reproduced"]
    verdicts = [str(cell).partition(" (could see")[0] for cell in column(tables["verdicts"], "verdict")]
    assert verdicts == one * 2
    differences = tables["differences"]
    columns = ["", *(f"loss at {length:,}" for length in lengths), "loss of key tokens", "used up to"]
    assert differences.columns == columns
    assert column(differences, "") == [*arms]
    assert [cell for row in differences.rows for cell in row[1:]] == column(tables["verdicts"], "ours")


def test_the_picture_by_depth_has_a_panel_for_each_length() -> None:
    found = answers(0.2, 0.004, 0.0)
    row = Row(model="m", task=NEEDLE[0], metric=NEEDLE[1], value=0.0)
    found.rows = [
        replace(row, value=value, length=length, depth=depth, arm=arm)
        for arm, value in (("one", 0.25), ("other", 0.75))
        for length in (2048, 7000)
        for depth in (0.0, 50.0)
    ]
    found.config["measures"]["eval"]["depths"] = [0.0, 50.0]
    (picture,) = depth_pictures(found)
    assert picture.alt.endswith(
        "7,000 tokens: one: 0.2500 at 0, 0.2500 at 50. other: 0.7500 at 0, 0.7500 at 50."
    )


def _recipe(kind: str, arm: Any) -> dict[str, Any]:
    part = PARTS[kind]
    recipe = part.experiment.recipe_of(part.scales["default"], arm, 0)
    assert recipe is not None
    return recipe.to_dict()


def test_arms_on_code_differ_in_their_text_alone() -> None:
    for books_arm, code_arm in zip(ON_BOOKS, ON_CODE, strict=True):
        books, code = _recipe("far-code", books_arm), _recipe("far-code", code_arm)
        assert (books["data"]["corpus"], code["data"]["corpus"]) == ("books", "code")
        assert code == {**books, "data": {**books["data"], "corpus": "code"}}
        # The store then has the arms of far-repeats.
        assert books == _recipe("far-repeats", books_arm)


def test_what_is_measured_is_what_ships() -> None:
    recipe = _recipe("far-repeats", REPEATS)
    assert {**read_recipe("smollm2-far").to_dict(), "precision": recipe["precision"]} == recipe
