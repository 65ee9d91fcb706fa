"""What every measurement gives the model to read, and against which labels: BOS, tokens, positions.

One entry in `CASES` for each entry in `MEASUREMENTS`. Every pass over the model is recorded while the measurement
scores, so the oracle is what the model was given, whatever function read it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from lengthwise.measure import MEASUREMENTS, run
from lengthwise.results import Row
from lengthwise.subjects import LoadedModel
from lengthwise.subjects.branches import CONTINUED, TOGETHER
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, as_corpus
from tests.measure.recorded import (
    BOS,
    SURE,
    TEXT,
    TOKENS,
    VOCABULARY,
    Pass,
    Recorder,
    begins_with_bos,
    counting_model,
    nats,
    numbers_tokenizer,
)

LOW, HIGH = nats(5, 6), nats(5, 9)
"""The loss of the next number of the text, and of any other."""
_SURE = math.exp(SURE) / (VOCABULARY - 1 + math.exp(SURE))
ENTROPY = LOW + SURE * (1 - _SURE)
"""Of a prediction after a number: -log p(sure) = LOW, and LOW + SURE of every other token."""

NONSENSE = as_corpus([tiny_text(900)])
"""For questions, whose words are no numbers."""

Expected = Mapping[str, Callable[[Row, float], float]]
"""Metric -> its value, from its row and the loss of the label after the first token of a view."""


def _mean(first: float, length: int, seams: int = 0) -> float:
    """The mean loss of `length` labels: the first one, those of another number, and the others."""
    return (first + seams * HIGH + (length - 1 - seams) * LOW) / length


@dataclass(frozen=True)
class Case:
    """One way to run a measurement."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    expected: Expected = field(default_factory=dict)
    path: ReadingPath = field(default_factory=ReadingPath)
    refused: tuple[str, ...] = ()
    """Shortcuts that the model cannot take."""
    together: bool = False
    """Whether several continuations are read in one pass, under a mask."""
    other: bool = False
    """With a second model."""
    from_cache: bool = False
    """Whether tokens are read after others that are in a cache."""
    holes: bool = False
    """Whether tokens are left out, with the positions of the others kept."""


_LIMIT = {"max_length": 64, "reference": 16, "windows": 1, "passage": 8, "scored": 6}
_LIMIT_EXPECTED: Expected = {
    "loss": lambda row, _: LOW,
    "excess": lambda row, _: 0,
    "benefit": lambda row, _: 0,
}
_LONG = {"max_length": 64, "short": 16, "stride": 8, "windows": 2}
_LONG_EXPECTED: Expected = {"loss": lambda row, first: _mean(first, 63)}
_QUESTIONS = {"tasks": ("needle_multi_key",), "lengths": (512,), "samples": 1, "batch_size": 2}
_PAIRS = {"lengths": (64,), "windows": 1}
# Before each of the passages of the tail, two for a distance.
_WHOLE: Callable[[Row, float], float] = lambda row, first: _mean(first, 64, seams=8)  # noqa: E731
_DECODED: Callable[[Row, float], float] = lambda row, first: _mean(LOW, 16, seams=2)  # noqa: E731


def _sides(metrics: Sequence[str], **more: Any) -> list[Case]:
    """A comparison's windows in one pass, in chunks, and with their end token by token."""
    return [
        Case(_PAIRS, dict.fromkeys(metrics, _WHOLE), **more),
        Case(_PAIRS, dict.fromkeys(metrics, _WHOLE), path=ReadingPath(chunk=24), from_cache=True, **more),
        Case(_PAIRS, dict.fromkeys(metrics, _DECODED), path=ReadingPath(decode=16), from_cache=True, **more),
    ]


CASES: Mapping[str, Sequence[Case]] = {
    "measure": [
        Case({"lengths": (16, 32), "windows": 2}, {"entropy": lambda row, _: 2 * ENTROPY}),
        Case({"lengths": (16,), "windows": 4, "estimator": "paper"}, {"entropy": lambda row, _: 2 * ENTROPY}),
    ],
    "ppl": [
        Case(
            {"lengths": (16, 32), "windows": 2, "batch_size": 2},
            {"loss": lambda row, first: _mean(first, row.length or 0)},
        )
    ],
    "limit": [
        Case(_LIMIT, _LIMIT_EXPECTED, from_cache=True, together=True),
        Case(_LIMIT, _LIMIT_EXPECTED, refused=(TOGETHER,), from_cache=True),
        Case(_LIMIT, _LIMIT_EXPECTED, refused=(TOGETHER, CONTINUED)),
    ],
    "longppl": [Case(_LONG, _LONG_EXPECTED), Case(_LONG, _LONG_EXPECTED, other=True)],
    "compare": _sides(("loss_a", "loss_b"), other=True),
    "predictions": _sides(("loss",)),
    "eval": [
        Case({**_QUESTIONS, "mode": "greedy"}, from_cache=True),
        Case({**_QUESTIONS, "mode": "likelihood"}, from_cache=True, together=True),
        Case({**_QUESTIONS, "mode": "likelihood"}, refused=(TOGETHER,), from_cache=True),
    ],
}
STARTS = {
    "the tokenizer adds BOS": ("auto", True, True),
    "the tokenizer adds none": ("auto", False, False),
    "always": ("always", False, True),
    "never": ("never", True, False),
}
"""`bos`, whether the tokenizer adds BOS to a text, and whether a view begins with it."""


