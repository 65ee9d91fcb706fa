import math

import pytest
import torch

from lengthwise.alignment import PairGeometry
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure import Misalignment
from lengthwise.measure.lattice import score_lattice, score_suffixes
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.subjects import Reading, Want
from lengthwise.text import view


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
        place += size
    assert place == len(cells)


def test_a_model_that_looks_at_the_last_token_alone_has_no_misalignment(fake, documents):
    table = torch.randn(320, 320, generator=torch.Generator().manual_seed(0))
    found = measured(fake(lambda ids: table[ids], 320), documents, lengths=[16], windows=4)
    rows = headline(found.rows, 16)
    assert rows["jeffreys"].value == 0
    assert rows["top1_agreement"].value == 1
    assert rows["sce"].value == pytest.approx(rows["entropy"].value)


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
