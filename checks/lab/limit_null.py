"""How often `limit` gives a number of noise, and how often its intervals hold the truth: a simulation.

    python -m checks.lab.limit_null

Made-up documents, with noise as large as `tiny-books` has on books (windows of 1,024 tokens: 0.02 to 0.18 nats a
token of benefit between documents) or larger. A document differs from the next in how much a passage is worth, and
in how far its predictions hold. The truth is where the curve of ten thousand such documents crosses its level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.limit_headlines import Headline, sound_headline, used_headline

DOCUMENTS = (1, 2, 3, 4, 8)
MOST_NUMBERS, LEAST_COVERED = 0.05, 0.93
Generator = np.random.Generator
Drawn = Callable[[int, Generator], NDArray[np.float64]]
"""(documents, random numbers) -> totals by document."""

_DISTANCES = (128, 161, 203, 256, 323, 406, 512, 645, 813, 1024, 1290, 1625, 2048, 2580, 3251, 4096)
_INSIDE = _DISTANCES[:15:2]
_START, _BINS, _WIDTH = 512, 60, 128
LIMIT = SimpleNamespace(
    sizes=(4160, 1024, _WIDTH), distances=_DISTANCES, inside=(_START, _INSIDE), tolerance=0.1, share=0.1
)
USED, SOUND = partial(used_headline, LIMIT), partial(sound_headline, LIMIT)
_is_beginning = np.arange(len(_DISTANCES) + len(_INSIDE)) < len(_DISTANCES)
_start = np.where(_is_beginning, 0, _START)


def _used(benefit: Callable[[NDArray[Any], NDArray[np.float64]], Any], *, heavy: bool = False) -> Drawn:
    """`benefit` at distances [K], and for documents' own numbers around 1 [D, 1]."""

    def drawn(documents: int, rng: Generator) -> NDArray[np.float64]:
        places = np.array([*_DISTANCES, *_INSIDE])
        own = np.exp(rng.normal(scale=0.3, size=(documents, 1)) - 0.045)
        noise = rng.standard_t(3, size=(documents, len(places))) / 1.7 if heavy else None
        noise = rng.normal(size=(documents, len(places))) if noise is None else noise
        found = benefit(places, own) + 0.15 * noise + rng.normal(scale=0.05, size=(documents, 1))
        return np.concatenate([np.zeros_like(found), found, np.ones((documents, 1))], axis=1)

    return drawn


def _sound(excess: Callable[[NDArray[Any]], Any], *, between: float = 0.1) -> Drawn:
    """`excess` of bins [B]; documents differ by `between`, tokens by 0.8 nats."""

    def drawn(documents: int, rng: Generator) -> NDArray[np.float64]:
        shift = rng.normal(scale=between, size=(documents, 1))
        noise = rng.normal(scale=0.8 / np.sqrt(_WIDTH), size=(documents, _BINS))
        sums = _WIDTH * (excess(np.arange(_BINS) + 0.5) + shift + noise)
        return np.concatenate([sums, np.ones((documents, 1))], axis=1)

    return drawn


NULLS: Mapping[str, Drawn] = {
    "no benefit": _used(lambda places, _: 0.0 * places),
    "no benefit, heavy tails": _used(lambda places, _: 0.0 * places, heavy=True),
    "a benefit of 0.01": _used(lambda places, _: 0.01 + 0.0 * places),
}
CURVES: Mapping[str, tuple[Callable[..., Headline], Drawn]] = {
    "used, up to an edge": (USED, _used(lambda places, own: 3 * own * (places <= 1500))),
    "used, less and less": (USED, _used(lambda places, own: 3 * own * np.exp(-places / 650))),
    "used, a little": (USED, _used(lambda places, own: 0.4 * own * (places <= 1500))),
    "used, heavy tails": (USED, _used(lambda places, own: 3 * own * np.exp(-places / 650), heavy=True)),
    "used, the beginning without end": (
        USED,
        _used(lambda places, own: 3 * own * (_is_beginning | (places <= 1500))),
    ),
    "used, up to an edge of context": (USED, _used(lambda places, own: 3 * own * (places + _start <= 1900))),
    "used, ends differ": (USED, _used(lambda places, own: 3 * np.exp(-places / (650 * own)))),
    "sound, up to an edge": (SOUND, _sound(lambda place: np.where(place > 40, 1.0, -0.05))),
    "sound, up to a step": (SOUND, _sound(lambda place: np.where(place > 40, 0.4, 0.0))),
    "sound, up to a slope": (SOUND, _sound(lambda place: 0.1 + (place - 40) * 0.05)),
    "sound, up to a gentle slope": (SOUND, _sound(lambda place: 0.1 + (place - 40) * 0.01)),
}


def numbers(name: str, documents: int, *, runs: int) -> float:
    """The share of runs of a null that give a number."""
    found = (USED(NULLS[name](documents, np.random.default_rng(run))) for run in range(runs))
    return sum(head.value is not None for head in found) / runs


def coverage(name: str, documents: int, *, runs: int) -> tuple[int, int]:
    """How many runs give a number, and how many of these an interval that holds the truth."""
    curve, drawn = CURVES[name]
    heads = [curve(drawn(documents, np.random.default_rng(run))) for run in range(runs)]
    given = [head for head in heads if head.value is not None]
    return len(given), sum(head.low <= _truth(name) <= head.high for head in given)


@lru_cache
def _truth(name: str) -> float:
    curve, drawn = CURVES[name]
    # The mean of so many documents, three times: documents that do not differ.
    mean = drawn(10_000, np.random.default_rng(10**6)).mean(axis=0)
    head: Headline = curve(np.stack([mean] * 3))
    assert head.value is not None
    return head.value


def table(runs: int = 400) -> list[dict[str, Any]]:
    """One line for each case and number of documents; `holds` says whether it is as promised."""
    lines: list[dict[str, Any]] = []
    for name in NULLS:
        for documents in DOCUMENTS:
            share = numbers(name, documents, runs=runs)
            lines.append({"case": name, "documents": documents, "numbers": share, "covered": None})
            lines[-1]["holds"] = share <= MOST_NUMBERS
    for name in CURVES:
        for documents in DOCUMENTS:
            given, covered = coverage(name, documents, runs=runs)
            share = covered / given if given else None
            lines.append({"case": name, "documents": documents, "numbers": given / runs, "covered": share})
            lines[-1]["holds"] = share is None or share >= LEAST_COVERED
    return lines


def main() -> None:
    """Print the table."""
    print("| case | documents | a number | covered | |")
    print("|---|--:|--:|--:|---|")
    for line in table():
        covered = "" if line["covered"] is None else f"{line['covered']:.3f}"
        holds = "" if line["holds"] else "fails"
        print(f"| {line['case']} | {line['documents']} | {line['numbers']:.3f} | {covered} | {holds} |")


if __name__ == "__main__":
    main()
