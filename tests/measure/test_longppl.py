"""LongPPL against the published package, on the same texts and models."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lengthwise.errors import UsageError
from lengthwise.measure import LongPpl, Misalignment
from lengthwise.measure.runner import run as measure
from lengthwise.results import Row
from lengthwise.subjects import LoadedModel
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, as_corpus
from lengthwise.text.spans import joined, tokens_within

# Random weights are never sure of anything: levels that some of their tokens pass.
LEVELS: dict[str, float] = {"alpha": 0.5, "beta": -6.0}
SETTINGS: dict[str, Any] = {"max_length": 120, "short": 40, "stride": 16, "windows": 4, **LEVELS}


def measured(model: Any, text: Any, *, evaluator: Any = None, **settings: Any) -> Any:
    return measure(LongPpl(**settings), model, text, other=evaluator)


def loaded(seed: int, tokenizer: Any, **sizes: Any) -> LoadedModel:
    return LoadedModel(tiny_llama(seed=seed, **sizes), tokenizer, f"tiny{seed}", "memory")


@pytest.fixture(scope="module")
def evaluator() -> LoadedModel:
    return loaded(1, tiny_tokenizer())


@pytest.fixture(scope="module")
def of_letters() -> LoadedModel:
    """A model whose tokens are single characters."""
    vocabulary = {letter: index for index, letter in enumerate(["<unk>", *sorted(set(tiny_text(2000)))])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")
    return loaded(2, tokenizer, vocab_size=len(vocabulary))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return as_corpus([tiny_text(200, seed=index) for index in range(4)])


def published(text: str, model: LoadedModel, evaluator: LoadedModel) -> dict[str, Any]:
    authors = pytest.importorskip("longppl.longppl", reason="needs the authors' package longppl")
    return authors.compute_longppl(
        text,
        model.model,
        evaluator.model,
        model.tokenizer,
        evaluator.tokenizer,
        trunc_len=SETTINGS["short"],
        sliding_window=SETTINGS["stride"],
        **LEVELS,
    )


def one(rows: list[Row], metric: str) -> Row:
    (row,) = [row for row in rows if row.metric == metric]
    return row


@pytest.mark.parametrize(
    ("which", "batch_size"), [("itself", 1), ("another model", 3), ("another tokenizer", 50)]
)
def test_it_is_what_the_published_package_gives(evaluator, of_letters, corpus, which, batch_size):
    model = {
        "itself": evaluator,
        "another model": loaded(3, tiny_tokenizer()),
        "another tokenizer": of_letters,
    }[which]
    found = measured(model, corpus, evaluator=evaluator, batch_size=batch_size, **SETTINGS)
    losses, keys = 0.0, 0
    for record in found.records.values():
        text = corpus.documents[record["document"]][record["start"] : record["end"]]
        assert len(evaluator.tokenizer(text).input_ids) == SETTINGS["max_length"]
        theirs = published(text, model, evaluator)
        assert theirs["n_key_token"] == record["key_tokens"] > 0
        assert theirs["longppl"] == pytest.approx(np.exp(record["key_loss"] / record["key_tokens"]), rel=1e-5)
        assert theirs["ppl"] == pytest.approx(np.exp(record["loss"] / record["tokens"]), rel=1e-5)
        losses += theirs["n_key_token"] * np.log(theirs["longppl"])
        keys += theirs["n_key_token"]
    assert one(found.rows, "longppl").value == pytest.approx(np.exp(losses / keys), rel=1e-5)
    assert one(found.rows, "longppl").n == keys
    assert one(found.rows, "loss_key").value == pytest.approx(losses / keys, rel=1e-5)


def test_a_text_of_any_length(evaluator: LoadedModel):
    """The last window is shorter; a text within the short context has no key tokens."""
    text = tiny_text(120, seed=9)
    settings = LongPpl(**SETTINGS)
    whole, losses = settings.find_key_tokens(evaluator, text)
    size = len(evaluator.tokenizer(text).input_ids)
    assert (size - 40) % 16
    assert whole["compared"] == size - 40 - 16
    assert len(losses) == size - 1
    theirs = published(text, evaluator, evaluator)
    assert np.exp(losses.mean()) == pytest.approx(theirs["ppl"], rel=1e-5)
    brief, _ = settings.find_key_tokens(evaluator, text[:50])
    assert brief == {"spans": [], "compared": 0, "jeffreys": 0}


def test_the_passes_give_the_disagreement_too(evaluator, corpus, of_letters):
    own = measured(evaluator, corpus, **SETTINGS)
    other = measured(of_letters, corpus, evaluator=evaluator, **SETTINGS)
    assert [row.metric for row in other.rows] == ["longppl", "loss_key", "perplexity", "loss", "key_share"]
    row = one(own.rows, "jeffreys")
    # The first short window is the text's beginning, whose context is not cut.
    assert row.n == 4 * (80 - 16)
    # The same model's disagreement over contexts of this size, by the other measurement: same order.
    from lengthwise.text import tokenize

    lattice = measure(
        Misalignment(lengths=(80,), windows=4), evaluator, tokenize(corpus, evaluator.tokenizer, cache=False)
    )
    assert 0.3 < row.value / one([r for r in lattice.rows if r.position is None and not r.context_other],
                                 "jeffreys").value < 3  # fmt: skip


def test_no_key_tokens_is_no_number(evaluator: LoadedModel, corpus: Corpus):
    found = measured(evaluator, corpus, **{**SETTINGS, "alpha": 100.0})
    assert one(found.rows, "longppl").value is None
    assert one(found.rows, "key_share").value == 0
    assert any("not defined" in note for note in found.notes)


def test_spans_of_neighbours_are_joined_and_hold_whole_tokens():
    offsets = np.array([[0, 3], [3, 5], [7, 9], [9, 9], [9, 12]])
    spans = joined(offsets[[1, 2, 4]])
    assert spans == [[3, 5], [7, 12]]
    tokens = np.array([[0, 3], [3, 4], [4, 5], [4, 8], [7, 12], [12, 13], [8, 8]])
    assert tokens_within(tokens, spans).tolist() == [1, 2, 4]
    assert tokens_within(tokens, [(0, 3)]).tolist() == []
    assert tokens_within(tokens, []).tolist() == []


@pytest.mark.parametrize("which", ["another model", "another tokenizer"])
def test_the_key_tokens_of_an_earlier_run(evaluator, of_letters, corpus, tmp_path, which):
    """Read back from its log, they give the numbers that the evaluator gives."""
    model = of_letters if which == "another tokenizer" else loaded(3, tiny_tokenizer())
    measure(LongPpl(**SETTINGS), evaluator, corpus, out=tmp_path / "first")
    earlier = {"key_tokens": str(tmp_path / "first"), **SETTINGS}
    found = measured(model, corpus, **earlier)
    direct = measured(model, corpus, evaluator=evaluator, **SETTINGS)
    assert found.rows == direct.rows
    assert found.provenance["measurement"] == direct.provenance["measurement"]
    assert list(found.records.values()) == list(direct.records.values())
    other = as_corpus([tiny_text(200, seed=50)])
    with pytest.raises(UsageError):
        measured(model, other, **earlier)
    # They were found with these, and the run would record others.
    for name, value in {
        "short": 48,
        "stride": 8,
        "windows": 3,
        "seed": 1,
        "alpha": 3.0,
        "beta": -1.0,
    }.items():
        with pytest.raises(UsageError, match=rf"found with another {name}\n"):
            measured(model, corpus, **earlier | {name: value})


def test_an_evaluator_beyond_its_trained_length_is_named(evaluator: LoadedModel, corpus: Corpus):
    short = loaded(1, tiny_tokenizer(), max_position_embeddings=64)
    for model, told in ((evaluator, False), (short, True)):
        notes = measured(model, corpus, **SETTINGS).notes
        assert any(f"trained for {model.trained_length} tokens" in note for note in notes) == told
