"""The lattice against Eq. 2 by exact enumeration, on a model whose predictions are a table; and `measure`."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from lengthwise.alignment import PairGeometry, entropy, jeffreys, symmetric_cross_entropy
from lengthwise.checkpoints import head
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure import Misalignment
from lengthwise.measure.lattice import (
    admissible_contexts,
    draw_starts,
    draw_suffixes,
    score_lattice,
    score_suffixes,
    window_sums,
)  # fmt: skip
from lengthwise.measure.measurement import Record
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.subjects import Read, Reading, Rows, Want
from lengthwise.text import view

VOCABULARY = 4


def table(logits: torch.Tensor) -> Rows:
    """Rows that are there."""
    return Rows(lambda rows: logits[rows], len(logits), VOCABULARY)


class TableModel:
    """The text is a circle of `period` tokens, each its own position; logits depend on (position, context)."""

    def __init__(self, *, length: int, period: int = 5, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(period, length, VOCABULARY, generator=generator, dtype=torch.float64)
        self.length, self.period = length, period

    def window(self, start: int) -> np.ndarray:
        return (start + np.arange(2 * self.length)) % self.period

    def read(self, readings: list[Reading]) -> list[Read]:
        """Its rows: all, or the last one."""
        logits = [self.table[each.tokens, np.arange(len(each.tokens))] for each in readings]
        wants = [each.want for each in readings]
        return [
            Read(rows=table(own[-1:] if want is Want.NEXT else own))
            for own, want in zip(logits, wants, strict=True)
        ]

    def lattice(self, window: int, starts: tuple[int, ...]) -> Record:
        views = [view(self.window(window), start, self.length, None) for start in sorted(set(starts))]
        reads = self.read([Reading(tokens=tokens, want=Want.ROWS) for tokens in views])
        return score_lattice([read.rows for read in reads], sorted(starts))

    def paper(self, window: int, starts: tuple[int, int], cell: int) -> Record:
        first, second = sorted(starts)
        geometry = PairGeometry(self.length, second - first)
        lengths = (geometry.long_rows.start + cell + 1, geometry.short_rows.start + cell + 1)
        return score_suffixes(self, self.window(window), (first, second), lengths, None)

    def equation_2(self, score) -> float:
        """The mean over positions and over l1, l2 in L//2 + 1 .. L, from the table."""
        contexts = range(self.length // 2 + 1, self.length + 1)
        values = [
            score(self.table[t, one - 1], self.table[t, other - 1]).item()
            for t in range(self.period)
            for one, other in product(contexts, contexts)
        ]
        return float(np.mean(values))


def estimate(found: Record, length: int) -> dict[str, float]:
    sums = window_sums(found, length)
    entropy_part = 2 * sums["entropy"] / sums["rows"]
    disagreement = sums["jeffreys"] / sums["pairs"]
    return {"entropy": entropy_part, "jeffreys": disagreement, "sce": entropy_part + disagreement}


def mean_of(estimates: list[dict[str, float]], weights: list[float] | None = None) -> dict[str, float]:
    return {name: float(np.average([e[name] for e in estimates], weights=weights)) for name in estimates[0]}


@pytest.mark.parametrize("length", [4, 5, 6, 7])
@pytest.mark.parametrize("views", [2, 3])
def test_the_expectation_of_the_lattice_is_equation_2(length: int, views: int):
    model = TableModel(length=length)
    n = admissible_contexts(length)
    estimates = [
        estimate(model.lattice(window, starts), length)
        for window in range(model.period)
        for starts in product(range(n), repeat=views)
    ]
    found = mean_of(estimates)
    assert found["jeffreys"] == pytest.approx(model.equation_2(jeffreys), rel=1e-12)
    assert found["entropy"] == pytest.approx(
        model.equation_2(lambda p, q: entropy(p) + entropy(q)), rel=1e-12
    )
    assert found["sce"] == pytest.approx(model.equation_2(symmetric_cross_entropy), rel=1e-12)


@pytest.mark.parametrize("length", [4, 7])
def test_the_expectation_of_the_paper_estimator_is_equation_2(length: int):
    model = TableModel(length=length)
    n = admissible_contexts(length)
    estimates, weights = [], []
    for window, one, other in product(range(model.period), range(n), range(n)):
        cells = n - abs(one - other)
        for cell in range(cells):
            estimates.append(estimate(model.paper(window, (one, other), cell), length))
            weights.append(1 / cells)
    found = mean_of(estimates, weights)
    assert found["jeffreys"] == pytest.approx(model.equation_2(jeffreys), rel=1e-12)
    assert found["sce"] == pytest.approx(model.equation_2(symmetric_cross_entropy), rel=1e-12)


def test_both_have_the_same_law_of_position_and_lengths():
    """In a single window, where positions are not alike, both still expect the same disagreement."""
    length, window = 6, 2
    model = TableModel(length=length, period=12)
    n = admissible_contexts(length)
    lattice, paper = [], []
    for starts in product(range(n), repeat=2):
        cells = n - abs(starts[0] - starts[1])
        lattice.append(estimate(model.lattice(window, starts), length)["jeffreys"])
        of_cells = [model.paper(window, starts, cell) for cell in range(cells)]
        paper.append(np.mean([estimate(found, length)["jeffreys"] for found in of_cells]))
    assert np.mean(lattice) == pytest.approx(np.mean(paper), rel=1e-12)


def test_bins_weigh_all_their_cells_alike():
    length = 10
    model = TableModel(length=length)
    n, low = admissible_contexts(length), length // 2
    total: dict[str, np.ndarray] = {}
    for window, starts in product(range(model.period), product(range(n), repeat=2)):
        sums = window_sums(model.lattice(window, starts), length)
        for curve in ("matrix", "position"):
            for name, values in sums[curve].items():
                total[f"{curve} {name}"] = total.get(f"{curve} {name}", 0) + np.array(values)
    # With n = 5 there are as many bins as contexts, so that each cell of the matrix is one pair of lengths.
    index = 0
    for one in range(n):
        for other in range(one + 1):
            p, q = model.table[:, low + one], model.table[:, low + other]
            for name, score in (("jeffreys", jeffreys), ("sce", symmetric_cross_entropy)):
                value = total[f"matrix {name}"][index] / total["matrix weight"][index]
                assert value == pytest.approx(score(p, q).mean().item(), rel=1e-12, abs=1e-15)
            index += 1
    for short in range(n):
        by_shorter = [
            jeffreys(model.table[:, low + one], model.table[:, low + other]).mean().item()
            for one, other in product(range(n), repeat=2)
            if min(one, other) == short
        ]
        value = total["position jeffreys"][short] / total["position weight"][short]
        assert value == pytest.approx(np.mean(by_shorter), rel=1e-12, abs=1e-15)


def test_equal_starts_are_run_once_and_agree_exactly():
    model = TableModel(length=6)
    found = model.lattice(0, (1, 1, 2))
    cells = found["cells"]
    offsets = cells.long_rows - cells.short_rows
    assert list(zip(offsets, cells.times, strict=True)) == [(0, 1)] * 3 + [(1, 2)] * 2
    same = offsets == 0
    assert (cells.jeffreys[same] == 0).all()
    assert (cells.js[same] == 0).all()
    assert (cells.agreement[same] == 1).all()
    assert found["rows"] == 3 * admissible_contexts(6)
    sums = window_sums(found, 6)
    assert sums["pairs"] == 3
    assert sums["cells"] == 3 + 2 * 2


@pytest.mark.parametrize("chunk", [1, 3, 8, 10**6])
def test_the_size_of_a_chunk_changes_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch):
    model = TableModel(length=11)
    expected = window_sums(model.lattice(1, (0, 2, 2, 5)), 11)
    monkeypatch.setattr(head, "CHUNK_BYTES", chunk * 4 * VOCABULARY)
    found = window_sums(model.lattice(1, (0, 2, 2, 5)), 11)
    assert found["jeffreys"] == pytest.approx(expected["jeffreys"], rel=1e-12)
    assert found["entropy"] == pytest.approx(expected["entropy"], rel=1e-12)
    assert found["matrix"]["sce"] == pytest.approx(expected["matrix"]["sce"], rel=1e-12)


