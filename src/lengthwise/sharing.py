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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lengthwise.errors import UsageError
from lengthwise.processes import is_main_process, process_count, process_rank
from lengthwise.results import Results, parse_results
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog

T = TypeVar("T")
_PAUSE_SECONDS = 0.02


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
    team = Team() if process_count() > 1 else None
    if team is not None and not is_main_process():
        begun = team.receive("begun")
        if not begun["finished"]:
            run(None, SharedLog(team, SampleLog.of(begun["samples"]), split=split))
        return parse_results(team.receive("results"))
    with contextlib.ExitStack() as stack:
        folder = None
        if out is not None:
            folder = stack.enter_context(
                RunFolder(out, kind=kind, config=config, resume=resume, overwrite=overwrite)
            )
        log = SampleLog() if folder is None else folder.samples
        finished = folder is not None and folder.finished
        if team is not None:
            team.publish("begun", {"finished": finished, "samples": {key: log[key] for key in log}})
            log = SharedLog(team, log, split=split)
        if folder is not None and finished:
            results = folder.read_results()
        else:
            results = run(folder, log)
        if team is not None:
            team.publish("results", json.loads(results.to_json()))
        return results


class Team:
    """The processes of one torchrun, which talk through its store."""

    _calls = itertools.count()

    def __init__(self) -> None:
        from torch.distributed.distributed_c10d import PrefixStore

        self.rank, self.size = process_rank(), process_count()
        # A program may share one run after another.
        self._store = PrefixStore(f"lengthwise/{next(self._calls)}", _store())
        self._sent = 0
        self._received = dict.fromkeys(range(1, self.size), 0)

    def publish(self, name: str, value: Any) -> None:
        """Let every process `receive` a plain value."""
        self._store.set(name, json.dumps(value))

    def receive(self, name: str) -> Any:
        """The value that a process publishes; waits for it."""
        # Short waits in place of the store's own, which Ctrl-C does not end.
        while not self._store.check([name]):
            time.sleep(_PAUSE_SECONDS)
        return json.loads(self._store.get(name))

    def send(self, key: str, record: dict[str, Any]) -> None:
        """Hand a finished sample to rank 0."""
        self.publish(f"sample/{self.rank}/{self._sent}", [key, record])
        self._sent += 1

    def arrived(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The samples that other processes have sent since the last call. For rank 0."""
        for rank in self._received:
            while self._store.check([name := f"sample/{rank}/{self._received[rank]}"]):
                key, record = json.loads(self._store.get(name))
                self._store.delete_key(name)
                self._received[rank] += 1
                yield key, record

    def finish(self) -> None:
        """Say that all samples of this process are sent."""
        self.publish(f"sent/{self.rank}", self._sent)

    def rest(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The samples that are still to come, to the last; waits for them. For rank 0."""
        while True:
            complete = all(self._store.check([f"sent/{rank}"]) for rank in self._received)
            yield from self.arrived()
            if complete:
                return
            time.sleep(_PAUSE_SECONDS)


@functools.cache
def _store() -> Any:
    """The store of the processes. Kept, because without torchrun's agent rank 0 holds it for the others."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return store


class SharedLog(SampleLog):
    """The log of one process of a team: rank 0 writes to `log` what all of them finish.

    Until `gather` it shows a process only what was there at the start and what it did itself, so that all processes
    agree on what is left to do, however fast the others are.
    """

    def __init__(self, team: Team, log: SampleLog, *, split: bool) -> None:
        super().__init__()
        self._team = team
        self._log = log
        self._split = split
        self._records = dict(log._records)

    def summarised(self, summarise: Callable[[SampleLog], T]) -> T:
        """As the log."""
        return self._log.summarised(summarise)

    def share(self, items: Sequence[T], *, at_once: int = 1) -> list[T]:
        """Every n-th batch of `at_once` items, n processes taking turns."""
        if not self._split:
            return list(items)
        batches = [items[start : start + at_once] for start in range(0, len(items), at_once)]
        return [item for batch in batches[self._team.rank :: self._team.size] for item in batch]

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Add a finished sample, here or at rank 0, and what others have sent meanwhile."""
        self._log.append(key, record)
        self._records[key] = record
        if not self._split:
            return
        if is_main_process():
            self._take(self._team.arrived())
        else:
            self._team.send(key, record)

    def gather(self) -> None:
        """Wait until rank 0 has the samples of all processes."""
        if not self._split:
            return
        if is_main_process():
            self._take(self._team.rest())
            self._records = dict(self._log._records)
        else:
            self._team.finish()

    def _take(self, samples: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for key, record in samples:
            self._log.append(key, record)


def process_facts() -> dict[str, int]:
    """What a result records of the processes: their number, where there were several."""
    return {"processes": process_count()} if process_count() > 1 else {}
