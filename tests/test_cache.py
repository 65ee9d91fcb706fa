import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import build_once, cache_dir


def test_cache_dir_precedence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("LENGTHWISE_CACHE", "~/own")
    assert cache_dir() == Path("/home/someone/own")
    monkeypatch.delenv("LENGTHWISE_CACHE")
    assert cache_dir() == Path("/xdg/lengthwise")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/xdg")
    assert cache_dir() == Path("/home/someone/xdg/lengthwise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path("/home/someone/.cache/lengthwise")


@pytest.mark.parametrize("name", ["LENGTHWISE_CACHE", "XDG_CACHE_HOME", ""])
def test_the_home_of_nobody(name: str, monkeypatch: pytest.MonkeyPatch):
    """A user without a name in a container has none unless HOME says so."""
    for each in ("LENGTHWISE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(each, raising=False)
    if name:
        monkeypatch.setenv(name, "~no-such-user/cache")
    else:
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)
    with pytest.raises(UsageError, match="set LENGTHWISE_CACHE"):
        cache_dir()


def write_whole(folder: Path) -> None:
    (folder / "file").write_text("whole")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


def test_what_is_there_is_used_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "thing"
    build_once(path, write_whole, what="a thing")
    monkeypatch.setattr("lengthwise.files._VERIFIED", set())
    monkeypatch.setattr("filelock.FileLock", lambda _: pytest.fail("a shared cache may be read-only"))
    assert build_once(path, lambda _: pytest.fail("built again"), what="a thing") == path


def run(code: str, folder: Path) -> subprocess.Popen[bytes]:
    script = "from pathlib import Path\nfrom lengthwise.files import build_once\n" + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", script], cwd=folder)


def test_a_killed_build_leaves_nothing_that_counts_and_the_next_call_cleans_up(tmp_path: Path):
    code = """
        import os, signal
        def build(folder):
            (folder / "file").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
        build_once(Path("thing"), build, what="a thing")
    """
    assert run(code, tmp_path).wait(30) == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.endswith(".part")
    build_once(tmp_path / "thing", write_whole, what="a thing")
    assert names(tmp_path) == {"thing"}
    assert (tmp_path / "thing" / "file").read_text() == "whole"


def test_processes_at_the_same_time_build_once(tmp_path: Path):
    code = """
        import time
        def build(folder):
            with open("builds", "a") as log:
                log.write("x")
            time.sleep(0.3)
            (folder / "file").write_text("whole")
        build_once(Path("thing"), build, what="a thing")
        assert Path("thing/file").read_text() == "whole"
    """
    assert [process.wait(30) for process in [run(code, tmp_path) for _ in range(3)]] == [0, 0, 0]
    assert (tmp_path / "builds").read_text() == "x"


def test_a_lock_that_is_held_too_long_is_an_error(tmp_path: Path):
    def build(_: Path) -> None:
        with pytest.raises(LengthwiseError, match="a thing"):
            build_once(tmp_path / "thing", write_whole, what="a thing", wait_seconds=0.05)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "thing", build, what="a thing")


def test_a_cache_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LengthwiseError, match="LENGTHWISE_CACHE"):
        build_once(tmp_path / "file" / "thing", write_whole, what="a thing")
