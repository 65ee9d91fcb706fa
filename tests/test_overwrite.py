"""--overwrite: the earlier run is there until the new one has a result, whatever ends the new one before."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Results
from lengthwise.runs import RunFolder
from tests.test_runs import contents, some_results


def open_run(path: Path, kind: str = "train", **how: Any) -> RunFolder:
    return RunFolder(path, kind=kind, config={"model": "m"}, writes=("model",), **how)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with open_run(path) as folder:
        folder.samples.append("a", {"x": 1})
        (path / "model").mkdir()
        (path / "model" / "weights").write_text("weights")
        folder.write_results(some_results(1.0))
    return path


def test_a_start_interrupted_before_its_first_sample_puts_the_earlier_run_back(finished: Path):
    """Ctrl-C writes partial results without rows, and the Trainer makes its folder before its first step."""
    before = contents(finished)
    with pytest.raises(KeyboardInterrupt), open_run(finished, overwrite=True) as folder:
        (finished / "model").mkdir()
        folder.write_results(Results(kind="train", model_name="m", config={}, rows=[], partial=True))
        raise KeyboardInterrupt
    assert contents(finished) == before


@pytest.mark.parametrize("sampled", [False, True])
def test_a_side_that_has_only_begun_is_no_result(tmp_path: Path, sampled: bool):
    """A comparison of one side after the other has a run of each, which a kill leaves as it is."""
    how: Any = {"kind": "compare", "config": {}, "writes": ("a", "b")}
    path = tmp_path / "run"
    with RunFolder(path, **how) as folder, RunFolder(path / "a", kind="ppl", config={}) as side:
        side.samples.append("old", {"x": 1})
        folder.write_results(some_results(1.0))
    before = contents(path)
    with pytest.raises(ZeroDivisionError), RunFolder(path, **how, overwrite=True):
        assert not (path / "a").exists()
        with RunFolder(path / "a", kind="ppl", config={}) as side:
            side.check_inputs(INPUTS)
            side.write_results(Results(kind="ppl", model_name="m", config={}, rows=[], partial=True))
            if sampled:
                side.samples.append("new", {"x": 1})
        raise ZeroDivisionError
    assert (contents(path) == before) is not sampled


def test_a_failure_after_the_first_result_keeps_the_new_run(finished: Path):
    with pytest.raises(ZeroDivisionError), open_run(finished, overwrite=True) as folder:
        folder.samples.append("b", {"x": 2})
        raise ZeroDivisionError
    assert not (finished / "results.json").exists()
    assert not (finished / ".earlier").exists()
    with open_run(finished, resume=True) as folder:
        assert list(folder.samples) == ["b"]


def test_a_finished_run_replaces_the_earlier_one(finished: Path):
    with open_run(finished, overwrite=True) as folder:
        assert list(folder.samples) == []
        folder.write_results(some_results(2.0))
    assert set(contents(finished)) == {"config.yaml", "env.json", "results.json", "README.md"}
    assert not (finished / ".earlier").exists()
    assert not (finished / "model").exists()
    assert json.loads((finished / "results.json").read_text())["rows"][0]["value"] == 2.0


def test_a_kill_at_any_moment_before_the_first_result_loses_nothing(finished: Path, tmp_path: Path):
    """SIGKILL before the n-th change of the file system, for every n, and then the next start."""
    before = contents(finished)
    for moment in range(40):
        copy = tmp_path / f"copy-{moment}"
        shutil.copytree(finished, copy)

        def failing(copy: Path = copy) -> None:
            with open_run(copy, overwrite=True):
                raise ZeroDivisionError

        killed = is_killed(failing, moment)
        with pytest.raises(UsageError):
            open_run(copy)
        assert contents(copy) == before, moment
        if not killed:
            assert moment > 10
            return
    pytest.fail("the run never came to its end")


@pytest.mark.parametrize("failing", [False, True])
def test_a_kill_at_any_moment_of_a_start_can_be_repeated(tmp_path: Path, failing: bool):
    """SIGKILL before the n-th change of the file system, for every n, and then the same command with --resume."""
    for moment in range(40):
        path = tmp_path / f"run-{moment}"

        def started(path: Path = path) -> None:
            with open_run(path) as folder:
                folder.check_inputs(INPUTS)
                if failing:
                    raise ZeroDivisionError

        killed = is_killed(started, moment)
        with open_run(path, resume=True) as folder:
            folder.check_inputs(INPUTS)
            folder.write_results(some_results(2.0))
        if not killed:
            assert moment > 3
            return
    pytest.fail("the start never came to its end")


def is_killed(action: Callable[[], None], left: int) -> bool:
    """Whether SIGKILL ends `action` in a fork, after `left` renames, removals and new folders."""

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **others: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **others)

        return call

    child = os.fork()
    if child == 0:
        for name in ("replace", "unlink", "mkdir", "rmdir"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}, {}])
def test_a_folder_of_another_program_is_no_run(tmp_path: Path, how: dict[str, bool]):
    (tmp_path / "config.yaml").write_text("kind: Deployment\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"but config\.yaml, model"):
        open_run(tmp_path, **how)
    assert contents(tmp_path) == before
    assert not (tmp_path / ".lock").exists()


def test_a_run_of_another_kind_is_not_replaced(finished: Path):
    before = contents(finished)
    with pytest.raises(UsageError, match="train"):
        open_run(finished, kind="ppl", overwrite=True)
    assert contents(finished) == before


def test_only_what_a_run_of_its_kind_writes_is_replaced(tmp_path: Path):
    path = tmp_path / "run"
    with RunFolder(path, kind="ppl", config={}) as folder:
        folder.write_results(some_results(1.0))
    (path / "model").mkdir()
    (path / "model" / "mine").write_text("mine")
    with RunFolder(path, kind="ppl", config={}, overwrite=True) as folder:
        folder.write_results(some_results(2.0))
    assert (path / "model" / "mine").read_text() == "mine"


INPUTS = {"model": {"weights": "a", "tokenizer": "t"}, "text": {"corpus": "c"}}
