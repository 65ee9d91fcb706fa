"""How often the printed intervals hold the truth, where documents are real: whole texts are the law.

    python -m checks.lab.real_documents

`tiny-books` reads one window of each of 96 books and of 96 files of code (it was trained on most of the books),
with `compare` beside its weights in 4 bits, with `ppl` and with `longppl`. These documents are the whole law, and
their own numbers the truth. Some of them are drawn with replacement, many times, and each number gets its interval.
Numbers without an interval count apart. Whether far context is used "less" is asked of the same documents, whose
changes of a benefit are moved to 0 on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from checks.lab.bases import EMBEDDED, base_of
from checks.lab.weight_faults import in_bits
from lengthwise.measure import Comparison, LongPpl, Perplexity, run
from lengthwise.measure.difference import holm, measurement_of
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.report.comparison_curve import used_alike
from lengthwise.results import Results, Row
from lengthwise.text import load_corpus

TASK = "real documents"
DOCUMENTS, DRAWS, LEAST = (4, 8, 16), 500, 0.93
_WINDOWS = 96
_CHARACTERS = (8_000, 40_000)
"""A document needs so many to hold a window; and no more are read."""


_WITHOUT = ("benefit_kept", "key_share")
"""A ratio of small numbers, which mostly has no interval, and one that never has."""


def measured() -> Iterator[tuple[str, Results]]:
    """(corpus, results) with a record of every document."""
    base = base_of(EMBEDDED)
    for name in ("books", "code"):
        corpus = load_corpus(name, split="all")
        texts = {
            key: text[: _CHARACTERS[1]]
            for key, text in corpus.documents.items()
            if len(text) >= _CHARACTERS[0]
        }
        keys = np.random.default_rng(0).permutation(sorted(texts))[:_WINDOWS]
        text = replace(corpus, documents={key: texts[key] for key in keys})
        yield (
            name,
            run(Comparison(lengths=(512,), windows=len(keys)), base.model, text, other=in_bits(4)(base)),
        )
        yield name, run(Perplexity(lengths=(128, 512), windows=len(keys)), base.model, text)
        yield name, run(LongPpl(max_length=384, short=64, stride=64, windows=len(keys)), base.model, text)


def drawn(statistic: Statistic, places: Sequence[int]) -> Statistic:
    """Of these documents, each a document of its own."""
    names = tuple(f"d{index}" for index in range(len(places)))
    return replace(statistic, totals=statistic.totals[list(places)], documents=names)


def intervals(statistic: Statistic, documents: int, draws: int) -> tuple[float, float]:
    """The share of draws with an interval, and of these the share whose interval holds the truth."""
    truth, rng, found = estimate(statistic).value, np.random.default_rng(1), []
    assert truth is not None
    for _ in range(draws):
        row = estimate(drawn(statistic, rng.integers(len(statistic.documents), size=documents)))
        if row.ci_low is not None and row.ci_high is not None:
            found.append(row.ci_low <= truth <= row.ci_high)
    return len(found) / draws, float(np.mean(found)) if found else 1.0


def claims(found: Sequence[Statistic], documents: int, draws: int) -> float:
    """How often "less" or "more" is said, where a benefit changes by 0 on average."""
    some = [one for one in found if one.row.metric in ("shift", "benefit_a", "benefit_b", "benefit_change")]
    said, rng = 0, np.random.default_rng(2)
    for _ in range(draws):
        places = rng.integers(len(some[0].documents), size=documents)
        rows = [estimate(drawn(_centred(one), places)) for one in some]
        tested = holm([row for row in rows if row.metric in ("shift", "benefit_change")])
        sides = [row for row in rows if row.metric.startswith("benefit_") and row.metric != "benefit_change"]
        said += used_alike([*tested, *sides])[0] in ("less", "more")
    return said / draws


def _centred(statistic: Statistic) -> Statistic:
    if statistic.row.metric != "benefit_change":
        return statistic
    sums, counts = statistic.totals.T
    return replace(statistic, totals=np.stack([sums - counts * sums.sum() / counts.sum(), counts], axis=1))


def simulated(draws: int = DRAWS) -> tuple[list[Row], list[str]]:
    """A row for each text, measurement, number of documents and quantity, and what is not as promised."""
    rows, off = [], []
    for corpus, results in measured():
        every = measurement_of(results).statistics(list(results.records.values()))
        levels = measurement_of(results).about.levels
        found = [
            one
            for one in every
            if one.row.is_whole and one.row.metric not in (*levels, *_WITHOUT) and one.row.unit != "tokens"
        ]
        for documents in DOCUMENTS:
            shares = {
                (one.row.metric, one.row.length, one.row.distance): intervals(one, documents, draws)
                for one in found
            }
            given = [held for with_interval, held in shares.values() if with_interval >= 0.02]
            about: dict[str, Any] = {"task": TASK, "arm": f"{corpus}, {documents} documents, {results.kind}"}
            numbers = {"numbers": len(shares), "least covered": min(given), "covered": float(np.mean(given))}
            if results.kind == "compare":
                numbers["less or more"] = claims(found, documents, draws // 4)
            rows += [
                Row(model=EMBEDDED, metric=name, value=value, **about) for name, value in numbers.items()
            ]
            print(about["arm"], numbers, min(shares, key=lambda key: shares[key][1]), flush=True)
            # The least of twenty shares lies three standard errors below what they have in common.
            if min(given) < LEAST - 3 * np.sqrt(LEAST * (1 - LEAST) / draws):
                off.append(f"{about['arm']}: {min(given):.3f} covered")
    return rows, off


if __name__ == "__main__":
    simulated()