def test_every_measurement_has_its_cases() -> None:
    assert list(CASES) == list(MEASUREMENTS)


RUNS = [
    (verb, index, start)
    for verb, cases in CASES.items()
    for index in range(len(cases))
    for start in STARTS
    # The setting is asked once of each verb. `eval` has none: prompts of questions begin as the tokenizer says.
    if STARTS[start][0] == "auto" or (index == 0 and verb != "eval")
]


@pytest.mark.parametrize(("verb", "index", "start"), RUNS)
def test_the_model_reads_bos_and_the_texts_own_tokens_at_their_places(verb, index, start, monkeypatch):
    check_what_is_read(MEASUREMENTS[verb].measurement, CASES[verb][index], start, monkeypatch)


def check_what_is_read(kind: Any, case: Case, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a case, which begins as `STARTS` says, and check all that its models read and the numbers that it gave."""
    (bos, adds_bos, begins), verb = STARTS[start], kind.about.kind
    if verb == "eval":
        tokenizer: Any = tiny_tokenizer(bos_token="<s>")
        tokenizer, text = begins_with_bos(tokenizer) if adds_bos else tokenizer, NONSENSE
        measurement = kind(**case.settings)
    else:
        tokenizer, text = numbers_tokenizer(adds_bos=adds_bos), TEXT
        measurement = kind(bos=bos, **case.settings)
    models = [counting_model(tokenizer, name) for name in ("one", "two")[: 1 + case.other]]
    if verb == "eval":
        give_every_pair_a_loss(models[0])
    recorders = [Recorder(model) for model in models]
    for model in models:
        model.path = case.path
        # What proves it is not recorded.
        assert model.head
        for shortcut in case.refused:
            model.proofs.refuse(shortcut, "for the test", name=model.name)
    score = kind.score

    def recorded(*arguments: Any) -> Iterator[Any]:
        for recorder in recorders:
            recorder.on = True
        found = list(score(*arguments))
        # What looks at a model after a run is not recorded.
        for recorder in recorders:
            recorder.on = False
        yield from found

    monkeypatch.setattr(kind, "score", recorded)
    results = run(measurement, models[0], text, other=models[1] if case.other else None)
    # A comparison's sides and the prompts of questions have their own.
    if verb not in ("compare", "predictions", "eval"):
        assert results.provenance["measurement"]["bos_id"] == (BOS if begins else None)
        assert any(f"replaced by token {BOS}." in note for note in results.notes) == begins
    assert (models[0].proofs.up_to.get(TOGETHER, 0) > 0) == case.together
    for recorder in recorders:
        assert recorder.passes
        assert any(each.before > 0 for each in recorder.passes) == case.from_cache
        for each in recorder.passes:
            check_tokens(each, begins=begins)
            check_positions(each, holes=case.holes)
    first = nats(BOS if begins else 5, 6)
    for metric, value in case.expected.items():
        rows = [row for row in results.rows if row.metric == metric]
        rows = [row for row in rows if row.is_whole] or rows
        assert rows, metric
        for row in rows:
            assert row.value == pytest.approx(value(row, first), abs=1e-4), row
    if case.settings.get("mode") == "likelihood":
        check_ranked(measurement, models[0], text, results.records)


def check_tokens(read: Pass, *, begins: bool) -> None:
    """BOS is the first token of what is read from its beginning, if any, and no token of what continues a cache."""
    for ids, real in zip(read.ids, read.real, strict=True):
        tokens = ids[real].tolist()
        starts = [BOS] * (begins and not read.before)
        assert tokens[: len(starts)] == starts
        assert BOS not in tokens[len(starts) :]


def check_positions(read: Pass, *, holes: bool) -> None:
    """A token's position is the number of tokens before it; where some are removed, its place in the text."""
    for ids, real, sees, positions in zip(read.ids, read.real, read.sees, read.positions, strict=True):
        if not holes:
            assert positions[real].tolist() == (sees[real] - 1).tolist()
            continue
        assert positions[0] == 0
        assert (positions.diff() > 0).all()
        # Words are numbers, and each document has numbers of its own; the control has tokens of both.
        places: dict[int, set[int]] = {}
        for token, position in zip(ids.tolist(), positions.tolist(), strict=True):
            if token != BOS:
                places.setdefault((token - 2) // TOKENS, set()).add(token - position)
        assert all(len(starts) == 1 for starts in places.values())


def give_every_pair_a_loss(model: LoadedModel) -> None:
    """Answers are no numbers that count up: so every label after every token gets a loss of its own."""
    head = model.model.get_output_embeddings().weight
    with torch.no_grad():
        head.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))


def check_ranked(measurement: Any, model: LoadedModel, text: Corpus, records: Mapping[str, Any]) -> None:
    """The likelihood of an answer is that of its own tokens after the prompt's."""
    head = model.model.get_output_embeddings().weight.detach()
    # Of an embedding with a single one, the norm makes sqrt(V).
    log_p = (math.sqrt(len(head)) * head.T).log_softmax(dim=-1)
    for item in measurement.items(model, text, model):
        question, scores = item.content, []
        for answer in question.answers:
            after = [question.ids[-1], *answer[:-1]]
            scores.append(log_p[after, list(answer)].sum().item())
        gold = scores[question.candidates.index(question.golds[0])]
        total = math.log(sum(map(math.exp, scores)))
        assert records[item.key]["gold_loss"] == pytest.approx(total - gold, abs=1e-4)
