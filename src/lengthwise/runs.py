"""Run folders: one folder, fixed file names, safe against interruption and against each other.

config.yaml     resolved settings; a run with the same settings repeats it
results.json    the results contract (`lengthwise.results`), written last
samples.jsonl   finished samples, append-only: what `--resume` continues from
inputs.json     fingerprints of the model and the text that the samples are of
metrics.jsonl   training log, one line a step
env.json        versions, machine, command
figures/        pictures
report.html     one self-contained page
card/           one picture to share
README.md       what this folder is
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.files import (
    atomic_write_json,
    atomic_write_text,
    cannot_write,
    named_path,
    read_json,
    writing,
)
from lengthwise.machine import environment
from lengthwise.results import Results, read_results
from lengthwise.run_files import finished_results, read_inputs
from lengthwise.samples import SampleLog, other_version
from lengthwise.yaml_text import parse_yaml, read_yaml, to_yaml

# What a start writes before its first result, and what every run may write besides. env.json tells whose folder this
# is: it comes first and goes last.
_STARTED = ("inputs.json", "config.yaml", "env.json")
_COMMON = ("results.json", "samples.jsonl", "figures", "report.html", "card", "README.md")
# Where --overwrite keeps the earlier run until the new one has a first result.
_EARLIER = ".earlier"
# What no number depends on: a run may be continued with another one.
_OF_THE_MOMENT = ("patience", "wait", "concurrency", "header")
# By how much a number in a fingerprint may change: what a server computes in 16 bits.
_ROUNDING = 0.05


class RunFolder:
    """An output folder that one run at a time may hold. Use it as a context manager.

    Args:
        path: exactly the folder that is used.
        kind: the verb that writes it.
        config: resolved settings, plain values only.
        writes: names of files and folders that runs of this kind write besides the common ones.
        resume: continue an unfinished run of the same settings; read a finished one.
        overwrite: replace the earlier run here, of the same kind. It is kept in `.earlier` until the new run has
            its first result, and put back if the new one fails before.

    Raises:
        UsageError: the folder holds a run and neither flag was given; both flags were; the settings of
            the run to resume differ; the folder holds something else, or a run of another kind.
        LengthwiseError: another process is using the folder, or it cannot be written.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        kind: str,
        config: Mapping[str, Any],
        writes: tuple[str, ...] = (),
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = named_path(path, what="--out")
        self.kind = kind
        # config.yaml is moved first and back last: without it no run has begun here.
        self._ours = ("config.yaml", *_COMMON, "inputs.json", "env.json", *writes)
        # As it will be read back (tuples become lists), so that a resumed run compares equal.
        self.config = parse_yaml(to_yaml(config), source="settings")
        if resume and overwrite:
            raise UsageError("--resume and --overwrite exclude each other", fix="give one of them")
        if self.path.is_file():
            raise UsageError(f"{self.path} is a file", expected="a folder", fix="choose another --out")
        lock = self.path / ".lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            is_new = not lock.exists()
            self._lock = FileLock(lock)
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
            if is_new:
                lock.unlink()
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                shutil.rmtree(self.path / _EARLIER, ignore_errors=True)
            else:
                self._settle()
                # A run that failed before anything came of it (a mistyped model) leaves no run to be in the way.
                if self._fresh and not self._names().difference(_STARTED):
                    self._remove(_STARTED)
        finally:
            self._lock.release()

    @property
    def finished(self) -> Results | None:
        """The whole (not partial) results with the records that they are made from, if they are here."""
        results = finished_results(self.path)
        if results is not None:
            results.records = dict(self.samples)
        return results

    def write_results(self, results: Results) -> None:
        """Write `results.json` and the folder's README."""
        results.config = self.config
        # Now that the model is loaded: torch's threads and devices, the commit of a hub model.
        machine, model = environment(), results.provenance.get("model")
        source = model.get("source") if isinstance(model, dict) else model
        atomic_write_json(self.path / "env.json", {**machine, "model": source})
        results.provenance = {**machine, **results.provenance}
        state = "partial" if results.partial else "finished"
        atomic_write_text(self.path / "results.json", results.to_json())
        atomic_write_text(
            self.path / "README.md",
            f"# lengthwise {self.kind}: {results.model_name} ({state})\n\n"
            "`results.json` holds the numbers, `config.yaml` the settings, `env.json` the versions. "
            "`report.html` is its page; if there is none, `lengthwise report` makes one.\n\n"
            + "".join(f"- {note}\n" for note in results.notes),
        )

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Add one line to `metrics.jsonl`."""
        path = self.path / "metrics.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")

    def check_inputs(self, inputs: dict[str, dict[str, Any]], *, all_of_them: bool = True) -> None:
        """Record what the run reads: `{"model": fingerprints, "text": fingerprints}`; numbers may round otherwise.

        Without `all_of_them` these are what is known without reading, of a run that is finished: then the files of a
        model stand for it, if the run recorded them. UsageError if the run to resume was begun with others.
        """
        path = self.path / "inputs.json"
        if not path.exists():
            if all_of_them:
                atomic_write_json(path, inputs)
            return
        before = read_inputs(self.path)
        for name, prints in inputs.items():
            known = before.get(name, {})
            if lacking := [part for part in prints if part not in known and part != "files"]:
                raise other_version(
                    f"the fingerprints of {self.path}", f"they have none of the {name}'s {lacking[0]}"
                )
        changed = [
            f"{name}'s {part}"
            for name in ({**before, **inputs} if all_of_them else inputs)
            for part in ({**before.get(name, {}), **inputs.get(name, {})} if all_of_them else inputs[name])
            # Other files may hold the same weights, which are compared where they are read.
            if part != "files" or (not all_of_them and part in before.get(name, {}))
            if _changed(before.get(name, {}).get(part), inputs.get(name, {}).get(part))
        ]
        if changed:
            raise UsageError(
                f"since {self.path} was begun, the {' and the '.join(changed)} changed",
                expected="the model and the text that the finished samples are of",
                fix="restore them, or start again with --overwrite or another --out",
            )

    def _names(self) -> set[str]:
        """What is in the folder, without the lock and the temporary files of a killed start."""
        entries = self.path.iterdir()
        return {one.name for one in entries if one.name not in (".lock", _EARLIER) and one.suffix != ".part"}

    def _claim(self, *, resume: bool, overwrite: bool) -> None:
        if (names := self._names()) and not (self._is_ours(self.path) or self._is_ours(self.path / _EARLIER)):
            raise UsageError(
                f"{self.path} holds no run of lengthwise (by its env.json), but {', '.join(sorted(names)[:5])}",
                expected="an empty or new folder, or an earlier run",
                fix="choose another --out",
            )
        # This run holds the lock, so these are of a run that was killed.
        ours = tuple(f".{name}." for name in self._ours)
        self._remove(stale.name for stale in self.path.glob(".*.part") if stale.name.startswith(ours))
        self._settle()
        config_path = self.path / "config.yaml"
        if config_path.exists():
            before = read_yaml(config_path)
            if before.get("kind") != self.kind:
                raise UsageError(
                    f"{self.path} holds a run of {before.get('kind')!r}, and this is {self.kind!r}",
                    expected=f"an empty or new folder, or an earlier run of {self.kind!r}",
                    fix="choose another --out",
                )
            now = {"kind": self.kind, **self.config}
            differing = [key for key in {**before, **now} if _deciding(before, key) != _deciding(now, key)]
            if overwrite:
                # Into `.earlier`, config.yaml first.
                earlier = self.path / _EARLIER
                with writing(earlier):
                    earlier.mkdir()
                    _move(self._ours, self.path, earlier)
            elif not resume:
                raise UsageError(
                    f"{self.path} holds {'a finished' if finished_results(self.path) else 'an unfinished'} run",
                    expected="an empty or new folder",
                    fix="--resume continues (or reads) it, --overwrite starts again, or choose another --out",
                )
            elif differing and before.keys().isdisjoint(differing):
                raise other_version(f"the settings of {self.path}", f"they have no {differing[0]}")
            elif differing:
                shown = "; ".join(f"{k}: {before.get(k)!r} there, {now.get(k)!r} now" for k in differing[:5])
                raise UsageError(
                    f"{self.path} holds a run with other settings ({shown})",
                    fix="use the same settings to resume, --overwrite to start again, or another --out",
                )
        self._fresh = not config_path.exists()
        if not (self.path / "env.json").exists():
            atomic_write_json(self.path / "env.json", environment())
        if self._fresh:
            atomic_write_text(config_path, to_yaml({"kind": self.kind, **self.config}))

    @staticmethod
    def _is_ours(folder: Path) -> bool:
        """Whether the folder's env.json is one of lengthwise."""
        try:
            packages = read_json(folder / "env.json", expected="versions").get("packages")
        except UsageError:
            return False
        return isinstance(packages, dict) and "lengthwise" in packages

    def _settle(self) -> None:
        """Put the earlier run back if the one that was to replace it has no result; else delete it."""
        earlier = self.path / _EARLIER
        if not earlier.is_dir():
            return
        # Without config.yaml a move was interrupted: everything here is the earlier run's. With it, everything here
        # is the new run's, and config.yaml goes last, so that a kill in between is settled the next time.
        if (self.path / "config.yaml").exists():
            if self._has_result():
                shutil.rmtree(earlier, ignore_errors=True)
                return
            self._remove(reversed(self._ours))
        with writing(self.path):
            _move(reversed(self._ours), earlier, self.path)
            earlier.rmdir()

    def _has_result(self) -> bool:
        """Whether anything was computed: a sample, a step, a row.

        An interrupted start can leave results without rows and empty folders, here and in the runs of two sides.
        """
        begun = (*_STARTED, "results.json", "README.md")
        for name in set(self._ours).difference(begun):
            entry = self.path / name
            files = (path for path in (entry, *entry.rglob("*")) if path.is_file() and path.name not in begun)
            if any(path.stat().st_size for path in files):
                return True
        file = self.path / "results.json"
        return file.exists() and bool(read_results(file).rows)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            entry = self.path / name
            with writing(entry):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)


def _deciding(config: Mapping[str, Any], key: str) -> Any:
    """What numbers depend on of a setting."""
    value = None if key in _OF_THE_MOMENT else config.get(key)
    if isinstance(value, Mapping):
        return {name: own for name, own in value.items() if name not in _OF_THE_MOMENT}
    return value


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        if (source / name).exists():
            os.replace(source / name, target / name)


def _changed(before: Any, now: Any) -> bool:
    numbers = isinstance(before, float) and isinstance(now, float)
    return abs(before - now) > _ROUNDING if numbers else before != now
