import os
import time
from pathlib import Path

import pytest

from lengthwise.errors import LengthwiseError
from lengthwise.samples import SampleLog


def test_appended_samples_come_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    first = SampleLog(path)
    value = 0.1 + 0.2
    first.append("doc:0", {"sum": value, "counts": [1, 2]})
    first.append("doc:1", {"sum": -1e-300, "counts": []})
    again = SampleLog(path)
    assert list(again) == ["doc:0", "doc:1"]
    assert again["doc:0"]["sum"] == value
    again.append("doc:2", {})
    assert list(SampleLog(path)) == ["doc:0", "doc:1", "doc:2"]


@pytest.mark.parametrize("torn", [b"{", b'{"key": "b", "x": 1', b'{"key": "b", "x": "\xc3'])
def test_torn_last_line_is_done_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "samples.jsonl"
    SampleLog(path).append("a", {"x": 0})
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    log = SampleLog(path)
    assert list(log) == ["a"]
    assert path.read_bytes() == whole + torn, "a report must not cut off a line that a run is writing"
    log.append("b", {"x": 2})
    log.append("c", {"x": 3})
    assert path.read_bytes().startswith(whole)
    assert dict(SampleLog(path)) == {"a": {"x": 0}, "b": {"x": 2}, "c": {"x": 3}}


def test_only_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'{"key"')
    log = SampleLog(path)
    assert len(log) == 0
    log.append("a", {})
    assert list(SampleLog(path)) == ["a"]


@pytest.mark.parametrize("damage", [b"not json\n", b'{"key": "c"}\n', b"[1]\n", b"\xff\xfe\n"])
def test_damage_before_the_last_line_is_named_not_skipped(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "samples.jsonl"
    for key in "ab":
        SampleLog(path).append(key, {})
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n" + damage, 1))
    with pytest.raises(LengthwiseError, match=r"samples\.jsonl, line 2") as caught:
        SampleLog(path)
    assert "--overwrite" in caught.value.fix


def test_same_key_twice_is_our_mistake(tmp_path: Path) -> None:
    log = SampleLog(tmp_path / "samples.jsonl")
    log.append("a", {})
    with pytest.raises(AssertionError):
        log.append("a", {})


def test_unwritable(tmp_path: Path) -> None:
    log = SampleLog(tmp_path / "missing" / "samples.jsonl")
    with pytest.raises(LengthwiseError):
        log.append("a", {})


def test_the_disk_has_all_samples_but_those_of_the_last_second(tmp_path, monkeypatch):
    path, on_disk, now = tmp_path / "samples.jsonl", [0], [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "fsync", lambda handle: on_disk.append(os.fstat(handle).st_size))
    log = SampleLog(path)
    synced = []
    for index, passed in enumerate((0.0, 0.4, 0.4, 0.4, 5.0)):
        now[0] += passed
        log.append(f"s{index}", {})
        synced.append(on_disk[-1] == path.stat().st_size)
    assert synced == [True, False, False, True, True]
    log.append("last", {})
    log.gather()
    assert on_disk[-1] == path.stat().st_size
