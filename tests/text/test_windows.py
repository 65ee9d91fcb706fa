from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.testing import tiny_tokenizer
from lengthwise.text import WindowSampler, pack_documents, resolve_bos, sample_windows, view, windows
from tests.tiny_folders import writing


def test_windows_stay_inside_their_document_and_do_not_overlap(numbered):
    windows = sample_windows(numbered, 20, seed=3)
    assert len(windows) == 4 + 0 + 15 + 2 + 5
    seen: set[int] = set()
    for window in windows:
        document = int(window.document_id.removeprefix("doc"))
        expected = 1000 * document + window.start + np.arange(20)
        np.testing.assert_array_equal(window.ids, expected)
        assert window.start + 20 <= len(numbered[document].ids)
        assert not seen & set(expected.tolist())
        seen |= set(expected.tolist())


def test_the_first_windows_touch_every_document_that_is_long_enough(numbered):
    first = sample_windows(numbered, 20, count=4)
    assert {window.document_id for window in first} == {"doc0", "doc2", "doc3", "doc4"}


def test_prefix_property_and_determinism(numbered):
    all_windows = sample_windows(numbered, 20, seed=5)
    for count in (1, 4, 7, len(all_windows)):
        prefix = sample_windows(numbered, 20, count=count, seed=5)
        assert [(w.document_id, w.start) for w in prefix] == [
            (w.document_id, w.start) for w in all_windows[:count]
        ]
    starts = {seed: [w.start for w in sample_windows(numbered, 20, seed=seed)] for seed in (5, 6)}
    assert starts[5] != starts[6]


def test_few_windows_of_many_documents_are_drawn_from_those_alone(numbered, monkeypatch: pytest.MonkeyPatch):
    drawn, slots = list[str](), windows._slots
    monkeypatch.setattr(windows, "_slots", lambda own, *how: drawn.append(own.id) or slots(own, *how))
    found = sample_windows(numbered * 1000, 20, count=6)
    assert sorted(drawn) == sorted(each.document_id for each in found)


def test_windows_of_a_document_do_not_depend_on_the_others(numbered):
    def starts(documents):
        return sorted(w.start for w in sample_windows(documents, 20) if w.document_id == "doc2")

    assert starts(numbered) == starts(numbered[2:])


def test_phases_reach_both_ends(numbered):
    phases = {
        min(w.start for w in sample_windows(numbered, 41, seed=seed) if w.document_id == "doc0")
        for seed in range(200)
    }
    assert phases == set(range(95 - 2 * 41 + 1))


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "more than a document has": (lambda documents: sample_windows(documents, 301), r"301.*300"),
    "the same of a sampler": (lambda documents: WindowSampler(documents).window(0, 301), r"301.*300"),
    "more windows than there are": (
        lambda documents: sample_windows(documents, 20, count=27),
        r"27 .*20 .*26",
    ),
    **{
        f"{what} of {n}": (call, str(n))
        for n in (0, -1, "64", 1.5, True)
        for what, call in {
            "windows": lambda documents, n=n: sample_windows(documents, n),
            "a sampler's window": lambda documents, n=n: WindowSampler(documents).window(0, n),
            "a count": lambda documents, n=n: sample_windows(documents, 20, count=n),
        }.items()
    },
    **{
        f"an EOS of {n}": (lambda documents, n=n: pack_documents(documents, eos_id=n), str(n))
        for n in (-1, 1.5, "2", True)
    },
    "a packing without EOS": (lambda documents: pack_documents(documents, eos_id=None), "(?i)eos"),
    "a view beyond the text": (lambda _: view(np.arange(20), 5, 20, None), r"5.*25.*20"),
    "an unknown setting of BOS": (lambda _: resolve_bos(tiny_tokenizer(), "alwasy"), "'always'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_had_is_refused(numbered, case: str):
    call, says = REFUSED[case]
    with pytest.raises(UsageError, match=says):
        call(numbered)


def test_fewer_windows_where_they_are_allowed(numbered):
    assert len(sample_windows(numbered, 20, count=27, allow_fewer=True)) == 26


@pytest.mark.parametrize("seed", [4, 5])
def test_windows_are_those_of_the_rule_whatever_was_drawn_before(numbered, seed: int):
    """The rule, written out: draw one of all legal starts, counted through the documents in order."""
    sampler = WindowSampler(numbered, seed=seed)
    for index, length in enumerate((30, 30, 12, 95, 30, 12, 1, 300)):
        starts = [(d, s) for d in range(len(numbered)) for s in range(len(numbered[d].ids) - length + 1)]
        document, start = starts[np.random.default_rng([seed, 2, index]).integers(len(starts))]
        expected = numbered[document].ids[start : start + length]
        np.testing.assert_array_equal(sampler.window(index, length), expected)


def test_a_window_does_not_walk_the_documents(numbered):
    class Touched(list):
        count = 0

        def __iter__(self):
            type(self).count += len(self)
            return super().__iter__()

        def __getitem__(self, index):
            type(self).count += 1
            return super().__getitem__(index)

    sampler = WindowSampler(Touched(numbered))
    Touched.count = 0
    for index in range(10):
        sampler.window(index, 20 + index // 5)
    assert Touched.count == 10


def test_packing_joins_all_documents_with_eos(numbered):
    (packed,) = pack_documents(numbered, eos_id=9999, seed=1)
    parts = [part.tolist() for part in np.split(packed.ids, np.flatnonzero(packed.ids == 9999) + 1)]
    assert parts.pop() == []
    assert sorted(part[:-1] for part in parts) == sorted(d.ids.tolist() for d in numbered)
    assert packed.ids.tolist() != pack_documents(numbered, eos_id=9999, seed=2)[0].ids.tolist()
    assert len(sample_windows([packed], 400)) == 1


@pytest.mark.parametrize(
    ("setting", "adding", "having"), [("auto", 1, None), ("always", 1, 1), ("never", None, None)]
)
def test_bos(setting, adding: int | None, having: int | None):
    """Of a tokenizer that adds it by itself, and of one that only has it."""
    assert resolve_bos(tiny_tokenizer(bos_token="<s>"), setting) == having
    assert resolve_bos(writing("<s> $A", "<s>"), setting) == adding
    assert setting != "auto" or resolve_bos(tiny_tokenizer(), setting) is None


def test_view_replaces_the_first_token_and_keeps_rows():
    ids = np.arange(100, 120, dtype=np.int32)
    without = view(ids, 5, 8, None)
    with_bos = view(ids, 5, 8, 7)
    assert without.tolist() == list(range(105, 113))
    assert with_bos.tolist() == [7, *range(106, 113)]
    assert with_bos.dtype == np.int64
    assert ids[5] == 105, "the document itself is not changed"
