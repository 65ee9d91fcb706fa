"""A file that cannot be written in full: the error names it, nothing half-made stays."""

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.checkpoints.saving import save_extended, save_whole
from lengthwise.errors import LengthwiseError
from lengthwise.files import atomic_write_bytes, build_once
from lengthwise.measure import Misalignment, run
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.small_measurements import TEXTS


def error_with_files_of(most: int, action: Callable[[], object]) -> str:
    """The error of `action` in a fork whose files may have at most `most` bytes."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        said = "no error"
        try:
            # Python keeps half of the bytecode of a module that is imported here, and all later tests read it.
            sys.dont_write_bytecode = True
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            action()
        except LengthwiseError as error:
            said = f"{error.exit_code} {error}"
        except BaseException as error:
            said = f"a bug: {error!r}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said


def test_the_old_file_stays(tmp_path: Path):
    path = tmp_path / "results.json"
    path.write_text("old")
    said = error_with_files_of(1000, lambda: atomic_write_bytes(path, b"x" * 5000))
    assert said.startswith(f"1 cannot write {path}: ")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_measuring(tmp_path: Path):
    def measured() -> None:
        run(
            Misalignment(lengths=(16,), windows=40),
            (tiny_llama(), tiny_tokenizer()),
            TEXTS,
            out=tmp_path / "run",
        )

    said = error_with_files_of(4000, measured)
    assert said.startswith(f"1 cannot write {tmp_path}/run/samples.jsonl"), said
    assert not (tmp_path / "run" / "results.json").exists()
    kept = (tmp_path / "run" / "samples.jsonl").read_bytes().splitlines(keepends=True)
    assert len(kept) > 1
    assert all(json.loads(line) for line in kept[:-1]), "what was written before is kept"


@pytest.mark.parametrize("most", [0, 3000, 20_000])
def test_saving_a_model(tmp_path: Path, most: int):
    said = error_with_files_of(most, lambda: save_whole(tiny_llama(), tiny_tokenizer(), tmp_path / "model"))
    assert said.startswith("1 "), said
    assert str(tmp_path) in said
    assert list(tmp_path.iterdir()) == []


def test_extending(tmp_path: Path):
    save_tiny_model(tmp_path / "model")
    said = error_with_files_of(
        20_000, lambda: save_extended(str(tmp_path / "model"), "pi", tmp_path / "out", factor=2)
    )
    assert said.startswith("1 "), said
    assert str(tmp_path / "out") in said or ".out." in said
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_copy(tmp_path: Path):
    """As the model of the package is put into the cache: the error of shutil is a list of all files."""
    save_tiny_model(tmp_path / "model")

    def build(folder: Path) -> None:
        shutil.copytree(tmp_path / "model", folder, dirs_exist_ok=True)

    said = error_with_files_of(100, lambda: build_once(tmp_path / "thing", build, what="the thing"))
    assert said.startswith(f"1 cannot write {tmp_path}/thing: [Errno 27] File too large")
    assert said.splitlines()[0].count("File too large") == 1
    assert not (tmp_path / "thing").exists()


def test_a_conversion(tmp_path: Path):
    """As a GGUF file is converted: save_pretrained into the folder that build_once gives."""

    def build(folder: Path) -> None:
        tiny_llama().save_pretrained(folder)

    said = error_with_files_of(20_000, lambda: build_once(tmp_path / "thing", build, what="the thing"))
    assert said.startswith("1 "), said
    assert str(tmp_path) in said
    assert not (tmp_path / "thing").exists()
