"""One run shared by the processes of torchrun: each does some of the samples, and rank 0 writes.

    torchrun --nproc-per-node 4 -m lengthwise ppl MODEL --out runs/ppl

Every process takes whole batches, each the batch of a run in one process, in turn. A finished sample goes to rank 0
through torchrun's store and is appended to the one log, so a stopped run continues with any number of processes.
At the end every process returns the results that rank 0 made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.processes import is_main_process, process_count
from lengthwise.results import Results, parse_results
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog

_PAUSE_SECONDS = 0.02
_RUNS = itertools.count()


def shared_run(
    run: Callable[[RunFolder | None, SampleLog], Results],
    *,
    out: Path | str | None,
    kind: str,
    config: Mapping[str, Any],
    resume: bool,
    overwrite: bool,
    split: bool = True,
) -> Results:
    """The results of `run`, which fills the log that it gets, in one process or in those of torchrun.

    Args:
        run: takes the run folder (None where this process writes none) and the log of finished samples.
        out, kind, config, resume, overwrite: as `RunFolder`; without `out` nothing is written.
        split: whether the processes share the samples. If not, each does all of them, as a model that is spread
            over the processes needs.

    Raises:
        UsageError, LengthwiseError: as `RunFolder` and `run`.
    """
    if out is None and (resume or overwrite):
        raise UsageError("--resume and --overwrite need the folder of an earlier run", fix="add --out")
    store = _new_store() if process_count() > 1 else None
    if store is not None and not is_main_process():
        log = SampleLog()
        log.store = store if split else None
        samples = _received(store, "samples at the start")
        if samples is not None:
            log.update(samples)
            run(None, log)
        return parse_results(_received(store, "results"))
    with contextlib.ExitStack() as stack:
        folder = None
        if out is not None:
            folder = stack.enter_context(
                RunFolder(out, kind=kind, config=config, resume=resume, overwrite=overwrite)
            )
        log = SampleLog() if folder is None else folder.samples
        finished = folder.read_results() if folder is not None and folder.finished else None
        if store is not None:
            store.set("samples at the start", json.dumps(None if finished else log))
            log.store = store if split else None
        results = finished or run(folder, log)
        if store is not None:
            store.set("results", results.to_json())
        return results


def process_facts() -> dict[str, int]:
    """What a result records of the processes: their number, where there were several."""
    return {"processes": process_count()} if process_count() > 1 else {}


def _received(store: Any, name: str) -> Any:
    """The plain value that rank 0 sets; waits for it."""
    # Short waits in place of the store's own, which Ctrl-C does not end.
    while not store.check([name]):
        time.sleep(_PAUSE_SECONDS)
    return json.loads(store.get(name))


def _new_store() -> Any:
    """A place of its own in torchrun's store for each run: a program may share one run after another."""
    from torch.distributed.distributed_c10d import PrefixStore

    return PrefixStore(f"lengthwise/{next(_RUNS)}", _torchrun_store())


@functools.cache
def _torchrun_store() -> Any:
    """The store of the processes. Kept, because without torchrun's agent rank 0 holds it for the others."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return store
