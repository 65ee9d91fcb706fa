"""Text files and folders that cannot be read as they are: refused by name and line, or counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.text import load_corpus


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"text": ' + "9" * 5000 + "}", "line 2 "),
        ('{"text": ' + "[" * 200_000, "line 2 "),
        ('{"text": "' + "\\ud800" + '"}', "jsonl:2"),
        ("not json", "line 2 "),
        ("[1]", "line 2 "),
        ('{"text": 1}', "line 2: 'text' is a int"),
        ('{"txt": "a"}', "(?s)line 2 .*'text'.*'txt'"),
    ],
    ids=["integer", "nesting", "surrogate", "syntax", "list", "number", "field"],
)
def test_a_line_that_holds_no_text_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a b c"}\n' + line + "\n")
    with pytest.raises(UsageError, match=says) as refused:
        load_corpus(str(tmp_path / "rows.jsonl"), split="all")
    assert "rows.jsonl" in refused.value.problem


@pytest.mark.parametrize(
    "name", ["", " ", "\n", "x" * 300, "~nobody-of-this-name/x.txt", "/" + "y" * 300 + ".txt"]
)
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(UsageError):
        load_corpus(name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")

    def closed(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(UsageError, match=r"a\.txt"):
        load_corpus(str(tmp_path), split="all")


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def scan(path: str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(UsageError, match="closed"):
        load_corpus(str(tmp_path), split="all")


def test_a_folder_named_as_a_file_and_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(UsageError):
        load_corpus(str(tmp_path / "folder.txt"))
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UsageError):
        load_corpus(str(tmp_path / "pipe.txt"))


def test_a_file_name_that_is_no_utf8(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("a")
    with pytest.raises(UsageError):
        load_corpus(str(tmp_path), split="all")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_bytes(b"one two")
    plain = load_corpus(str(tmp_path / "plain.txt"))
    (tmp_path / "plain.txt").write_bytes(b"\xef\xbb\xbfone two")
    marked = load_corpus(str(tmp_path / "plain.txt"))
    assert marked.documents == plain.documents
    assert marked.fingerprint == plain.fingerprint
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one two"}\n')
    assert load_corpus(str(tmp_path / "rows.jsonl")).documents == {"rows.jsonl:1": "one two"}
