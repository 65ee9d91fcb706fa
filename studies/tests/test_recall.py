import math

import numpy as np
import pytest
import torch

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise_studies.recall import Recall, sequences
from tests.measure.conftest import FakeModel, token_documents
from tests.measure.copying import copying
from tests.readings import in_memory

VOCABULARY = 320
SETTINGS = {"distances": [24, 48, 96], "passage": 16, "scored": 12, "windows": 8}


@pytest.fixture(scope="module")
def documents():
    return token_documents([900, 700, 800, 600])


def measured(model, text, **settings):
    return measure(Recall(**settings), model, text)


def at(rows: list[Row], metric: str, distance: int) -> Row:
    (row,) = [r for r in rows if r.metric == metric and r.distance == distance]
    return row


def test_the_two_sequences_of_a_pair():
    passage, longest = 4, 20
    ids = np.arange(longest + 3 * passage)
    same, different = ids[:4], ids[-4:]
    for distance in (4, 9, 20):
        first, second = sequences(ids, distance, passage, None)
        assert len(first) == len(second) == distance + passage - 1
        assert (first[:4] == same).all()
        assert (second[:4] == different).all()
        assert (first[4:] == second[4:]).all()
        assert (first[distance:] == same[:3]).all()
        # The filler is the last of what stands between, apart from both passages.
        assert first[4:distance].tolist() == list(range(24 - (distance - 4), 24))
    with_bos = sequences(ids, 9, passage, 99)
    assert (with_bos[:, 0] == 99).all()
    assert (with_bos[:, 1:] == sequences(ids, 9, passage, None)[:, 1:]).all()


def test_a_copying_model_benefits_within_its_reach_and_not_beyond(documents):
    found = measured(FakeModel(copying(50), VOCABULARY), documents, **SETTINGS)
    copied = math.log(VOCABULARY) - math.log1p((VOCABULARY - 1) * math.exp(-8.0))
    for distance in (24, 48):
        row = at(found.rows, "benefit", distance)
        # Now and then another occurrence of the token stands in between and is copied from instead.
        assert 0.7 * copied < row.value < 1.1 * copied
        assert row.ci_low > 0
        assert row.n == 8 * 12
    assert at(found.rows, "benefit", 96).value == 0
    for distance in SETTINGS["distances"]:
        same, different = (at(found.rows, f"loss_{which}", distance).value for which in ("same", "different"))
        assert at(found.rows, "benefit", distance).value == pytest.approx(different - same)


def test_losses_are_those_of_the_last_tokens_of_the_passage(documents):
    model = in_memory()
    found = measured(model, documents, **SETTINGS)
    record = found.records["recall/D48/p0002"]
    document = next(d for d in documents if d.id == record["document"])
    ids = document.ids[record["start"] : record["start"] + 96 + 3 * 16].astype(np.int64)
    for name, first in (("same", ids[:16]), ("different", ids[-16:])):
        tokens = torch.from_numpy(np.concatenate([first, ids[112 - 32 : 112], ids[:16]]))[None]
        logits = model.model(tokens).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none")
        assert record[name] == pytest.approx(losses[-12:].sum().item(), abs=1e-4)


def test_bad_logits_name_the_position(documents):
    def logits(ids):
        found = torch.zeros(*ids.shape, VOCABULARY)
        found[1, -3] = float("nan")
        return found

    with pytest.raises(LengthwiseError, match="at position 36 of tokens"):
        measured(FakeModel(logits, VOCABULARY), documents, **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"distances": (8, 24), "passage": 16, "scored": 12}, "distance 8 is shorter than .* 16"),
        ({"distances": ()}, "distances"),
        ({"passage": 16, "scored": 16}, "scored is 16 of a passage of 16"),
        ({"passage": 1, "scored": 1}, "passage is 1"),
    ],
)
def test_refused_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        Recall(**settings)
