"""Every verb on a tiny model of each architecture of transformers, against whole readings (twenty minutes).

    python -m checks.zoo [--out DIR] [--only NAME...] [--verbs VERB...] [--jobs N]

`make check-zoo` runs this. Each model is kept as DIR/models/NAME.json once it is judged, so that a stopped run
continues. --only takes parts of names. At the end DIR/results.json has all of them, and what is wrong is printed.
`python -m tools.docs.doc_tables keep DIR` puts it into the documentation.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from checks.zoo.architectures import animals, name_of
from checks.zoo.judge import VERBS, Cell
from checks.zoo.kept import kept, prepared
from lengthwise.files import atomic_write_text
from lengthwise.results import Results

KIND = "zoo"


def results_of(every: Sequence[dict[str, Any]]) -> Results:
    """Variants of each architecture in `equal`; in `other` model, verb, verdict, by how many nats, and why."""
    every = sorted(every, key=lambda each: each["kind"])
    cells = {
        tuple(found["kind"]): {verb: Cell(*cell) for verb, cell in found["cells"].items()}
        for found in every
        if not found["none"]
    }
    other = [
        (kind, verb, cell)
        for kind, of in cells.items()
        for verb, cell in of.items()
        if cell.verdict != "equal"
    ]
    tried = Counter(verb for of in cells.values() for verb in of)
    equal: dict[str, list[str]] = {}
    for architecture, variant in cells.keys() - {kind for kind, *_ in other}:
        equal.setdefault(architecture, []).append(variant)
    config = {
        "versions": every[0]["versions"],
        "tried": {verb: tried[verb] for verb in VERBS if tried[verb]},
        "equal": {architecture: sorted(equal[architecture]) for architecture in sorted(equal)},
        "none": {name_of(*found["kind"]): found["none"] for found in every if found["none"]},
        "other": [[name_of(*kind), verb, cell.verdict, cell.error, cell.why] for kind, verb, cell in other],
    }
    return Results(kind=KIND, model_name="", config=config, rows=[])


def main(words: Sequence[str] | None = None) -> int:
    """Judge what is not judged, write the numbers, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(words)
    wanted = [each for each in animals() if any(part in each.name for part in given.only)]
    folder, every = given.out / "models", []
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.jobs, get_context("spawn"), prepared) as pool:
        waiting = [pool.submit(kept, animal, given.verbs, folder) for animal in wanted]
        for done in as_completed(waiting):
            found = done.result()
            every.append(found)
            counts = Counter(Cell(*cell).verdict for cell in found["cells"].values())
            said = found["none"] or ", ".join(
                f"{count} {verdict}" for verdict, count in sorted(counts.items())
            )
            print(
                f"{len(every):3d} of {len(wanted)}  {found['seconds']:5.1f} s  {name_of(*found['kind'])}: {said}",
                flush=True,
            )
    results = results_of(every)
    atomic_write_text(given.out / "results.json", results.to_json())
    bad = [one for one in results.config["other"] if one[2] in ("wrong", "crash")]
    for name, verb, verdict, error, why in bad:
        size = "" if error is None else f" by {error:.2g}"
        print(f"{name}: {verb}: {verdict}{size} {why}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
