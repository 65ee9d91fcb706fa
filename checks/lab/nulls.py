"""How often `compare` sees what is not there, and how often its intervals hold the truth: a simulation.

Two made-up sides read documents of random tokens. Their losses are drawn: a side knows how much each document is
worth, copies repeated passages, and rounds. So the truth is known: both sides are the same but for rounding, or B has
lost or won nothing on average in the use of far context, though documents differ.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from checks.lab.bases import EMBEDDED, base_of
from checks.lab.bases import text_of as text_of_base
from checks.lab.sound import CHUNKS, KERNEL, SHIFTED, WAYS
from lengthwise.measure import Comparison, run
from lengthwise.report.comparison_verdict import Evidence, evidence
from lengthwise.results import Results, Row
from lengthwise.subjects import Read, Reading, Want
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_tokenizer
from lengthwise.text import TokenDocument, TokenDocuments, tokenizer_fingerprint

DOCUMENTS = (2, 4, 8)
REPEATS = 400
LENGTH, VOCABULARY, GRAM = 256, 320, 4
BENEFIT = 1.0
"""Nats that a token is worth to side A which follows `GRAM` repeated ones."""
TRUE_SHIFT = 0.02
MOST = {"sound pairs called different": 0.02, "use less or more at no change": 0.05}
"""How often it may be said."""


@dataclass
class MadeUp:
    """A side whose losses are drawn, the same for the same text.

    Args:
        rounding: the spread of a token's loss that rounding gives.
        shift: nats a token that its loss is higher, on average over documents.
        of_documents: the spread of what is the document's own, of the shift and of the benefit.
        seed: of what is this side's own.
    """

    rounding: float = 0.0
    shift: float = 0.0
    of_documents: float = 0.0
    seed: int = 0
    name: str = "made up"
    tokenizer: Any = field(default_factory=tiny_tokenizer)
    path: ReadingPath = field(default_factory=ReadingPath)
    gives: frozenset[Want] = frozenset({Want.LOSS})
    max_positions: int | None = None
    trained_length: int | None = None
    dtype: str | None = None
    vocab_size: int | None = None
    rope_by_length: str | None = None

    def check_ready(self, tokens: int) -> None:
        """It reads everything."""

    def check_unchanged(self) -> None:
        """It keeps nothing."""

    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """See `Predictor.read`."""
        found = [self._losses([*each.tokens.tolist(), int(each.labels[-1])]) for each in readings]
        pairs = zip(found, readings, strict=True)
        return [Read(losses=losses[-len(each.labels) :]) for losses, each in pairs]

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """It reads the same again."""
        return []

    def ids_of(self, text: str) -> list[int]:
        """The tokenizer's."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def _losses(self, ids: list[int]) -> torch.Tensor:
        # All of a document's windows begin in it: its tokens are of one remainder.
        document = np.random.default_rng([zlib.crc32(bytes([ids[1] % 16])), self.seed, 1])
        shift, benefit = self.of_documents * document.standard_normal(2)
        text = zlib.crc32(np.array(ids[:32]).tobytes())
        losses = np.random.default_rng(text).gamma(9.0, 0.33, len(ids) - 1)
        seen: dict[tuple[int, ...], int] = {}
        for row in range(GRAM, len(ids)):
            gram = tuple(ids[row - GRAM : row])
            if gram in seen:
                losses[row - 1] -= BENEFIT + benefit
            seen[gram] = row
        own = np.random.default_rng([text, self.seed, 2]).standard_t(4, len(losses))
        return torch.from_numpy(losses + self.shift + shift + self.rounding * own)

    def fingerprint(self) -> dict[str, str]:
        """Nothing is resumed."""
        return {}

    def describe(self) -> dict[str, Any]:
        """JSON values."""
        return {"name": self.name}


