from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.yaml_text import override, parse_yaml, read_yaml, to_yaml


def test_numbers_as_people_write_them() -> None:
    read = parse_yaml("a: 1e-5\nb: 1.5e3\nc: -2E+1\nd: 12\ne: '1e-5'\nf: 1e-5x", source="s")
    assert read == {"a": 1e-5, "b": 1500.0, "c": -20.0, "d": 12, "e": "1e-5", "f": "1e-5x"}
    assert isinstance(read["a"], float)


def test_empty_is_an_empty_mapping() -> None:
    assert parse_yaml("# nothing\n", source="s") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"(?s)settings.*'a'.*line 3"),
        ("x:\n  a: 1\n  a: 2", r"(?s)settings.*'a'.*line 3"),
        ("- a\n- b", "settings.*list"),
        ("a: [1", "settings"),
        ("? [1, 2]\n: 3", "settings"),
        ("a: !!python/object/apply:os.system ['true']", "settings"),
        ("a: 2020-99-99", "settings"),
        ("a: " + "9" * 5000, "settings"),
        ("a: " + "[" * 20_000, "settings"),
    ],
)
def test_bad_yaml(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_yaml(text, source="settings")


def test_an_alias_and_a_merge_are_fine() -> None:
    assert parse_yaml("a: &x {n: 1}\nb: {<<: *x, m: 2}", source="s") == {"a": {"n": 1}, "b": {"n": 1, "m": 2}}


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
    [("alpha", "'alpha'"), ("=3", "'=3'"), ("length.x=3", r"'length'.*8"), ("alpha=[1", r"'alpha=\[1'")],
)
def test_bad_override(assignment: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        override({"length": 8}, [assignment])
