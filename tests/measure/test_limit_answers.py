"""What `limit` says of models whose ends are known, and of texts that cannot show them."""

import math
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import Limit
from lengthwise.measure.limit import told_elsewhere, unigram_loss
from lengthwise.measure.runner import run as measure
from lengthwise.report.limit_answer import limit_answers
from lengthwise.report.sentence import said
from lengthwise.results import Results
from tests.measure.copying import (
    VOCABULARY,
    Sees,
    copying,
    counting,
    documents_of,
    knowing,
    reading,
    without_repetition,
)

SETTINGS: dict[str, Any] = {"max_length": 512, "reference": 64, "passage": 16, "scored": 12, "windows": 4}
# What a model sees, then of `used_up_to` the value with its interval, and other rows: from, to.
MODELS: dict[str, tuple[Sees, tuple[float, float, float], dict[str, tuple[Any, Any]]]] = {
    "a window": (lambda back, _: back <= 100, (91, 81, 102), {}),
    "a gap": (
        lambda back, _: back <= 100 or back >= 300,
        (91, 81, 102),
        {"not_used": (102, 256), "used_again": (323, 496)},
    ),
    "a sink of 4 tokens": (lambda back, place: back <= 100 or place < 4, (91, 81, 102), {}),
    "a sink of 64 tokens": (
        lambda back, place: back <= 100 or place < 64,
        (math.sqrt(81 * 128), 81, 128),
        {"beginning_up_to": (None, None)},
    ),
    "the first tokens alone": (lambda _, place: place < 64, (0, 0, 32), {"beginning_up_to": (None, None)}),
}


def found(fake: Any, sees: Sees, documents: Any, **settings: Any) -> Results:
    model = reading(fake, copying(sees, vocabulary=VOCABULARY, strength=9.0))
    return measure(Limit(**{**SETTINGS, **settings}), model, documents)


def sentences(results: Results) -> str:
    return " ".join(each.whole for each in limit_answers(results))


@pytest.mark.parametrize("name", MODELS)
def test_ends_gaps_and_sinks(fake: Any, name: str) -> None:
    sees, (value, low, high), others = MODELS[name]
    results = found(fake, sees, without_repetition(count=4))
    rows = {row.metric: row for row in results.rows if row.distance is None}
    used = rows["used_up_to"]
    assert used.value == pytest.approx(value, rel=0.01)
    assert (used.ci_low, used.ci_high, used.at_least) == (low, high, None)
    stretches = ("not_used", "used_again", "beginning_up_to")
    assert {n: (rows[n].position, rows[n].position_end) for n in stretches if n in rows} == others
    text = sentences(results)
    gap = "not used from 102 to 256 tokens back. It is used again from 323 to 496 tokens back."
    assert (gap in text) == (name == "a gap")
    assert ("Only the very beginning" in text) == ("beginning_up_to" in others)


@pytest.mark.parametrize(("count", "few"), [(1, True), (2, True), (3, False), (8, False)])
def test_a_number_needs_three_documents(fake: Any, count: int, few: bool) -> None:
    results = found(fake, lambda back, _: back <= 100, without_repetition(count=count), windows=8)
    [used] = [row for row in results.rows if row.metric == "used_up_to"]
    assert (used.value is None) == few
    missing = "not known: that needs at least 3 documents of which a window is read twice, and there is one"
    assert (missing in sentences(results)) == few
    assert ("is not known" in said(results).sentence) == few
    assert sum(row.metric == "benefit" for row in results.rows) == 13


NO_USE = "Context is not used, not even nearby"
# What a model sees or its logits, the short answer, words that are said.
IN_PLACES: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "far alone": (lambda back, _: back > 100, "in places alone", ("one 102 tokens back has 6.8",)),
    "all but the beginning": (
        lambda _, place: place >= 20,
        "in places alone",
        ("one inside the text 32 tokens",),
    ),
    "from 41 tokens back on": (
        lambda back, _: back > 40,
        "in places alone",
        ("not used from 32 to 40 tokens back", "used again from 51 to 496"),
    ),
    "every fourth": (
        lambda back, _: back % 4 == 0,
        "used up to 45",
        ("not used 51", "again here and there from 64"),
    ),
    "the nearest alone": (lambda back, _: back < 20, "not used", (NO_USE, "from 32 tokens back on")),
    "nothing": (lambda *_: False, "; context not used.", (NO_USE, "less than 0.05 does not count")),
    "the token after": (copying(lambda *_: True, vocabulary=VOCABULARY, ahead=2), "to its harm", ("worse",)),
    "all is known": (knowing(), "is not known", ("a repeated passage can add nothing",)),
}


