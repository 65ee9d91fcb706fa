"""YAML that PyYAML answers with anything but a YAMLError, and values that are no settings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from lengthwise.config import override, parse_yaml, validate
from lengthwise.errors import UsageError

HOSTILE = {
    "a date that is none": "2020-99-99",
    "the year 0": "0000-01-01",
    "an empty integer": "!!int ''",
    "an integer of 5000 digits": "9" * 5000,
    "a character beyond Unicode": '"\\U00110000"',
    "20,000 brackets": "[" * 20_000,
    "a tag": "!!python/object/apply:os.system ['true']",
    "a tag of YAML's own": "!!set {a}",
    "an alias inside of itself": "&a [*a]",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_value_is_refused_in_a_file_and_in_set(value: str):
    with pytest.raises(UsageError) as in_file:
        parse_yaml(f"key: {value}", source="recipe.yaml")
    assert in_file.value.problem.startswith("recipe.yaml")
    with pytest.raises(UsageError) as in_set:
        override({}, [f"key={value}"])
    assert in_set.value.problem.startswith("--set")
    assert max(len(str(in_file.value)), len(str(in_set.value))) < 3000


def test_aliases_of_aliases_are_counted_before_they_are_expanded():
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 11)
    )
    started = time.monotonic()
    with pytest.raises(UsageError, match="aliases"):
        parse_yaml(bomb, source="recipe.yaml")
    assert time.monotonic() - started < 5


def test_an_alias_is_fine():
    assert parse_yaml("a: &x [1, 2]\nb: *x", source="s") == {"a": [1, 2], "b": [1, 2]}


@dataclass(frozen=True, kw_only=True)
class Inner:
    factor: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int = 1
    rate: float = 0.5
    fast: bool = False
    inner: Inner = field(default_factory=Inner)
    betas: tuple[float, ...] = ()


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"rate": float("nan")}, "rate"),
        ({"inner": {"factor": float("inf")}}, "inner.factor"),
        ({"inner": {"options": {"theta": float("inf")}}}, "inner.options.theta"),
        ({"betas": [0.9, float("nan")]}, "betas"),
        ({"steps": True}, "steps"),
        ({"rate": True}, "rate"),
        ({"betas": [True]}, "betas"),
    ],
)
def test_a_number_is_finite_and_no_truth_value(settings: dict[str, Any], path: str):
    with pytest.raises(UsageError) as refused:
        validate(Settings, settings, source="recipe.yaml")
    assert f"  {path} = " in str(refused.value)


def test_truth_values_stay_where_they_are_meant():
    assert validate(Settings, {"fast": True, "steps": 3}, source="s") == Settings(fast=True, steps=3)
