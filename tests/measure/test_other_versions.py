"""What an interrupted run shows, of every measurement; samples that another version kept are refused in words."""

import functools
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.options import Output
from lengthwise.cli.output import print_results
from lengthwise.errors import Interrupted, UsageError
from lengthwise.measure import MEASUREMENTS, run
from lengthwise.measure.comparison import comparison_of_kept
from lengthwise.measure.difference import difference_of_runs
from lengthwise.results import Results
from lengthwise.run_files import read_run
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.small_measurements import SMALL, TEXTS

KINDS = sorted(SMALL)
PLACES = ("key", "document", "start", "crc", "length", "task", "depth", "reference", "spans")


class Runs:
    """Runs of every measurement, each made once, in folders that tests copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._other = {"model": str(save_tiny_model(folder / "other", seed=1))}
        self.finished = functools.cache(self._finished)
        self.half = functools.cache(self._half)

    def measure(self, kind: str, folder: Path, **how: bool) -> None:
        settings = SMALL[kind] | ({"side_b": self._other} if kind == "compare" else {})
        model = (tiny_llama(), tiny_tokenizer())
        run(MEASUREMENTS[kind].measurement(**settings), model, TEXTS, out=folder, **how)

    def _finished(self, kind: str) -> Path:
        self.measure(kind, self._folder / kind)
        return self._folder / kind

    def _half(self, kind: str, finished: int = 1) -> tuple[Results, Path]:
        """What there is after Ctrl-C once so many samples are kept, and its folder."""
        append, folder = SampleLog.append, self._folder / f"{kind}-{finished}"

        def stopped(log: SampleLog, key: str, record: dict[str, object]) -> None:
            if len(log) == finished:
                raise KeyboardInterrupt
            append(log, key, record)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
            patch.setattr(SampleLog, "append", stopped)
            self.measure(kind, folder)
        return caught.value.partial, folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def rewrite(folder: Path, keep: tuple[str, ...] | None = None, *, drop: str = "") -> None:
    """Samples with these fields alone, or without one."""
    lines = []
    for line in (folder / "samples.jsonl").read_text().splitlines():
        record = json.loads(line)
        del record["checksum"]
        kept = {
            name: value
            for name, value in record.items()
            if name != drop and (keep is None or name in keep or not isinstance(value, float | list | dict))
        }
        text = json.dumps(kept).encode()
        lines.append(b'%b, "checksum": %d}\n' % (text[:-1], zlib.crc32(text)))
    (folder / "samples.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_what_there_is_after_ctrl_c_is_shown(kind, finished, runs, capsys):
    partial, _ = runs.half(kind, finished)
    assert partial.partial
    assert len(partial.records) == finished
    for verbose in (False, True):
        print_results(partial, Output(verbose=verbose))
        assert capsys.readouterr().out
    assert partial._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_another_version_began(kind: str, runs: Runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs.half(kind, 1)[1], tmp_path / "run")
    drop = "alone" if kind == "compare" else ""
    rewrite(copy, None if drop else PLACES, drop=drop)

    def score(*_: object) -> None:
        raise AssertionError("a model is asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MEASUREMENTS[kind].measurement, "score", score)
        with pytest.raises(UsageError, match="of another version of lengthwise") as caught:
            runs.measure(kind, copy, resume=True)
    assert "--overwrite" in str(caught.value.fix)
    runs.measure(kind, copy, overwrite=True)
    assert read_run(copy).rows


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"compare"}))
def test_runs_of_which_another_version_kept_one(kind: str, runs: Runs, tmp_path: Path) -> None:
    one, copy = runs.finished(kind), shutil.copytree(runs.finished(kind), tmp_path / "b")
    rewrite(copy, PLACES)
    with pytest.raises(UsageError, match="of another version of lengthwise"):
        if kind == "predictions":
            comparison_of_kept(read_run(one), read_run(copy))
        else:
            difference_of_runs([one, copy])


def _a_row(found: dict[str, Any]) -> None:
    next(row for row in found["rows"] if row["metric"] == "loss")["value"] += 0.1


CHANGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a number that is not that of its samples": _a_row,
    "no settings": lambda found: found["provenance"].pop("measurement"),
    "settings that are a word": lambda found: found["provenance"].update(measurement="x"),
    "nothing of where it comes from": lambda found: found.update(provenance={}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_results_that_were_changed(what: str, runs: Runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs.finished("ppl"), tmp_path / "b")
    found = json.loads((copy / "results.json").read_text())
    CHANGED[what](found)
    (copy / "results.json").write_text(json.dumps(found))
    with pytest.raises(UsageError, match=r"of another version of lengthwise, or were changed|other settings"):
        difference_of_runs([runs.finished("ppl"), copy])
