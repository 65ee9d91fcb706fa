"""Sizes and margins of the papers' claims: each has the paper's number, and no margin hides an effect."""

import math

import pytest

from lengthwise.training import read_recipe
from lengthwise_studies.claims import HARMLESS, HARMS, HELPS
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.sizes import LAPTOP, PAPER, SIZES
from lengthwise_studies.paper.yardsticks import EFFECTS, no_second_books

CLAIMS = {f"{name}: {one.says}": one for name, table in TABLES.items() for one in table.claims}


def test_the_effects_are_those_of_the_printed_perplexities():
    assert EFFECTS["Table 4"].nats == pytest.approx(math.log(5.88 / 6.12))
    assert EFFECTS["Table 5"].nats == pytest.approx(-0.0086, abs=5e-5)


@pytest.mark.parametrize(("name", "claim"), CLAIMS.items(), ids=list(CLAIMS))
def test_a_margin_is_below_the_effect_that_it_must_not_hide(name, claim):
    margin, unit = claim.test.margin, claim.test.quantity.unit
    if claim.test.direction == "same":
        effect = EFFECTS[claim.place].of(unit) if unit == "nats" else 0.05
        assert margin < abs(effect)
    elif margin is not None:
        # "Slight", and no degradation: what the rebuttal itself has.
        assert margin == pytest.approx(
            abs(claim.test.size) if claim.place == "Rebuttal, 50 steps" else math.log(5.81 / 5.74)
        )
    if claim.term == HELPS and claim.paper.startswith(("perplexity", "no number; ")):
        # A claim that the term helps has a size in its direction.
        assert (claim.test.size < 0) == (claim.test.direction == "lower")
    assert claim.term != HARMS or claim.test.direction != "not higher"
    # Where the paper prints a number, a verdict says whether its size is excluded.
    none = ("no number in the text", "no number of this many tokens", "not measured")
    printed = claim.paper not in none
    assert claim.test.direction == "same" or printed == (claim.test.size is not None)


def test_claims_about_harm_are_told_from_claims_about_help():
    terms = {name: claim.term for name, claim in CLAIMS.items()}
    assert terms["table4: alpha 0.1 lowers the perplexity after 200 steps"] == HELPS
    assert terms["table4: alpha 0.5 raises the perplexity after 200 steps"] == HARMS
    assert terms["table2: books: a greater weight does not always help more"] == HARMS
    assert terms["within: the term does not degrade the perplexity at 1T"] == HARMLESS
    assert terms["twenty: EABF: after 50 steps the term raises the perplexity slightly at most"] == HARMLESS


def test_pg19_is_judged_where_the_second_text_is_books():
    on_pg19 = [claim for name, claim in CLAIMS.items() if "PG19" in name]
    assert len(on_pg19) == 6
    for size, judged in ((LAPTOP, False), (PAPER, True), (SIZES["gpu"], True)):
        assert {claim.unless(size) == "" for claim in on_pg19} == {judged}
        assert (no_second_books(size) == "") == judged


def test_only_table_11_trains_lora_at_its_own_rate():
    rates = {
        (name, arm.recipe): read_recipe(arm.recipe, arm.changes).optimizer.learning_rate
        for name in ("table3", "table11")
        for arm in TABLES[name].experiment(LAPTOP)[0].trained_arms
    }
    others = {("table3", "longqlora"), ("table3", "eabf"), ("table11", "eabf")}
    assert rates == dict.fromkeys(others, 1e-4) | {("table11", "longqlora"): LAPTOP.adapter_rate}
