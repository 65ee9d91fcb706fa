"""Every study of `lengthwise ls studies` at the scale `smoke`, as a user runs it: ten minutes on two free cores.

    python -m checks.studies [--out DIR] [--only NAME...] [--jobs N]

`make check-studies` runs this. The paper's tables also read made-up files of LongBench-E, so that none of their
claims lacks its numbers. Each study runs in a process of its own, with one store of arms for all. It passes if it
exits with 0 and writes a page, and if every claim whose two numbers were measured has their difference. Times are
of a processor, so that they do not depend on what else runs. A study that takes longer than `MOST_SECONDS` fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Before torch is imported: a process for each core.
os.environ["OMP_NUM_THREADS"] = "1"

from lengthwise.cli.main import run as lengthwise
from lengthwise.evaluation.longbench_e import DATA_SETS
from lengthwise.results import Results, read_results
from lengthwise.testing import tiny_text
from lengthwise_studies.paper.all_tables import ALL, TABLES
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import Size
from lengthwise_studies.study_table import studies, study_named

MOST_SECONDS = 500
"""Of a processor, after which a study is stopped and counts as failed."""


@dataclass(frozen=True)
class Outcome:
    """How a study ended; `lacking` are claims without the difference of two numbers that were measured."""

    name: str
    seconds: float
    code: int
    page: bool
    lacking: tuple[str, ...]
    said: str

    @property
    def good(self) -> bool:
        """Whether it ended as it should."""
        return self.code == 0 and self.page and not self.lacking


def longbench_files(folder: Path) -> Path:
    """A row of each data set of LongBench-E, as the official files have them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data_set in DATA_SETS.items():
        answers = {"class_match": "Location", "number_share": "3"}.get(data_set.metric, "Paragraph 2")
        rows = [
            {
                "input": f"Where is the king, case {length}?",
                "context": tiny_text(60, seed=length),
                "answers": [answers],
                "length": length,
                "all_classes": ["Location", "City"] if answers == "Location" else None,
                "dataset": name,
                "language": "en",
                "_id": f"{name}{length}",
            }
            for length in (1200, 5000)
        ]
        (folder / f"{name}_e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def start(name: str, out: Path, data: Path) -> int:
    """The process of a study. It begins as a copy of this one, so that torch is imported once for all."""
    sys.stdout.flush()
    if process := os.fork():
        return process
    code = 1
    try:
        sys.stdout = sys.stderr = log = _log(name, out).open("w", buffering=1)
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        takes_data = name in {*TABLES, "tables"} and "data" in study_named(name).takes
        words = ["reproduce", name, "--scale", "smoke", "--out", str(out / name), "--overwrite"]
        code = lengthwise([*words, "--data", str(data)] if takes_data else words)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _log(name: str, out: Path) -> Path:
    return out / f"{name}.log"


def ended(name: str, out: Path, status: int, seconds: float) -> Outcome:
    """How a study whose process is over has ended."""
    code = os.waitstatus_to_exitcode(status)
    lacking = tuple(_lacking(name, out / name)) if code == 0 else ()
    page = (out / name / "report.html").is_file()
    said = "\n".join(_log(name, out).read_text(errors="replace").splitlines()[-3:])
    return Outcome(name, seconds, code, page, lacking, said)


def run_all(names: Sequence[str], out: Path, data: Path, jobs: int) -> Iterator[Outcome]:
    """Run studies, so many at once; each as it ends."""
    waiting, running = list(names), dict[int, str]()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            running[start(name, out, data)] = name
        process, status, used = os.wait3(0)
        if process in running:
            yield ended(running.pop(process), out, status, used.ru_utime + used.ru_stime)


def _lacking(name: str, folder: Path) -> Iterator[str]:
    tables = {**{one: folder for one in TABLES if one == name}}
    if name == "tables":
        tables = {Path(part.folder).name: folder / part.folder for part in ALL.parts}
    for one, place in tables.items():
        yield from unpaired(TABLES[one], read_results(place / "results.json"))


def unpaired(table: PaperTable, results: Results) -> Iterable[str]:
    """The claims of a table whose two numbers are there, and their difference is not."""
    length = Size.of(results.config["size"]).trained
    for claim in table.claims:
        test, quantity = claim.test, claim.test.quantity
        if test.steps is not None or quantity.times_other is not None:
            continue
        rows = [row for row in results.rows if quantity.is_in(row, length)]
        arms = {row.arm for row in rows if row.reference is None}
        if {test.arm, test.against} <= arms and (test.arm, test.against) not in {
            (row.arm, row.reference) for row in rows
        }:
            yield f"{table.name}: {claim.says}"


def main(words: Sequence[str] | None = None) -> int:
    """Run them, print a line for each, and exit with 1 if one did not end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/studies"))
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(words)
    names = [one["name"] for one in studies() if one["name"] in (given.only or [one["name"]])]
    data, outcomes = longbench_files(given.out / "longbench"), []
    os.environ["LENGTHWISE_CACHE"] = str(given.out / "cache")
    for outcome in run_all(names, given.out, data, given.jobs):
        outcomes.append(outcome)
        state = "ok" if outcome.good else f"FAILED (exit {outcome.code}, page: {outcome.page})"
        print(f"{outcome.seconds:6.1f} s  {outcome.name}: {state}", flush=True)
        for line in (*outcome.lacking, *([] if outcome.good else [outcome.said])):
            print(f"          {line}", flush=True)
    bad = sum(not outcome.good for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"{len(names) - bad} of {len(names)} studies end well, after {seconds:.0f} s of a processor")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
