import os
from pathlib import Path

import pytest

from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_bytes, atomic_write_json, atomic_write_text


def test_replaces_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    atomic_write_text(path, "a long first text")
    atomic_write_text(path, "ä")
    assert path.read_bytes() == "ä".encode()


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        atomic_write_bytes(tmp_path / "f", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644


def test_nan_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    atomic_write_json(path, 1)
    with pytest.raises(ValueError, match="nan"):
        atomic_write_json(path, {"x": float("nan")})
    assert path.read_text() == "1\n"


def test_path_under_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LengthwiseError, match="file/inner/x") as caught:
        atomic_write_text(tmp_path / "file" / "inner" / "x", "text")
    assert caught.value.exit_code == 1
    assert "--out" in caught.value.fix
