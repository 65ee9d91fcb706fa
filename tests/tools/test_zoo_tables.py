"""What the zoo found, as tables."""

from checks.zoo.__main__ import results_of
from lengthwise.report.writers import to_markdown
from tools.docs.zoo_tables import equal_table, none_table, others_table, verbs_table


def found():
    def model(name: str, ppl: list[object], limit: list[object], variant: str = "") -> dict[str, object]:
        return {
            "kind": [name, variant],
            "versions": {},
            "none": None,
            "cells": {"ppl": ppl, "limit": limit},
        }

    equal, refused = ["equal", 1e-6, ""], ["refused", None, "no cache"]
    return results_of(
        [
            model("a", equal, equal),
            model("a", equal, equal, "YaRN"),
            model("b", equal, ["wrong", 0.25, ""]),
            model("c", refused, refused),
            model("d", refused, refused),
            {"kind": ["e", ""], "versions": {}, "none": "no text", "cells": {}},
        ]
    )


def _lines(table) -> list[str]:
    return to_markdown(table).splitlines()[2:]


def test_each_verb_with_how_often_it_is_equal_refused_or_wrong() -> None:
    assert _lines(verbs_table(found())) == ["| ppl | 3 | 2 | 0 | 0 | 0 |", "| limit | 2 | 2 | 0 | 1 | 0 |"]


def test_models_of_the_same_verbs_and_reason_are_one_line() -> None:
    assert _lines(others_table(found())) == [
        "| c; d | ppl; limit | refused |  | no cache |",
        "| b | limit | not equal | 0.25 |  |",
    ]


def test_models_that_are_equal_by_architecture_and_those_that_there_are_not() -> None:
    assert _lines(equal_table(found())) == ["| a | YaRN |"]
    assert _lines(none_table(found())) == ["| e | no text |"]
