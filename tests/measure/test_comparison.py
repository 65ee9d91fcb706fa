"""Two sides of a comparison: the windows, the sums, the sentences, against plain formulas and planted numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.measure.change_point import Stretch, beginning, best_split
from lengthwise.measure.comparison import Comparison
from lengthwise.measure.distributions import apart, kept, read_kept
from lengthwise.measure.repeated_windows import Layout, position_edges
from lengthwise.measure.runner import run
from lengthwise.report.comparison_evidence import evidence
from lengthwise.report.comparison_verdict import verdict
from lengthwise.results import Row
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, Read, Reading, Want
from lengthwise.subjects.reading import ReadingPath, reading_path
from tests.readings import Elsewhere, token_losses

MODEL = Subject(model="m")


class Shifted(Elsewhere):
    """A side whose losses are those of a model and `by(position, length)` nats more."""

    def __init__(self, model: LoadedModel, by: Callable[[int, int], float]) -> None:
        self._model, self._by = model, by

    def losses(self, tokens: Any, labels: Any) -> Tensor:
        [found] = token_losses(self._model, [tokens], [labels])
        return found + torch.tensor([self._by(p, len(found)) for p in range(len(found))])


class Copies(Elsewhere):
    """A side that predicts a token with `loss` nats where it came before after the same token, up to `reach` back."""

    def __init__(self, reach: int, loss: float = 0.5) -> None:
        self._reach, self._loss = reach, loss

    def losses(self, tokens: Any, labels: Any) -> Tensor:
        pairs = list(zip(tokens, labels, strict=True))
        known = [pair in pairs[max(0, at - self._reach) : at] for at, pair in enumerate(pairs)]
        return torch.where(torch.tensor(known), self._loss, 3.0).double()


@pytest.mark.parametrize("layout", [Layout(128), Layout(1024), Layout(512, decode=128)])
def test_every_passage_came_before_in_its_own_window_alone(layout: Layout) -> None:
    stretch = np.arange(2 * layout.text)
    both = layout.sequences(stretch)
    assert both.shape == (2, layout.length + 1)
    assert (both[0, layout.text :] == both[1, layout.text :]).all()
    for distance, half, rows in layout.passages():
        tokens = slice(rows.start + 1, rows.stop + 1)
        before = slice(tokens.start - distance, tokens.stop - distance)
        assert (both[half, tokens] == both[half, before]).all()
        assert not set(both[half, tokens]) & set(both[1 - half, : layout.text])
        assert rows.start >= layout.first
    assert max(layout.distances) == layout.text - 1


def test_edges() -> None:
    assert position_edges(256) == [0, 64, 96, 128, 192, 256]
    assert position_edges(100)[-2:] == [96, 100]


def rows_of(spec: Comparison, a: Any, b: Any, documents: Any) -> dict[tuple[Any, ...], Row]:
    found = run(spec, a, documents, other=b)
    return {
        (row.metric, row.length, row.distance if row.position is None else row.position): row
        for row in found.rows
    }


def test_the_numbers_are_those_of_whole_logits(model, other_model, documents):
    """Against [T, V] softmaxes of both models on every window."""
    spec = Comparison(lengths=(128,), windows=3)
    rows = rows_of(spec, model, other_model, documents)
    own, other, kl, top = [], [], [], []
    for item in spec.resolved(model, other_model).items(model, (None, documents), other_model):
        for window in item.content:
            ids = torch.from_numpy(window)
            p, q = (
                each.model(ids[None, :-1]).logits[0].double().log_softmax(-1) for each in (model, other_model)
            )
            own.append(-p.gather(1, ids[1:, None])[:, 0])
            other.append(-q.gather(1, ids[1:, None])[:, 0])
            kl.append((p.exp() * (p - q)).sum(-1))
            top.append(p.argmax(-1) == q.argmax(-1))
    a, b = torch.cat(own), torch.cat(other)
    expected = {
        "difference": (b - a).abs().mean(),
        "shift": (b - a).mean(),
        "loss_a": a.mean(),
        "loss_b": b.mean(),
        "kl": torch.cat(kl).mean(),
        "same_top": torch.cat(top).double().mean(),
        "largest": (b - a).abs().max(),
    }
    for metric, value in expected.items():
        assert rows[metric, 128, None].value == pytest.approx(value.item(), abs=2e-5), metric
    at = torch.stack([(y - x).abs() for x, y in zip(own, other, strict=True)])
    assert rows["difference", 128, 64].value == pytest.approx(at[:, 64:96].mean().item(), abs=2e-5)


def test_the_bound_of_kl(model: LoadedModel, other_model: LoadedModel) -> None:
    """From the likeliest tokens KL is never more than exact, and exact where they are all tokens."""
    ids = np.random.default_rng(1).integers(320, size=65)
    a, b = (each.read([Reading(tokens=ids[:-1], want=Want.ROWS)])[0] for each in (model, other_model))
    exact, _ = apart(a, b, ids[1:])
    one, two = (read_kept(kept(each, ids[1:])) for each in (a, b))
    found, bounded = apart(one, two, ids[1:])
    assert bounded
    assert (found[2] <= exact[2] + 1e-6).all()
    everything, _ = apart(with_top(a, model.vocab_size), with_top(b, model.vocab_size), ids[1:])
    np.testing.assert_allclose(everything[2], exact[2], atol=1e-5)
    np.testing.assert_allclose(found[1] - found[0], exact[1] - exact[0], atol=1e-5)
    assert (found[3] == exact[3]).all()


def with_top(read: Read, count: int) -> Read:
    """The reading with its `count` likeliest tokens in place of rows."""
    best = read.rows.log_p(slice(0, len(read.rows))).detach().topk(count)
    return Read(losses=torch.zeros(len(read.rows)), likeliest=(best.indices, best.values))


def test_benefits_are_exact(make_documents: Callable[..., Any]) -> None:
    """A side that copies from up to 300 tokens back has the benefit at smaller distances, and not at greater ones."""
    documents = make_documents([2200] * 3, vocabulary=300)
    rows = rows_of(Comparison(lengths=(1024,), windows=3), Copies(2000), Copies(300), documents)
    distances = Layout(1024).distances
    assert min(distances) <= 300 < max(distances)
    for distance in distances:
        assert rows["benefit_a", 1024, distance].value == pytest.approx(2.5, abs=0.1)
        expected = 2.5 if distance <= 300 else 0.0
        assert rows["benefit_b", 1024, distance].value == pytest.approx(expected, abs=0.1)
        assert rows["benefit_kept", 1024, distance].value == pytest.approx(expected / 2.5, abs=0.05)
    [use] = verdict(list(rows.values()))[1:]
    assert "uses far context less" in use
    weaker = rows_of(Comparison(lengths=(1024,), windows=3), Copies(2000, 1.0), Copies(2000), documents)
    [use] = verdict(list(weaker.values()))[1:]
    assert "uses far context more" in use


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (lambda p, _: 0.001, ["predicts as A does", "256 tokens"]),
        # Not 0.5: its mean of 0.375 is halfway between two decimals.
        (lambda p, _: 0.52 if p >= 64 else 0, ["equal to A up to 64 tokens", "0.52 nats", "0.39 higher"]),
        # Signs do not cancel.
        (lambda p, _: 0.3 * (-1) ** p, ["0.3 nats", "at all positions alike", "Precision"]),
        (lambda p, _: -2.0, ["2 nats", "2 lower", "sees what it predicts"]),
        (
            lambda p, length: 0.3 if length > 128 else 0,
            ["equal to A in windows of 128", "moves with the length"],
        ),
        (lambda p, _: 3.0 if p == 130 else 0, ["at few tokens", "3 nats"]),
    ],
)
def test_verdicts(by: Any, words: list[str], model: LoadedModel, documents: Any) -> None:
    spec = Comparison(lengths=(128, 256), windows=3, tolerance=0.05)
    found = run(spec, model, documents, other=Shifted(model, by))  # type: ignore[arg-type]
    text = " ".join(verdict(found.rows))
    for word in words:
        assert word in text


def test_a_place_inside_a_bin(model: LoadedModel, documents: Any) -> None:
    """Its range is narrow above; below, kernels of some processors round the same pass in two ways."""
    spec = Comparison(lengths=(256,), windows=3, tolerance=0.05)
    found = run(spec, model, documents, other=Shifted(model, lambda p, _: -0.5 if p >= 200 else 0))  # type: ignore[arg-type]
    seen = evidence(found.rows)
    assert seen is not None
    assert (seen.pattern, seen.sign) == ("from a place", "better")
    assert seen.place is not None
    assert seen.place[0] <= 200 <= seen.place[1] <= 208


def rows_of_curve(*means: float, tolerance: float = 0.1, **numbers: float) -> list[Row]:
    """The rows of a comparison with these differences by position, and further numbers."""
    edges = [0, 64, 128, 256, 512, 1024]
    row = Row(model="", task="difference", metric="difference", value=sum(means) / len(means), length=1024)
    given = {"tolerance": tolerance, "largest": max(means), **numbers}
    bins = [
        replace(row, value=mean, position=begin, position_end=end, n=end - begin)
        for mean, begin, end in zip(means, edges, edges[1:], strict=False)
    ]
    return [row, *bins, *(replace(row, metric=name, value=value) for name, value in given.items())]


LATE = {"begins": 256, "exact_up_to": 256, "one_sided": 0.1}
EARLIER = {"begins": 256, "exact_up_to": 128, "after": 0.3, "one_sided": 0.1}
SHIFTED = {"top_share": 0.9, "largest": 4.0, "shift": 0.2, "one_sided": -0.99}


@pytest.mark.parametrize(
    ("means", "numbers", "pattern", "place"),
    [
        ((0.1, 0.05, 0.02, 0.1, 0.1), {}, "equal", None),
        ((0.2, 0.15, 0.2, 0.25, 0.2), {}, "all positions", None),
        ((0.01, 0.01, 0.3, 1.1, 1.3), {}, "from a place", (64, 256)),
        ((0.01, 0.01, 0.3, 1.1, 0.01), {}, "from a place", (64, 256)),
        ((0.2, 0.2, 0.2, 0.2, 0.9), {}, "growing", (256, 1024)),
        ((0.9, 0.1, 0.1, 0.1, 0.1), {}, "first tokens", (0, 64)),
        ((0.9, 0.2, 0.1, 0.1, 0.1), {}, "first tokens", (0, 128)),
        # Not equal before the place, though it is on average.
        ((0.3, 0.0, 0.0, 0.0, 0.9), {}, "growing", (256, 1024)),
        # Early tokens have little context to differ in.
        ((0.2, 0.9, 0.9, 0.9, 0.9), {}, "all positions", None),
        ((0.15, 0.25, 0.4, 0.6, 0.8), {}, "growing", (128, 512)),
        ((0.2, 0.2, 0.2, 0.2, 0.2), {"windows_apart": 0.25}, "some windows", None),
        ((0.2, 0.2, 0.2, 0.2, 0.2), {"top_share": 0.9, "largest": 4.0}, "some tokens", None),
        ((0.01, 0.01, 0.01, 0.01, 0.01), {"largest": 4.0, "largest_rounding": 1.0}, "some tokens", None),
        ((0.05, 0.05, 0.05, 0.05, 0.05), {"shift": 0.05, "one_sided": 1.0}, "all positions", None),
        ((0.05, 0.05, 0.05, 0.05, 0.05), {"shift": 0.001, "one_sided": 0.05}, "equal", None),
        ((0.0, 0.0, 0.0, 0.02, 0.02), LATE | {"after": 0.02}, "from a place", (256, 264)),
        # Exact before it, and within a tolerance that is meant for other positions.
        ((0.0, 0.0, 0.0, 0.09, 0.12), LATE | {"begins": 261, "after": 0.1}, "from a place", (256, 264)),
        # What is as small as rounding may be rounding, or the beginning of it.
        ((0.0, 0.0, 0.05, 0.3, 0.3), EARLIER | {"before": 0.05, "floor_a": 0.05}, "from a place", (128, 256)),
        # What is far below rounding is rounding of single tokens, or a slow beginning.
        ((0.0, 0.0, 0.0, 0.3, 0.3), EARLIER | {"before": 1e-4, "floor_a": 0.02}, "from a place", (128, 256)),
        ((0.05, 0.3, 0.3, 0.3, 0.3), {}, "all positions", None),
        ((0.2, 0.2, 0.2, 0.2, 0.2), {"tenth_share": 0.99, "largest": 4.0}, "some tokens", None),
        ((0.2, 0.2, 0.2, 0.2, 0.2), SHIFTED, "all positions", None),
        # Differing tokens side by side are a place, however few they are.
        ((0.9, 0.0, 0.0, 0.0, 0.3), {"tenth_share": 0.99, "alone_share": 0.3}, "first tokens", (0, 64)),
        ((0.9, 0.0, 0.0, 0.0, 0.3), {"tenth_share": 0.99, "alone_share": 0.9}, "some tokens", None),
        # Within the tolerance and far above rounding: it differs, unless it is far below what follows.
        ((0.05, 0.05, 0.05, 0.3, 0.3), {"floor_a": 1e-3}, "growing", (128, 512)),
        ((0.05, 0.05, 0.05, 0.3, 0.3), {"floor_a": 0.02}, "from a place", (128, 512)),
        ((0.02, 0.02, 0.02, 0.3, 0.3), {"floor_a": 1e-3}, "from a place", (128, 512)),
        ((0.3, 0.3, 0.3, 0.3, 0.3), {"floor_a": 1e-6, "floor_b": 0.3}, "unstable", None),
        ((0.3, 0.3, 0.3, 0.3, 0.3), {"floor_a": 0.3, "floor_b": 0.3}, "undecided", None),
        # A tolerance that is one side's own wavering is no rounding; in other dtypes it may be.
        ((0.09,) * 5, {"floor_a": 0.01, "floor_b": 0.1, "tolerance": 0.15}, "unstable", None),
        ((0.09,) * 5, {"floor_a": 0.06, "floor_b": 0.1, "tolerance": 0.15}, "equal", None),
        ((0.01,) * 5, {"floor_a": 0.01, "floor_b": 0.1, "tolerance": 0.15}, "equal", None),
        ((0.09,) * 5, {"floor_a": 0.01, "floor_b": 0.1, "most_a": 0.3, "tolerance": 0.15}, "equal", None),
    ],
)
def test_patterns(means: Any, numbers: Any, pattern: str, place: Any) -> None:
    cell = {"begins": 0, "exact_up_to": 8}
    rows = [
        replace(row, ci_low=row.value, ci_high=(row.value or 0) + cell[row.metric])
        if row.metric in cell
        else row
        for row in rows_of_curve(*means, **numbers)
    ]
    seen = evidence(rows)
    assert (seen.pattern, seen.place) == (pattern, place)
    assert all(verdict(rows))


_LATE, _ALL, _FIFTH = (0.0, 0.0, 0.0, 0.6, 0.6), (0.6,) * 5, (0.2,) * 5
_ENDS = (0.9, 0.0, 0.0, 0.0, 0.3)
_FEW = {"top_share": 0.9, "largest": 3.0}
_EQUAL = {"tolerance": 2e-3, "floor_a": 1e-3}
_BETTER = {"shift": -2.0, "one_sided": 0.9}
_LEAK = "sees what it predicts"
_BY_LENGTH = "Side B predicts the same tokens otherwise where more text follows them: 0.3 nats"


@pytest.mark.parametrize(
    ("means", "numbers", "said", "not_said"),
    [
        (_ALL, {"shift": 0.6}, "at all positions alike", ""),
        ((0.3,) * 5, {"shift": 0.3, "one_sided": -1.0}, "less likely", ""),
        ((0.3,) * 5, {"shift": 0.3, "one_sided": -1.0}, "share of the probability", ""),
        ((2.0,) * 5, {"shift": 2.0}, "more than precision", ""),
        ((0.15, 0.25, 0.4, 0.6, 0.8), {}, "more further on", ""),
        ((0.08, 0.08, 1.0, 1.0, 1.0), {"tolerance": 0.05}, "and more further on: by 0.08", ""),
        ((0.08, 0.08, 1.0, 1.0, 1.0), {"tolerance": 0.05}, "by 1 beyond", ""),
        # That a pattern ends.
        ((0.0, 0.0, 0.5, 0.0, 0.0), {}, "beyond, up to 256, and equal again from there on", ""),
        (_ENDS, {}, "in the first 64 tokens, and by 0.16 beyond, but equal from 64 to 512", "BOS"),
        (_ENDS, {}, "both ends", ""),
        (_ENDS[::-1], {}, "by 0.9 beyond", ""),
        (_ENDS[::-1], {}, "but equal from 64 to 512", ""),
        ((0.0, 0.5, 0.0, 0.0, 0.5), {}, "apart beyond, up to 1,024, but equal from 128 to 512", ""),
        ((0.6, 0.2, 0.2, 0.2, 0.2), {}, "BOS", ""),
        ((0.6, 0.2, 0.2, 0.2, 0.2), {}, "a mask of near tokens", ""),
        (
            (0.8, 0.0, 0.0, 0.0, 0.0),
            {"windows_apart": 0.5},
            "in 50 % of the windows, and in the others not: 0.05 nats per token apart in all",
            "",
        ),
        # That a side depends on the length of its input, if it is one side alone.
        (_FIFTH, {"by_length_b": 0.3}, _BY_LENGTH, ""),
        (_FIFTH, {"by_length_b": 0.3, "by_length_a": 0.3}, "", "more text follows"),
        # What could not have been seen.
        ((1e-3,) * 5, {**_EQUAL, "most_a": 0.25}, "in 16 bits; in float32", ""),
        ((1e-3,) * 5, {**_EQUAL, "most_a": 2e-3}, "seen; in float64", ""),
        # A leak moves all tokens in one direction. That names it on either side, wherever it begins, at any size.
        (_LATE, {"shift": -0.3, "one_sided": 1.0}, f"the fault is in A, or that B {_LEAK}", ""),
        (_LATE, {"shift": 0.3, "one_sided": -1.0}, "less likely in B: the fault is in B, or A sees", ""),
        (_ALL, {"shift": 0.6, "one_sided": -1.0}, "less likely in B: the fault is in B, or A sees", ""),
        (_ALL, {"shift": -0.6, "one_sided": 1.0}, f"B {_LEAK}", ""),
        (_LATE, {"shift": -0.3, "one_sided": 1.0, **_FEW}, f"B {_LEAK}", ""),
        (_FIFTH, {"shift": 0.2, "one_sided": -1.0}, f"or A {_LEAK}", ""),
        (_LATE, {"shift": -0.15, "one_sided": 0.4}, "", _LEAK),
        (_LATE, {"shift": 0.15, "one_sided": -0.4}, "", _LEAK),
        ((0.01,) * 5, {"shift": 0.0, "one_sided": 0.0}, "", _LEAK),
        # A much lower loss may be a fault of the other side, whatever the pattern.
        ((2.0,) * 5, _BETTER, f"A is the side with the fault, that B {_LEAK}", ""),
        ((0.0, 0.0, 0.0, 2.0, 2.0), _BETTER, "fault of long context", ""),
        ((0.0, 0.0, 0.0, 2.0, 2.0), _BETTER, f"the fault is in A, or that B {_LEAK}", ""),
        (_FIFTH, {"shift": -0.2, "one_sided": 1.0, "more_rows": -64.0}, "-64 rows in B", ""),
        # Tokens that are dropped, a kernel that fails there and sides in other dtypes begin at a place too.
        (_LATE, {}, "a kernel that fails from there on, tokens that are dropped or replaced", ""),
        ((0.05, 0.05, 0.3, 0.3, 0.3), {"most_a": 2e-3, "most_b": 0.1}, "The sides have other dtypes", ""),
        ((0.05, 0.05, 2.0, 2.0, 2.0), {"most_a": 2e-3, "most_b": 0.1}, "", "The sides have other dtypes"),
        ((0.05, 0.05, 0.3, 0.3, 0.3), {"most_a": 0.1, "most_b": 0.1}, "", "The sides have other dtypes"),
    ],
)
def test_what_is_said(means: Any, numbers: Any, said: str, not_said: str) -> None:
    text = " ".join(verdict(rows_of_curve(*means, **{"loss_a": 5.0, **numbers})))
    assert said in text
    assert not not_said or not_said not in text


@pytest.mark.parametrize(("longer", "moves"), [(0.099, False), (0.06, False), (0.04, True)])
def test_what_crosses_a_tolerance_by_chance_does_not_move(longer: float, moves: bool) -> None:
    """A bin that is a little above the tolerance at one length, and a little below it at another."""
    short = [replace(row, length=512) for row in rows_of_curve(0.05, 0.05, 0.101, 0.05)]
    long = rows_of_curve(0.05, 0.05, longer, 0.05, 0.05)
    ends = [
        Row(model="", task="difference", metric="equal_up_to", value=place, length=n)
        for place, n in ((128, 512), (1024, 1024))
    ]
    seen = evidence([*short, *long, *ends])
    assert (seen.moves is not None) == moves
    assert ("in windows of" in verdict([*short, *long, *ends])[0]) == moves


def test_the_last_tokens_alone_are_a_place() -> None:
    """Fewer of them than a cell has: most tokens beyond it differ, where there are none."""
    cell = {"exact_up_to": 1016.0}
    rows = rows_of_curve(0.0, 0.0, 0.0, 0.0, 0.05, one_sided=0.1, largest=4.0, largest_rounding=1.0, **cell)
    rows = [
        replace(row, ci_low=1016.0, ci_high=1024.0)
        if row.metric == "exact_up_to"
        else replace(row, n=3)
        if row.metric == "one_sided"
        else row
        for row in rows
    ]
    rows.append(replace(rows[-1], metric="begins", value=1016.0, ci_low=1016.0, ci_high=1024.0))
    seen = evidence(
        [replace(row, n=1024) if row.metric == "difference" and row.is_whole else row for row in rows]
    )
    assert (seen.pattern, seen.place) == ("from a place", (1016, 1024))


def test_the_best_split() -> None:
    curve = [Stretch(8 * i, 8 * i + 8, 0.02 if i < 11 else 0.3, 8) for i in range(32)]
    assert best_split(curve) == (11, 88, 88)
    assert best_split(curve[:1]) is None


def test_where_a_curve_begins() -> None:
    """At the step, within a cell too; where it rises slowly, from the first cell that is clearly above."""
    curve = [Stretch(8 * i, 8 * i + 8, 0.02 if i < 11 else 0.3, 8) for i in range(32)]
    assert beginning(curve, 0.05) == (88, 96)
    within = [*curve[:11], curve[11]._replace(mean=0.02 + 0.28 * 3 / 8), *curve[12:]]
    low, high = beginning(within, 0.05) or (0, 0)
    assert low <= 93 <= high <= 96
    slowly = [Stretch(8 * i, 8 * i + 8, 0.0 if i < 11 else 0.2 * (i - 10), 8) for i in range(32)]
    assert (beginning(slowly, 0.05) or (0,))[0] == 88
    # In the noise of 16 bits too, where all is exact before it.
    faint = [part._replace(mean=0.0 if part.begin < 88 else 0.02) for part in curve]
    assert beginning(faint, 0.05) == (88, 96)
    assert beginning(curve[:1], 0.05) is None


def test_paths() -> None:
    assert ReadingPath().pieces(10) == [10]
    assert ReadingPath(chunk=4).pieces(10) == [4, 4, 2]
    assert ReadingPath(decode=3).pieces(10) == [7, 1, 1, 1]
    assert reading_path(MODEL) == ReadingPath()
    assert reading_path(MODEL.model_copy(update={"read": "chunks=32"})) == ReadingPath(chunk=32)
    assert reading_path(MODEL.model_copy(update={"read": "decode"})) == ReadingPath(decode=128)
    assert reading_path(MODEL.model_copy(update={"read": "decode=8"})) == ReadingPath(decode=8)
    assert reading_path(MODEL.model_copy(update={"kv_cache": "static"})).chunk
    for wrong in ("chunk", "chunks", "chunks=0", "decode=", "decode=x", "prefill=3"):
        with pytest.raises(UsageError):
            reading_path(MODEL.model_copy(update={"read": wrong}))
