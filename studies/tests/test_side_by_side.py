import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import active_children, get_context

import pytest

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise_studies.fan_out import processes_for, side_by_side

run = partial(side_by_side, what="items")


@pytest.mark.parametrize("processes", [1, 2])
def test_every_item_comes_once_with_its_own_result(processes: int) -> None:
    found: dict[float, float] = {}
    run(math.sqrt, [16.0, 1.0, 4.0], found.__setitem__, processes=processes)
    assert found == {1.0: 1.0, 4.0: 2.0, 16.0: 4.0}
    assert not active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_what_the_work_raises_ends_the_others(processes: int) -> None:
    with pytest.raises(OverflowError):
        run(math.exp, [1e9], processes=processes)
    assert not active_children()


def test_ctrl_c_ends_the_work_in_progress_and_no_process_of_others() -> None:
    other = get_context("spawn").Process(target=time.sleep, args=(600,))
    other.start()
    started = time.monotonic()

    def stop(item: float, result: None) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(Interrupted, match="after 3 of 6 items"):
            run(time.sleep, [0.0, 600.0, 600.0], stop, processes=2, before=3)
        assert active_children() == [other]
    finally:
        other.kill()
        other.join()
    assert time.monotonic() - started < 300, "the sleepers were ended, not waited for"


def test_a_killed_process_is_told() -> None:
    with pytest.raises(LengthwiseError):
        run(signal.raise_signal, [int(signal.SIGKILL)] * 2, processes=2)
    assert not active_children()


def test_nothing_outlives_a_killed_first_process() -> None:
    code = (
        "import os, time\n"
        "from lengthwise_studies.fan_out import side_by_side\n"
        "if __name__ == '__main__':\n"
        "    end = lambda *_: os.kill(os.getpid(), 9)\n"
        "    side_by_side(time.sleep, [0.0, 600.0, 600.0], end, processes=2, what='items')\n"
    )
    # Its processes hold the other end of the pipe: it closes when the last of them has ended.
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.communicate(timeout=300)[0] == b""
    assert started.returncode == -signal.SIGKILL


def test_ctrl_c_is_left_to_the_first_process() -> None:
    # A signal to the process itself, as a terminal sends it to all of a group.
    found: list[int] = []
    run(signal.raise_signal, [int(signal.SIGINT)], lambda item, _: found.append(item), processes=2)
    assert found == [signal.SIGINT]


def test_a_process_is_for_long_cells() -> None:
    cores = len(os.sched_getaffinity(0))
    assert [processes_for(500, 100), processes_for(500, 1), processes_for(499, 100)] == [cores, 1, 1]