def test_draws_are_uniform():
    rng = np.random.default_rng(0)
    starts = np.array([draw_starts(rng, 8, 3) for _ in range(4000)])
    assert (starts[:, 0] <= starts[:, 1]).all()
    counts = np.bincount(starts.flatten(), minlength=4)
    assert len(counts) == 4
    assert np.abs(counts / counts.sum() - 0.25).max() < 0.02
    suffixes = [draw_suffixes(rng, 8) for _ in range(4000)]
    pairs = np.zeros((4, 4))
    for begins, lengths in suffixes:
        one, other = (length - 5 for length in lengths)
        assert one >= other
        assert begins[0] + lengths[0] == begins[1] + lengths[1]
        pairs[one, other] += 0.5
        pairs[other, one] += 0.5
    assert np.abs(pairs / pairs.sum() - 1 / 16).max() < 0.01


def measured(model, text, *, log=None, **settings):
    return measure(Misalignment(**settings), model, text, log=log)


def headline(rows: list[Row], length: int) -> dict[str, Row]:
    return {
        row.metric: row
        for row in rows
        if row.length == length and row.context_other is None and row.position is None
    }


def test_rows(model, documents):
    found = measured(model, documents, lengths=[32, 16], windows=6, views=3)
    for length in (16, 32):
        rows = headline(found.rows, length)
        assert set(rows) == {"sce", "entropy", "jeffreys", "js", "top1_agreement"}
        assert rows["sce"].value == pytest.approx(rows["entropy"].value + rows["jeffreys"].value)
        assert 0 < rows["js"].value < math.log(2)
        assert 0 < rows["top1_agreement"].value < 1
        assert rows["top1_agreement"].unit == "share"
        assert rows["entropy"].n == 6 * 3 * length // 2
        for row in rows.values():
            assert row.ci_low < row.value < row.ci_high
            assert row.documents == 4
    matrix = [row for row in found.rows if row.context_other is not None and row.length == 32]
    assert {row.metric for row in matrix} == {"jeffreys", "sce"}
    assert {row.context for row in matrix} == {19, 22, 25, 28, 32}
    assert all(row.context_other <= row.context for row in matrix)
    assert sum(row.n for row in matrix if row.metric == "sce") == headline(found.rows, 32)["sce"].n
    curve = [row for row in found.rows if row.position is not None and row.length == 32]
    assert [(row.position, row.position_end) for row in curve] == [(a, a + 2) for a in range(16, 32, 2)]
    assert not found.partial


