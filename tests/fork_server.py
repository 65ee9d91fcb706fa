"""Runs programs in forks of one process that has done the heavy imports, so that a start takes no ten seconds.

It computes nothing itself and has no threads that a fork would miss. Each line on standard input is a request:
what to start (answered by the process id), or whose end is wanted (answered by its exit code as of subprocess, or
null where `poll` finds it running). `conftest.py` has the other side.
"""

import json
import os
import runpy
import signal
import sys
import traceback
from typing import Any


def become(request: dict[str, Any]) -> int:
    """In the fork: the program, as if it had been started by itself; its exit code."""
    try:
        for file, descriptor in ((os.devnull, 0), (request["out"], 1), (request["err"], 2)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        # A shell that starts the tests in the background would have Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = request["words"]
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def answer(request: dict[str, Any]) -> int | None:
    """What a request is answered with."""
    if "words" in request:
        child = os.fork()
        if child == 0:
            os._exit(become(request))
        return child
    done, status = os.waitpid(request["process"], os.WNOHANG if request["poll"] else 0)
    return os.waitstatus_to_exitcode(status) if done else None


def import_all() -> None:
    """The heavy imports, once for all forks."""
    import peft  # noqa: F401
    import torch

    import lengthwise.cli.main
    import lengthwise.evaluation.evaluate
    import lengthwise.measure.runner
    import lengthwise.training.training_run  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    import_all()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
