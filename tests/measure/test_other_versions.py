"""What an interrupted run shows, of every measurement; samples that another version kept are refused in words."""

import json
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
from lengthwise.runs import read_run
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.small_measurements import SMALL, TEXTS

KINDS = sorted(SMALL)
PLACES = ("key", "document", "start", "crc", "length", "task", "depth", "reference", "spans")


def measured(kind: str, folder: Path, **how: bool) -> None:
    settings = dict(SMALL[kind])
    if kind == "compare":
        settings["side_b"] = {"model": str(folder.parent / "other")}
        if not (folder.parent / "other").exists():
            save_tiny_model(folder.parent / "other", seed=1)
    run(
        MEASUREMENTS[kind].measurement(**settings), (tiny_llama(), tiny_tokenizer()), TEXTS, out=folder, **how
    )


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


def interrupted(kind: str, folder: Path, finished: int) -> Results:
    """What there is after Ctrl-C once so many samples are kept."""
    append = SampleLog.append

    def stopped(log: SampleLog, key: str, record: dict[str, object]) -> None:
        if len(log) == finished:
            raise KeyboardInterrupt
        append(log, key, record)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
        patch.setattr(SampleLog, "append", stopped)
        measured(kind, folder)
    return caught.value.partial


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_what_there_is_after_ctrl_c_is_shown(kind, finished, tmp_path, capsys):
    partial = interrupted(kind, tmp_path / "run", finished)
    assert partial.partial
    assert len(partial.records) == finished
    for verbose in (False, True):
        print_results(partial, Output(verbose=verbose))
        assert capsys.readouterr().out
    assert partial._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_another_version_began(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(kind, tmp_path / "run", 1)
    drop = "alone" if kind == "compare" else ""
    rewrite(tmp_path / "run", None if drop else PLACES, drop=drop)

    def score(*_: object) -> None:
        raise AssertionError("a model is asked")

    with monkeypatch.context() as patch:
        patch.setattr(MEASUREMENTS[kind].measurement, "score", score)
        with pytest.raises(UsageError, match="of another version of lengthwise") as caught:
            measured(kind, tmp_path / "run", resume=True)
    assert "--overwrite" in str(caught.value.fix)
    measured(kind, tmp_path / "run", overwrite=True)
    assert read_run(tmp_path / "run").rows


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"compare"}))
def test_runs_of_which_another_version_kept_one(kind: str, tmp_path: Path) -> None:
    for name in "ab":
        measured(kind, tmp_path / name)
    rewrite(tmp_path / "b", PLACES)
    with pytest.raises(UsageError, match="of another version of lengthwise"):
        if kind == "predictions":
            comparison_of_kept(*(read_run(tmp_path / name) for name in "ab"))
        else:
            difference_of_runs([tmp_path / name for name in "ab"])


def _a_row(found: dict[str, Any]) -> None:
    next(row for row in found["rows"] if row["metric"] == "loss")["value"] += 0.1


CHANGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a number that is not that of its samples": _a_row,
    "no settings": lambda found: found["provenance"].pop("measurement"),
    "settings that are a word": lambda found: found["provenance"].update(measurement="x"),
    "nothing of where it comes from": lambda found: found.update(provenance={}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_results_that_were_changed(what: str, tmp_path: Path) -> None:
    for name in "ab":
        measured("ppl", tmp_path / name)
    file = tmp_path / "b" / "results.json"
    found = json.loads(file.read_text())
    CHANGED[what](found)
    file.write_text(json.dumps(found))
    with pytest.raises(UsageError, match=r"of another version of lengthwise, or were changed|other settings"):
        difference_of_runs([tmp_path / name for name in "ab"])