def running_mean_logits(ids: torch.Tensor) -> torch.Tensor:
    """A cheap causal model: the prediction depends on the mean of all tokens that were read."""
    generator = torch.Generator().manual_seed(0)
    embedding, head = torch.randn(320, 8, generator=generator), torch.randn(8, 320, generator=generator)
    read = embedding[ids]
    mean = read.cumsum(dim=1) / torch.arange(1, ids.shape[1] + 1)[:, None]
    return (0.5 * read + 2 * mean) @ head


def test_the_two_estimators_agree_within_their_intervals(fake, make_documents):
    documents = make_documents([3000] * 12, seed=3)
    model = fake(running_mean_logits, 320)
    common = {"lengths": [16], "seed": 5}
    lattice = headline(measured(model, documents, windows=60, views=4, **common).rows, 16)
    paper = measured(model, documents, windows=600, estimator="paper", **common)
    paper = headline(paper.rows, 16)
    for metric in ("sce", "entropy", "jeffreys", "js", "top1_agreement"):
        one, other = lattice[metric], paper[metric]
        spread = math.hypot(one.ci_high - one.ci_low, other.ci_high - other.ci_low) / 2
        assert abs(one.value - other.value) < spread, metric
        # The test can fail: the interval is narrow enough to tell a wrong law of the lengths.
        assert spread < 0.25 * one.value, metric


@pytest.mark.parametrize("bos_id", [None, 7])
def test_a_cell_of_the_lattice_is_what_the_two_suffixes_give(model, documents, bos_id):
    length, starts = 24, (1, 4, 11)
    ids = documents[0].ids[:60]
    readings = [Reading(tokens=view(ids, start, length, bos_id), want=Want.ROWS) for start in starts]
    lattice = score_lattice([read.rows for read in model.read(readings)], starts)
    assert lattice["pairs"] == 3
    cells = lattice["cells"]
    place = 0
    for first, second in [(1, 4), (1, 11), (4, 11)]:
        size = PairGeometry(length, second - first).paired_positions
        for cell in (place, place + size - 1):
            lengths = (int(cells.long_rows[cell]) + 1, int(cells.short_rows[cell]) + 1)
            assert first + lengths[0] == second + lengths[1]
            alone = score_suffixes(model, ids, (first, second), lengths, bos_id)["cells"]
            assert cells.jeffreys[cell] == pytest.approx(alone.jeffreys[0], abs=1e-5, rel=1e-5)
            assert cells.entropy[cell] == pytest.approx(alone.entropy[0], abs=1e-5)
            assert cells.js[cell] == pytest.approx(alone.js[0], abs=1e-5)
            assert cells.agreement[cell] == alone.agreement[0]
            # Where it counts in the bins of contexts.
            assert (alone.long_rows[0], alone.short_rows[0]) == (
                cells.long_rows[cell],
                cells.short_rows[cell],
            )
        place += size
    assert place == len(cells)


def test_a_log_of_other_text_is_refused(model, documents, make_documents):
    log = SampleLog()
    measured(model, documents, lengths=[16], windows=2, log=log)
    other = make_documents([900, 700, 800, 600], seed=9)
    with pytest.raises(UsageError, match="another text, tokenizer or seed"):
        measured(model, other, lengths=[16], windows=2, log=log)


def test_bad_logits_name_model_window_and_position(fake, make_documents):
    def logits(ids):
        found = torch.zeros(*ids.shape, 320)
        found[ids == 5] = float("inf")
        return found

    documents = make_documents([23])
    documents[0].ids[:] = 1
    documents[0].ids[13] = 5
    with pytest.raises(
        LengthwiseError, match=r"fake gives logits .* at position 13 of tokens 0 to 22 of 'doc0'"
    ):
        measured(fake(logits, 320), documents, lengths=[16], windows=1, views=8)


def test_fewer_windows_than_asked_for_are_used_and_told(model, make_documents):
    found = measured(model, make_documents([60, 50]), lengths=[16], windows=50)
    assert len(list(found.records)) == 4
    assert any("holds 4 windows of 23 tokens" in note for note in found.notes)
    assert not found.partial


def test_rope_that_looks_at_the_input_length_is_told(fake, documents):
    model = fake(lambda ids: torch.zeros(*ids.shape, 320), 320)
    model.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0}
    found = measured(model, documents, lengths=[16], windows=1)
    assert any("dynamic" in note for note in found.notes)
    found = measured(model, documents, lengths=[16], windows=1, estimator="paper")
    assert not any("dynamic" in note for note in found.notes)
