"""What each measuring verb costs, in bare forward passes over its longest context.

    python bench/verbs.py --length 4096 --out bench-verbs.json

A bare pass reads one window of LENGTH tokens and gives the loss of every token. A verb measures one window (compare:
a pair of windows, with both sides; limit: the mean of two windows, as it reads every second one twice), and `passes`
is how many bare passes it cannot do without. All in one process, in turn, so that all ratios are of one machine and
one state.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from measuring import machine, spread

from lengthwise.measure import (
    Comparison,
    Limit,
    LongPpl,
    Measurement,
    Misalignment,
    Perplexity,
    run,
)
from lengthwise.subjects import Reading, load
from lengthwise.text import Corpus, load_corpus, tokenize


@dataclass(frozen=True)
class Verb:
    """A measurement of some windows, and how many bare passes of `length` tokens each window needs."""

    passes: float
    length: int
    measurement: Measurement
    windows: int = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--verbs", nargs="*", default=None)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = load(given.model, dtype=given.dtype)
    length = given.length
    name, text = max(load_corpus("books").documents.items(), key=lambda each: len(each[1]))
    text = Corpus.of("book", {name: text[: 20 * length]}, split="all", split_rule="all documents")
    tokens = tokenize(text, model.tokenizer, cache=False)
    ids = tokens.documents[0].ids
    verbs = {
        "ppl": Verb(1, length, Perplexity(lengths=(length,), windows=1)),
        "compare": Verb(4, length, Comparison(lengths=(length,), windows=1)),
        "longppl": Verb(2, length, LongPpl(max_length=length, short=length // 4, windows=1)),
        "measure": Verb(2, length, Misalignment(lengths=(length,), windows=1)),
        "limit": Verb(1.5, length, Limit(max_length=length, windows=2), windows=2),
    }
    chosen = given.verbs or list(verbs)
    bare = {f"bare {size}": size for size in sorted({verbs[name].length for name in chosen})}
    times: dict[str, list[float]] = {name: [] for name in (*bare, *chosen)}
    for _ in range(given.repeats):
        for name in times:
            start = time.perf_counter()
            if name in bare:
                windows = 1
                with torch.no_grad():
                    model.read([Reading(tokens=ids[: bare[name]], labels=ids[1 : bare[name] + 1])])
            else:
                windows = verbs[name].windows
                run(verbs[name].measurement, model, text, **{"other": model} if name == "compare" else {})
            times[name].append((time.perf_counter() - start) / windows)
    print("| verb | passes it needs | in bare passes of its window | beyond what it needs |")
    print("|---|--:|--:|--:|")
    for name in chosen:
        verb = verbs[name]
        passes = zip(times[name], times[f"bare {verb.length}"], strict=True)
        ratios = [each / bare for each, bare in passes]
        print(f"| {name} | {verb.passes} | {spread(ratios)} | {spread([r / verb.passes for r in ratios])} |")
    if given.out:
        settings = vars(given) | {"out": None}
        record = {"machine": machine(torch.get_num_threads()), "settings": settings, "seconds": times}
        given.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
