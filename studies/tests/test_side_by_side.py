from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from multiprocessing import active_children, get_context

import pytest

from lengthwise.errors import LengthwiseError
from lengthwise_studies.section3.cells import SCALES
from lengthwise_studies.side_by_side import processes_for, side_by_side


@pytest.mark.parametrize("processes", [1, 2])
def test_every_item_comes_once_with_its_own_result(processes: int) -> None:
    found = dict(side_by_side(math.sqrt, [16.0, 1.0, 4.0], processes=processes))
    assert found == {1.0: 1.0, 4.0: 2.0, 16.0: 4.0}
    assert not active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_what_the_work_raises_ends_the_loop(processes: int) -> None:
    with pytest.raises(OverflowError):
        list(side_by_side(math.exp, [1e9], processes=processes))
    assert not active_children()


def test_who_leaves_early_waits_for_nothing() -> None:
    started = time.monotonic()
    with closing(side_by_side(time.sleep, [0.0, 600.0, 600.0], processes=2)) as finished:
        assert next(finished) == (0.0, None)
    assert not active_children()
    assert time.monotonic() - started < 300, "the sleepers were ended, not waited for"


def test_a_killed_process_is_told() -> None:
    with pytest.raises(LengthwiseError):
        list(side_by_side(signal.raise_signal, [int(signal.SIGKILL)] * 2, processes=2))
    assert not active_children()


def test_processes_of_others_are_left_alone() -> None:
    other = get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    try:
        with closing(side_by_side(time.sleep, [0.0, 600.0], processes=2)) as finished:
            next(finished)
        assert active_children() == [other]
    finally:
        other.kill()
        other.join()


def test_nothing_outlives_a_killed_first_process() -> None:
    code = (
        "import os, time\n"
        "from lengthwise_studies.side_by_side import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    for _ in side_by_side(time.sleep, [0.0, 600.0, 600.0], processes=2):\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    # Its processes hold the other end of the pipe: it closes when the last of them has ended.
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.communicate(timeout=300)[0] == b""
    assert started.returncode == -signal.SIGKILL


def test_ctrl_c_is_left_to_the_first_process() -> None:
    # A signal to the process itself, as a terminal sends it to all of a group.
    items = [int(signal.SIGINT)]
    assert list(side_by_side(signal.raise_signal, items, processes=2)) == [(items[0], None)]


def test_a_process_is_for_long_cells() -> None:
    default, smoke = SCALES["default"], SCALES["smoke"]
    cores = len(os.sched_getaffinity(0))
    assert processes_for(default, 100) == cores
    assert processes_for(default, 1) == 1
    assert processes_for(replace(smoke, steps=499), 100) == 1
