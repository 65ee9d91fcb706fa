from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from lengthwise.config import override, parse_yaml, read_yaml, to_yaml, validate
from lengthwise.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Objective:
    alpha: float = 0.1
    divergence: Literal["sce", "jeffreys"] = "sce"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    rank: int = 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    model: str
    length: int
    objective: Objective = field(default_factory=Objective)
    adapter: Adapter | None = None


def test_numbers_as_people_write_them() -> None:
    read = parse_yaml("a: 1e-5\nb: 1.5e3\nc: -2E+1\nd: 12\ne: '1e-5'\nf: 1e-5x", source="s")
    assert read == {"a": 1e-5, "b": 1500.0, "c": -20.0, "d": 12, "e": "1e-5", "f": "1e-5x"}
    assert isinstance(read["a"], float)


def test_empty_is_an_empty_mapping() -> None:
    assert parse_yaml("# nothing\n", source="s") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"settings.*'a'.*3"),
        ("x:\n  a: 1\n  a: 2", r"settings.*'a'.*3"),
        ("- a\n- b", "settings.*list"),
        ("a: [1", "settings"),
        ("? [1, 2]\n: 3", "settings"),
        ("a: !!python/object/apply:os.system ['true']", "settings"),
    ],
)
def test_bad_yaml(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_yaml(text, source="settings")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.yaml"):
        read_yaml(tmp_path / "gone.yaml")
    with pytest.raises(UsageError):
        read_yaml(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UsageError, match=r"binary\.yaml"):
        read_yaml(tmp_path / "binary.yaml")


def test_yaml_round_trip_keeps_order_and_type() -> None:
    settings = {"z": 1, "a": {"x": 1e-5, "y": None}, "text": "1e-5", "word": "schön", "list": [1, 2]}
    text = to_yaml(settings)
    assert parse_yaml(text, source="s") == settings
    assert list(parse_yaml(text, source="s")) == ["z", "a", "text", "word", "list"]


def test_validate_fills_nested_defaults() -> None:
    settings = validate(Settings, {"model": "m", "length": 8, "adapter": {"rank": 4}}, source="s")
    assert settings == Settings(model="m", length=8, objective=Objective(), adapter=Adapter(rank=4))


def test_every_mistake_at_once_with_the_nearest_key() -> None:
    wrong = {"lenght": 8, "objective": {"alhpa": 1, "divergence": "jefreys"}, "adapter": {"rnak": 2}}
    with pytest.raises(UsageError) as caught:
        validate(Settings, wrong, source="recipe.yaml")
    message = str(caught.value)
    assert message.startswith("recipe.yaml has 6 mistakes:")
    assert "unknown key 'lenght'; did you mean 'length'?" in message
    assert "unknown key 'objective.alhpa'; did you mean 'alpha'?" in message
    assert "unknown key 'adapter.rnak'; did you mean 'rank'?" in message
    assert "objective.divergence = 'jefreys': Input should be 'sce' or 'jeffreys'" in message
    assert "missing key 'model'" in message
    assert "missing key 'length'" in message
    assert caught.value.exit_code == 2


def test_override() -> None:
    before = {"length": 8, "objective": {"alpha": 0.1}}
    after = override(before, ["objective.alpha=1e-3", "adapter.rank=2", "objective.divergence=jeffreys"])
    assert after == {
        "length": 8,
        "objective": {"alpha": 1e-3, "divergence": "jeffreys"},
        "adapter": {"rank": 2},
    }
    assert before == {"length": 8, "objective": {"alpha": 0.1}}, "the settings given are not changed"
    assert override({}, ["a-b=c=d"]) == {"a_b": "c=d"}
    assert override({}, ["a=null", "b="]) == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("alpha", "'alpha'"),
        ("=3", "'=3'"),
        ("length.x=3", r"'length'.*8"),
        ("alpha=[1", r"'alpha=\[1'"),
    ],
)
def test_bad_override(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override({"length": 8}, [assignment])
