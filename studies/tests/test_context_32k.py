"""The study of a model with 32,768 tokens: its commands are the command line's, its lanes run them as it says."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.cli.main import command_line
from lengthwise_studies.context_32k.__main__ import Lanes
from lengthwise_studies.context_32k.jobs import SCALES, Job, jobs
from lengthwise_studies.context_32k.texts import joined

WELL, WRONG = "pass", "raise SystemExit(3)"


def job(name: str, lane: str, code: str = WELL, **how: object) -> Job:
    return Job(name, lane, ("-c", code), **how)  # type: ignore[arg-type]


def run(out: Path, *some: Job, seconds: float = 30.0) -> dict[str, str]:
    """How each job ended, by its name, in the order in which they ended."""
    Lanes(out, time.monotonic() + seconds).run(list(some))
    return {
        line["job"]: line["ended"] for line in map(json.loads, (out / "jobs.jsonl").read_text().splitlines())
    }


@pytest.mark.parametrize("scale", SCALES)
def test_every_command_is_one_of_the_command_line(scale: str, tmp_path: Path) -> None:
    every = list(jobs(SCALES[scale], tmp_path / "texts", tmp_path))
    assert len({one.name for one in every}) == len(every) or SCALES[scale].model == SCALES[scale].other
    of_ours = [one.words[2:] for one in every if one.words[:2] == ("-m", "lengthwise")]
    assert {words[0] for words in of_ours} == {"limit", "compare", "eval", "extend", "doctor"}
    for words in of_ours:
        command_line(words).parse_args(list(words), exit_on_error=False, print_error=False)


def test_a_lane_keeps_its_order_and_a_failed_job_ends_no_other(tmp_path: Path) -> None:
    ended = run(tmp_path, job("a", "x", WRONG), job("b", "x"), job("c", "x", after=("d",)), job("d", "y"))
    assert ended == {"a": "with 3", "b": "well", "c": "well", "d": "well"}
    order = list(ended)
    assert order.index("a") < order.index("b") < order.index("c")
    assert order.index("d") < order.index("c")


def test_what_ended_well_is_not_run_again(tmp_path: Path) -> None:
    run(tmp_path, job("a", "x"), job("b", "x", WRONG))
    assert run(tmp_path, job("a", "x", WRONG), job("b", "x")) == {"a": "well", "b": "well"}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored, in what they start too; `main` has not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_at_the_end_of_its_time_a_job_is_interrupted_and_keeps_what_it_has(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code = (
        "import pathlib, time\n"
        f"try:\n    pathlib.Path({str(kept)!r}).write_text('begun')\n    time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(kept)!r}).write_text('interrupted')"
    )
    ended = run(tmp_path, job("a", "x", code, seconds=3.0), job("b", "x"))
    assert ended == {"a": "interrupted", "b": "well"}
    assert kept.read_text() == "interrupted"
    assert run(tmp_path / "over", job("a", "x"), seconds=-1.0) == {"a": "not begun"}


def test_neighbours_of_a_package_are_joined_until_they_are_long_enough() -> None:
    documents = {"a/1": "x " * 3, "a/2": "y " * 3, "a/3": "z " * 9, "b/1": "u " * 2, "b/2": "v " * 4}

    def words(text: str, *, add_special_tokens: bool) -> SimpleNamespace:
        assert not add_special_tokens
        return SimpleNamespace(input_ids=text.split())

    found = dict(joined(documents, words, 6))
    assert {name: text.split() for name, text in found.items()} == {
        "a-1-and-1-more": [*"xxx", *"yyy"],
        "a-3-and-0-more": [*"zzzzzzzzz"],
        "b-1-and-1-more": [*"uu", *"vvvv"],
    }