def text_of(documents: int, seed: int) -> TokenDocuments:
    """Random documents, each in tokens of its own remainder of 16, so that a side knows it again."""
    rng = np.random.default_rng(seed)
    drawn = [
        TokenDocument(
            f"d{index}", (16 * rng.integers(VOCABULARY // 16, size=700) + index % 16).astype(np.int32)
        )
        for index in range(documents)
    ]
    return TokenDocuments(tuple(drawn), "random", "corpus", tokenizer_fingerprint(tiny_tokenizer()))


def of(rows: Sequence[Row]) -> Evidence:
    """The evidence, which is there."""
    found = evidence(rows)
    assert found is not None
    return found


def compared(documents: int, seed: int) -> Results:
    """Two made-up sides: no change on average, but documents differ by 0.3 nats a token, in the benefit too."""
    sides = (
        MadeUp(seed=2 * seed),
        MadeUp(rounding=0.01, shift=TRUE_SHIFT, of_documents=0.3, seed=2 * seed + 1),
    )
    spec = Comparison(lengths=(LENGTH,), windows=documents)
    return run(spec, sides[0], text_of(documents, seed), other=sides[1])


def called_different(documents: int, seeds: Sequence[int] = range(4)) -> tuple[int, int]:
    """How many sound pairs of `tiny-books` in bfloat16 are not called equal, and of how many."""
    base = base_of(EMBEDDED).cast("bfloat16")
    wrong = count = 0
    for side, _ in (WAYS[KERNEL], WAYS[CHUNKS], *SHIFTED.values()):
        for seed in seeds:
            spec = Comparison(lengths=(LENGTH,), windows=documents, seed=seed)
            found = run(spec, base.model, text_of_base(EMBEDDED), other=side(base))
            wrong += of(found.rows).pattern != "equal"
            count += 1
    return wrong, count


def simulated_limit() -> tuple[list[Row], list[str]]:
    """The same of `limit`: a row for each case, number of documents and quantity."""
    from checks.lab.limit_null import table

    rows, off = [], []
    for line in table():
        about: dict[str, Any] = {"unit": "share", "arm": f"{line['case']}, {line['documents']} documents"}
        shares = {"numbers": line["numbers"], "covered": line["covered"]}
        rows += [
            Row(model="made up", task="limit null", metric=n, value=v, **about) for n, v in shares.items()
        ]
        if not line["holds"]:
            off.append(f"limit: {line['case']}, {line['documents']} documents: {shares}")
    return rows, off


def simulated(repeats: int = REPEATS) -> tuple[list[Row], list[str]]:
    """A row for each number of documents and quantity, and what is not as promised."""
    rows, off = [], []
    for documents in DOCUMENTS:
        claims = 0
        covered: dict[str, list[bool]] = {"shift": [], "benefit change": []}
        for seed in range(repeats):
            found = compared(documents, seed).rows
            claims += of(found).use in ("less", "more")
            for metric, truth in (("shift", TRUE_SHIFT), ("benefit_change", 0.0)):
                row = next(row for row in found if row.metric == metric and row.is_whole)
                if row.ci_low is not None and row.ci_high is not None:
                    covered[metric.replace("_", " ")].append(row.ci_low <= truth <= row.ci_high)
        wrong, pairs = called_different(documents)
        shares = {
            "sound pairs called different": wrong / pairs,
            "use less or more at no change": claims / repeats,
        }
        shares |= {f"{name} covered": float(np.mean(some)) for name, some in covered.items() if some}
        counts = {"sound pairs called different": pairs}
        for name, share in shares.items():
            about: dict[str, Any] = {
                "metric": name,
                "value": share,
                "unit": "share",
                "arm": f"{documents} documents",
            }
            rows.append(Row(model="made up", task="null", n=counts.get(name, repeats), **about))
            if name in MOST and share > MOST[name] + 2 * np.sqrt(MOST[name] * (1 - MOST[name]) / repeats):
                off.append(f"{documents} documents: {name} in {share:.0%}")
    return rows, off