@pytest.mark.parametrize("name", IN_PLACES)
def test_use_in_places_alone_is_not_called_none(fake: Any, name: str) -> None:
    how, short, words = IN_PLACES[name]
    texts = counting(4) if name == "all is known" else without_repetition(count=4)
    logits = (
        how
        if name in ("all is known", "the token after")
        else copying(how, vocabulary=VOCABULARY, strength=9.0)
    )
    results = measure(Limit(**SETTINGS), reading(fake, logits), texts)
    assert short in said(results).sentence
    text = sentences(results)
    assert [word for word in words if word not in text] == []
    assert (NO_USE in text) is (NO_USE in words)


def test_a_benefit_counts_from_its_size_and_not_from_its_significance(fake: Any) -> None:
    """All documents agree that the passage is worth 0.02 nats a token."""
    gain = math.log((VOCABULARY - 1 + math.exp(0.02)) / VOCABULARY)
    model = reading(fake, copying(400, vocabulary=VOCABULARY, strength=0.02))
    results = measure(Limit(**SETTINGS), model, without_repetition(count=4))
    [nearby] = [row for row in results.rows if row.metric == "benefit_nearby"]
    assert nearby.value == pytest.approx(0.02 - gain, abs=1e-4)
    assert nearby.ci_low > 0
    assert "Context is not used, not even nearby" in sentences(results)


def test_a_model_at_chance_is_not_sound(fake: Any) -> None:
    results = found(fake, lambda *_: False, without_repetition(count=4))
    rows = {row.metric: row for row in results.rows if row.is_headline}
    assert rows["recent_loss"].value == pytest.approx(math.log(VOCABULARY), abs=1e-4)
    assert rows["sound_up_to"].value is None
    assert "The model predicts at chance" in sentences(results)


def repeating(period: int, seed: int) -> np.ndarray:
    return np.tile(np.random.default_rng(seed).permutation(VOCABULARY)[:period], 700 // period + 1)[:700]


def test_text_that_repeats_its_passages_shows_no_use(fake: Any) -> None:
    results = found(
        fake, lambda back, _: back <= 100, documents_of([repeating(90, seed) for seed in range(4)])
    )
    assert not any(row.metric in ("used_up_to", "benefit") for row in results.rows)
    assert "in every window the passages that are repeated occur elsewhere too" in sentences(results)
    assert any("In 4 of 4 windows a passage occurs elsewhere too" in note for note in results.notes)


def test_windows_of_repetitive_text_give_way_to_others(fake: Any) -> None:
    fresh = [np.random.default_rng(index).permutation(VOCABULARY)[:700] for index in range(3)]
    texts = [each for index in range(3) for each in (repeating(90, index), fresh[index])]
    results = found(fake, lambda back, _: back <= 100, documents_of(texts), windows=6)
    twice = {record["document"] for record in results.records.values() if "different" in record}
    assert twice == {"d1", "d3", "d5"}
    [used] = [row for row in results.rows if row.metric == "used_up_to"]
    assert (used.ci_low, used.ci_high) == (81, 102)


def test_the_share_of_a_passage_that_is_told_elsewhere() -> None:
    ids = np.arange(100)
    assert told_elsewhere(ids, 0, 16, 12) == 0
    # The last six of the passage's tokens come again: three of them after the same three.
    again = np.concatenate([ids, ids[10:16]])
    assert told_elsewhere(again, 0, 16, 12) == 3 / 12
    before = np.concatenate([1000 + ids[:20], ids, 1000 + ids[10:16]])
    assert told_elsewhere(np.concatenate([ids[:30], 500 + ids, ids[20:30]]), 20, 10, 6) == 1
    assert told_elsewhere(before, 40, 16, 12) == 0


def test_unigram_loss_of_known_frequencies() -> None:
    rng = np.random.default_rng(0)
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    drawn = [unigram_loss(rng.choice(4, size=200, p=shares)) for _ in range(200)]
    assert np.mean(drawn) == pytest.approx(-(shares * np.log(shares)).sum(), abs=0.01)


def test_not_sound_beyond_the_reference_is_said(fake: Any) -> None:
    """A model that knows the next token up to 64 tokens of context, and is wrong behind."""
    results = measure(Limit(**SETTINGS), reading(fake, knowing(64)), counting(4))
    [sound] = [row for row in results.rows if row.metric == "sound_up_to"]
    assert (sound.value, sound.ci_low, sound.ci_high) == (64, 64, 72)
    text = sentences(results)
    assert "not sound beyond 64 tokens of context, the reference: the limit is there or below" in text
    assert "the length that the model was trained for is not known" in text


def test_a_reference_beyond_the_trained_length_is_refused(model: Any) -> None:
    assert model.trained_length == 128
    with pytest.raises(UsageError, match="longer than the 128") as refused:
        Limit(**{**SETTINGS, "reference": 136}).resolved(model, model)
    assert "--reference 128" in str(refused.value.fix)
