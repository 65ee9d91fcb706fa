"""What each measuring verb costs, in bare forward passes over its longest context.

    python bench/verbs.py --length 4096 --out bench-verbs.json

A bare pass reads one window of LENGTH tokens and gives the loss of every token. A verb measures one window (compare:
a pair of windows, with both sides; limit: the mean of two windows, as it reads every second one twice), and `passes`
is how many bare passes it cannot do without. All in one process, in turn, so that the ratios are of one machine in
one state.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from measuring import machine, spread

from lengthwise.measure import Difference, Limit, LongPpl, Measurement, Misalignment, Perplexity, Recall, run
from lengthwise.models import load
from lengthwise.text import Corpus, load_corpus, tokenize


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
    ids = tokenize(text, model.tokenizer, cache=False).documents[0].ids[: length + 1]
    verbs: dict[str, tuple[float, Measurement]] = {
        "ppl": (1, Perplexity(lengths=(length,), segments=1)),
        "compare": (4, Difference(lengths=(length,), windows=1)),
        "recall": (2, Recall(distances=(length - 128,), pairs=1)),
        "longppl": (2, LongPpl(length=length, short=length // 4, texts=1)),
        "measure": (2, Misalignment(lengths=(length,), windows=1)),
        "limit": (1.5, Limit(length=length, windows=2)),
    }
    chosen = given.verbs or list(verbs)
    times: dict[str, list[float]] = {name: [] for name in ("bare", *chosen)}
    for _ in range(given.repeats):
        for name in times:
            start = time.perf_counter()
            if name == "bare":
                with torch.no_grad():
                    model.token_losses([ids[:-1]], [ids[1:]])
            else:
                run(verbs[name][1], model, text, **{"other": model} if name == "compare" else {})
            windows = 2 if name == "limit" else 1
            times[name].append((time.perf_counter() - start) / windows)
    print(f"| verb | passes it needs | in bare passes of {length:,} tokens | beyond what it needs |")
    print("|---|--:|--:|--:|")
    for name in chosen:
        ratios = [each / bare for each, bare in zip(times[name], times["bare"], strict=True)]
        needed = verbs[name][0]
        print(f"| {name} | {needed} | {spread(ratios)} | {spread([each / needed for each in ratios])} |")
    if given.out:
        settings = vars(given) | {"out": None}
        record = {"machine": machine(torch.get_num_threads()), "settings": settings, "seconds": times}
        given.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
