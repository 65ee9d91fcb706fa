"""Texts of white space, of nothing and of one token, for every verb and task that reads a text: no run hangs."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.evaluation.tasks import TASKS
from lengthwise.testing import tiny_text
from tests.cli.small_runs import VERBS, refused

SECONDS = 300
BLANK = " \n" * 20_000
TEXTS: dict[str, tuple[str, ...]] = {
    "nothing": ("", BLANK),
    "one token": ("a", "b", BLANK),
    "mixed": ("", BLANK, "a", BLANK + tiny_text(900), tiny_text(900, seed=1) + BLANK),
}
NO_TEXT = ("nothing", "one token")
MADE_FROM_TEXT = sorted(name for name, task in TASKS.items() if "text" in task.takes)


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise AssertionError(f"still running after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def written(folder: Path, name: str) -> tuple[object, ...]:
    folder.mkdir()
    for index, text in enumerate(TEXTS[name]):
        (folder / f"{index}.txt").write_text(text)
    return "--text", folder, "--split", "all"


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("verb", [*VERBS, "compare", "train"])
def test_verbs(lengthwise, model, recipe, tmp_path, verb, name):
    text = written(tmp_path / "odd", name)
    words = {
        "compare": (model, model, *text, "--b", "dtype=float64", "--lengths", 128, "--windows", 2),
        "train": (recipe, "--set", f"data.corpus={text[1]}", "--dry-run"),
    }.get(verb) or (model, *text, *VERBS[verb])
    outcome = lengthwise(verb, *words)
    if name in NO_TEXT:
        refused(outcome)
    else:
        assert outcome.code == 0, outcome


@pytest.mark.parametrize("name", ["one token", "mixed"])
@pytest.mark.parametrize("task", MADE_FROM_TEXT)
def test_tasks(lengthwise: Callable[..., Any], model: str, tmp_path: Path, task: str, name: str) -> None:
    text = written(tmp_path / "odd", name)
    mode = ("--mode", "greedy" if not TASKS[task].ranks else "likelihood")
    outcome = lengthwise("eval", model, task, *mode, *text, "--lengths", 4096, "--samples", 1, "--dry-run")
    if name in NO_TEXT:
        refused(outcome)
    else:
        assert outcome.code == 0, outcome
