import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise.measure import Perplexity
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise.text import TokenDocument, TokenDocuments, sample_windows


def measured(model, text, **settings):
    return measure(Perplexity(**settings), model, text)


def at(rows: list[Row], metric: str, length: int) -> Row:
    (row,) = [r for r in rows if r.metric == metric and r.length == length and r.position is None]
    return row


def markov_documents(*, vocabulary: int = 20, sizes: tuple[int, ...] = (600, 500, 700, 400)):
    """Text whose next token has a known law given the current one, and the logits of that law."""
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.normal(size=(vocabulary, vocabulary))
    law = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    documents = []
    for index, size in enumerate(sizes):
        ids = [0]
        for _ in range(size - 1):
            ids.append(int(rng.choice(vocabulary, p=law[ids[-1]])))
        documents.append(TokenDocument(f"doc{index}", np.array(ids, dtype=np.int32)))
    return TokenDocuments(tuple(documents), "markov", "corpus", ""), torch.from_numpy(logits).float()


def test_threads_that_share_a_model_measure_what_one_does(model, documents):
    def losses(batch_size):
        rows = measured(model, documents, lengths=[32], windows=5, batch_size=batch_size).rows
        return [row.value for row in rows if row.metric == "loss"]

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(losses, (1, 2, 3, 5)):
            assert found == pytest.approx(losses(1))


def test_loss_is_the_cross_entropy_of_disjoint_windows(model, documents):
    found = measured(model, documents, lengths=[8, 32, 16], windows=5, seed=3)
    windows = sample_windows(documents, 33, count=5, seed=3)
    for length in (8, 16, 32):
        losses = []
        for window in windows:
            ids = torch.from_numpy(window.ids.astype(np.int64))
            for start in range(0, 32, length):
                logits = model.model(ids[None, start : start + length]).logits[0]
                targets = ids[start + 1 : start + length + 1]
                losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
        loss = torch.cat(losses).double().mean().item()
        assert at(found.rows, "loss", length).value == pytest.approx(loss, abs=1e-5)
        assert at(found.rows, "perplexity", length).value == pytest.approx(math.exp(loss), rel=1e-5)
        assert at(found.rows, "loss", length).n == 5 * 32
    by_position = [row for row in found.rows if row.position is not None]
    assert [(row.length, row.position, row.position_end) for row in by_position] == [
        (32, begin, begin + 4) for begin in range(0, 32, 4)
    ]
    whole = at(found.rows, "loss", 32).value
    assert np.mean([row.value for row in by_position]) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("scale", [0.7, 1.4])
def test_the_best_temperature_undoes_a_scale(fake, scale):
    documents, table = markov_documents()
    model = fake(lambda ids: scale * table[ids], 20)
    plain = fake(lambda ids: table[ids], 20)
    settings = {"lengths": [32], "windows": 20}
    found = measured(model, documents, **settings).rows
    reference = measured(plain, documents, **settings).rows
    best = at(reference, "loss_best_temperature", 32)
    assert at(found, "loss_best_temperature", 32).value == pytest.approx(best.value, abs=1e-4)
    b = at(reference, "inverse_temperature", 32).value
    assert at(found, "inverse_temperature", 32).value == pytest.approx(b / scale, abs=5e-3)
    assert 0.9 < b < 1.1
    for row in found:
        if row.metric == "loss_best_temperature":
            assert row.value <= at(found, "loss", 32).value + 1e-9
            assert row.ci_low < row.value < row.ci_high


@pytest.mark.parametrize(("scale", "end"), [(6, 0.5), (0.2, 2.0)])
def test_a_temperature_beyond_the_range_is_its_end_and_told(fake, scale, end):
    documents, table = markov_documents()
    found = measured(fake(lambda ids: scale * table[ids], 20), documents, lengths=[16], windows=8)
    assert at(found.rows, "inverse_temperature", 16).value == pytest.approx(end)
    assert any("outside 0.5 .. 2.0" in note for note in found.notes)


def test_interruption_keeps_whole_segments_at_all_lengths(fake, documents):
    def logits(ids):
        if len(model.calls) > 5:
            raise KeyboardInterrupt
        return torch.zeros(*ids.shape, 320)

    model = fake(logits, 320)
    with pytest.raises(Interrupted) as caught:
        measured(model, documents, lengths=[8, 32], windows=6)
    partial = caught.value.partial
    assert partial.partial
    assert at(partial.rows, "loss", 8).value == pytest.approx(math.log(320))
    assert at(partial.rows, "loss", 8).n == 3 * 32
    assert at(partial.rows, "loss", 32).n == 2 * 32


def test_bad_logits_name_the_position(fake, documents):
    def logits(ids):
        found = torch.zeros(*ids.shape, 320)
        if ids.shape[1] == 8:
            found[2, 3, 5] = float("nan")
        return found

    with pytest.raises(LengthwiseError, match=r"fake .* at position 19 of tokens \d+ to \d+ of 'doc"):
        measured(fake(logits, 320), documents, lengths=[8, 32], windows=2)
