"""Run folders: one folder, fixed file names, safe against interruption and against each other.

config.yaml     resolved settings; running them again repeats the run
results.json    the results contract (`lengthwise.results`), written last
samples.jsonl   finished samples, append-only: what `--resume` continues from
metrics.jsonl   training log, one line a step
env.json        versions, machine, command
figures/        pictures
report.html     one self-contained page
README.md       what this folder is
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from lengthwise.config import parse_yaml, read_yaml, to_yaml
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import atomic_write_json, atomic_write_text, cannot_write
from lengthwise.provenance import environment
from lengthwise.results import Results, read_results
from lengthwise.samples import SampleLog

_OURS = (
    "config.yaml",
    "results.json",
    "samples.jsonl",
    "metrics.jsonl",
    "env.json",
    "figures",
    "report.html",
    "README.md",
    "checkpoints",
    "model",
    "parts",
)


class RunFolder:
    """An output folder held by one run at a time. Use as a context manager.

    Args:
        path: exactly the folder that is used.
        kind: the verb or study that writes it.
        config: resolved settings, plain values only.
        resume: continue an unfinished run of the same settings (a finished one is only read).
        overwrite: throw away what an earlier run left here.

    Raises:
        UsageError: the folder holds a run and neither flag was given; both flags were; the settings of
            the run to resume differ; the folder holds something that is not a run.
        LengthwiseError: another process is using the folder, or it cannot be written.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        kind: str,
        config: Mapping[str, Any],
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path)
        self.kind = kind
        # As it will be read back (tuples become lists), so that a resumed run compares equal.
        self.config = parse_yaml(to_yaml(config), source="settings")
        if resume and overwrite:
            raise UsageError("--resume and --overwrite exclude each other", fix="give one of them")
        self._check_shape()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise LengthwiseError(
                f"{self.path} is in use by another run",
                fix="wait for it to end, or choose another --out",
            ) from error
        except OSError as error:
            raise cannot_write(self.path, error) from error
        try:
            self._claim(resume=resume, overwrite=overwrite)
            self.samples = SampleLog(self.path / "samples.jsonl")
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._fresh:
            self._forget_false_start()
        self._lock.release()

    @property
    def finished(self) -> bool:
        """Whether whole (not partial) results are there."""
        return is_finished(self.path)

    def read_results(self) -> Results:
        """The results written here."""
        return read_results(self.path / "results.json")

    def write_results(self, results: Results) -> None:
        """Write `results.json` and the folder's README."""
        results.config = self.config
        results.provenance = {**environment(), **results.provenance}
        atomic_write_text(self.path / "results.json", results.to_json())
        atomic_write_text(self.path / "README.md", self._readme(results))

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a") as stream:
                stream.write(json.dumps(dict(record)) + "\n")
        except OSError as error:
            raise cannot_write(path, error) from error

    def _check_shape(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file", expected="a folder", fix="choose another --out")
        if self.path.is_dir():
            names = self._names()
            if names and "config.yaml" not in names:
                raise UsageError(
                    f"{self.path} holds files that are no run of lengthwise: {', '.join(sorted(names)[:5])}",
                    expected="an empty or new folder, or an earlier run",
                    fix="choose another --out",
                )

    def _names(self) -> set[str]:
        """What is in the folder, but for the lock and the temporary files of a start that was killed."""
        return {
            entry.name for entry in self.path.iterdir() if entry.name != ".lock" and entry.suffix != ".part"
        }

    def _claim(self, *, resume: bool, overwrite: bool) -> None:
        config_path = self.path / "config.yaml"
        if config_path.exists():
            if overwrite:
                self._clear()
            elif resume:
                self._check_same_run(read_yaml(config_path))
            else:
                state = "a finished run" if self.finished else "an unfinished run"
                raise UsageError(
                    f"{self.path} holds {state}",
                    expected="an empty or new folder",
                    fix="--resume continues (or reads) it, --overwrite starts again, or choose another --out",
                )
        self._fresh = not config_path.exists()
        if self._fresh:
            atomic_write_text(config_path, to_yaml({"kind": self.kind, **self.config}))
        if not (self.path / "env.json").exists():
            atomic_write_json(self.path / "env.json", environment())

    def _check_same_run(self, before: dict[str, Any]) -> None:
        now = {"kind": self.kind, **self.config}
        differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if differing:
            shown = "; ".join(f"{k}: {before.get(k)!r} there, {now.get(k)!r} now" for k in differing[:5])
            raise UsageError(
                f"{self.path} holds a run with other settings ({shown})",
                fix="use the same settings to resume, --overwrite to start again, or another --out",
            )

    def _forget_false_start(self) -> None:
        """A run that failed before anything came of it (a mistyped model) leaves no run to be in the way."""
        if not self._names() - {"config.yaml", "env.json"}:
            self._clear()

    def _clear(self) -> None:
        # config.yaml goes last: stopped half-way, the folder is still known as a run.
        for name in reversed(_OURS):
            entry = self.path / name
            try:
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
            except OSError as error:
                raise cannot_write(entry, error) from error

    def _readme(self, results: Results) -> str:
        state = "partial" if results.partial else "finished"
        notes = "".join(f"- {note}\n" for note in results.notes)
        return (
            f"# lengthwise {self.kind}: {results.model_name} ({state})\n\n"
            "`results.json` holds the numbers, `config.yaml` the settings, `env.json` the versions. "
            "`lengthwise report` on this folder makes `report.html`.\n" + (f"\n{notes}" if notes else "")
        )


def is_finished(path: Path) -> bool:
    """Whether the folder at `path` holds whole (not partial) results."""
    file = path / "results.json"
    return file.exists() and not read_results(file).partial


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, by step; a torn last line of a killed run is left out.

    A step that was logged twice (before and after a resume) counts with its last line.
    """
    by_step: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                by_step[record["step"]] = record
    return [by_step[step] for step in sorted(by_step)]
