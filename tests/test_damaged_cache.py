"""What was built once is verified before it is used: same-size damage does not change numbers in silence."""

import logging
import os
from pathlib import Path

import pytest

from lengthwise import files
from lengthwise.errors import LengthwiseError
from lengthwise.files import build_once
from lengthwise.samples import SampleLog


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified things are remembered within a process."""
    monkeypatch.setattr(files, "_VERIFIED", set())


def forget() -> None:
    files._VERIFIED.clear()


def build(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "weights").write_bytes(bytes(1000))
    (folder / "sub" / "config").write_text("x")
    (folder / "weights").chmod(0o600)


def made(tmp_path: Path) -> Path:
    return build_once(tmp_path / "cache" / "thing", build, what="the thing")


@pytest.mark.parametrize("file", ["weights", "sub/config", "complete.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "nested"])
def test_damage_is_built_again_with_a_warning(tmp_path, file, damage, caplog):
    path = made(tmp_path)
    whole = {name: (path / name).read_bytes() for name in ("weights", "sub/config", "complete.json")}
    data = bytearray(whole[file])
    if damage == "flip":
        data[len(data) // 2] ^= 1
    (path / file).write_bytes(
        b"[" * 5000 if damage == "nested" else data[: len(data) // 2 if damage == "cut" else None]
    )
    if damage == "gone":
        (path / file).unlink()
    forget()
    with caplog.at_level(logging.WARNING, "lengthwise"):
        assert made(tmp_path) == path
    assert {name: (path / name).read_bytes() for name in whole} == whole
    assert len(caplog.records) == 1


def test_what_was_verified_is_read_again_after_a_change_alone(tmp_path, monkeypatch):
    """Hashing a converted model takes minutes; each process of a run would wait for it."""
    read: list[str] = []
    hashed = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: read.append(path.name) or hashed(path))
    path = made(tmp_path)
    assert sorted(read) == ["config", "weights"], "sealed"
    read.clear()
    forget()
    made(tmp_path)
    assert read == []
    status = (path / "weights").stat()
    (path / "weights").write_bytes(bytes(1000))
    # A tool that restores the time cannot restore when it did.
    os.utime(path / "weights", ns=(status.st_atime_ns, status.st_mtime_ns))
    for expected in (["config", "weights"], []):
        read.clear()
        forget()
        made(tmp_path)
        assert sorted(read) == expected


def test_files_have_the_modes_that_the_umask_allows(tmp_path: Path):
    before = os.umask(0o027)
    try:
        path = made(tmp_path)
    finally:
        os.umask(before)
    assert (path / "weights").stat().st_mode & 0o777 == 0o640
    assert (path / "sub").stat().st_mode & 0o777 == 0o750
    assert path.stat().st_mode & 0o777 == 0o750


def test_a_damaged_sample_is_named(tmp_path: Path):
    path = tmp_path / "samples.jsonl"
    SampleLog(path).append("first", {"loss": 1.5})
    SampleLog(path).append("second", {"loss": 2.5, "text": 'with ", "checksum": 3} in it'})
    assert SampleLog(path)["second"] == {"loss": 2.5, "text": 'with ", "checksum": 3} in it'}
    path.write_text(path.read_text().replace("2.5", "2.6"))
    with pytest.raises(LengthwiseError, match="line 2"):
        SampleLog(path)
