from collections import Counter

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.testing import tiny_tokenizer
from lengthwise.text import TokenDocument, WindowSampler, pack_documents, resolve_bos, sample_windows, view
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


def test_too_short_text_says_how_much_is_needed(numbered):
    with pytest.raises(UsageError, match=r"301.*300"):
        sample_windows(numbered, 301)
    with pytest.raises(UsageError, match=r"301.*300"):
        WindowSampler(numbered).window(0, 301)
    for length in (0, -1):
        with pytest.raises(UsageError):
            sample_windows(numbered, length)
        with pytest.raises(UsageError):
            WindowSampler(numbered).window(0, length)


def test_more_windows_than_there_are(numbered):
    with pytest.raises(UsageError, match=r"27 .*20 .*26"):
        sample_windows(numbered, 20, count=27)
    assert len(sample_windows(numbered, 20, count=27, allow_fewer=True)) == 26
    for count in (0, -1):
        with pytest.raises(UsageError):
            sample_windows(numbered, 20, count=count)


def test_sampler_is_a_function_of_seed_index_and_length(numbered):
    one, two = WindowSampler(numbered, seed=1), WindowSampler(numbered, seed=1)
    forward = [one.window(index, 30).tolist() for index in range(50)]
    two.window(7, 55)
    backward = [two.window(index, 30).tolist() for index in reversed(range(50))]
    assert forward == backward[::-1]
    assert forward != [WindowSampler(numbered, seed=2).window(index, 30).tolist() for index in range(50)]


def test_windows_are_those_of_the_rule_whatever_was_drawn_before(numbered):
    """The rule, written out: draw one of all legal starts, counted through the documents in order."""
    sampler = WindowSampler(numbered, seed=4)
    for index, length in enumerate((30, 30, 12, 95, 30, 12, 1, 300)):
        starts = [(d, s) for d in range(len(numbered)) for s in range(len(numbered[d].ids) - length + 1)]
        document, start = starts[np.random.default_rng([4, 2, index]).integers(len(starts))]
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


def test_sampler_is_uniform_over_all_legal_starts():
    documents = [
        TokenDocument("a", np.arange(100, 106, dtype=np.int32)),
        TokenDocument("short", np.arange(200, 203, dtype=np.int32)),
        TokenDocument("b", np.arange(300, 308, dtype=np.int32)),
    ]
    sampler = WindowSampler(documents)
    draws = 4000
    windows = [sampler.window(index, 4) for index in range(draws)]
    for window in windows:
        assert np.all(np.diff(window) == 1), "a window crosses a document"
    counts = Counter(int(window[0]) for window in windows)
    assert set(counts) == {100, 101, 102, 300, 301, 302, 303, 304}
    expected = draws / 8
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 24.3, counts  # the 0.999 quantile with 7 degrees of freedom


def test_packing_joins_all_documents_with_eos(numbered):
    (packed,) = pack_documents(numbered, eos_id=9999, seed=1)
    parts = [part.tolist() for part in np.split(packed.ids, np.flatnonzero(packed.ids == 9999) + 1)]
    assert parts.pop() == []
    assert sorted(part[:-1] for part in parts) == sorted(d.ids.tolist() for d in numbered)
    assert packed.ids.tolist() != pack_documents(numbered, eos_id=9999, seed=2)[0].ids.tolist()
    assert len(sample_windows([packed], 400)) == 1


def test_packing_without_eos_is_refused(numbered):
    with pytest.raises(UsageError):
        pack_documents(numbered, eos_id=None)


@pytest.mark.parametrize(
    ("setting", "adding", "having"), [("auto", 1, None), ("always", 1, 1), ("never", None, None)]
)
def test_bos(setting, adding: int | None, having: int | None):
    """Of a tokenizer that adds it by itself, and of one that only has it."""
    assert resolve_bos(tiny_tokenizer(bos_token="<s>"), setting) == having
    assert resolve_bos(writing("<s> $A", "<s>"), setting) == adding


def test_a_tokenizer_without_bos_and_an_unknown_setting():
    assert resolve_bos(tiny_tokenizer(), "auto") is None
    with pytest.raises(UsageError, match="'always'"):
        resolve_bos(tiny_tokenizer(), "alwasy")


def test_view_replaces_the_first_token_and_keeps_rows():
    ids = np.arange(100, 120, dtype=np.int32)
    without = view(ids, 5, 8, None)
    with_bos = view(ids, 5, 8, 7)
    assert without.tolist() == list(range(105, 113))
    assert with_bos.tolist() == [7, *range(106, 113)]
    assert with_bos.dtype == np.int64
    assert ids[5] == 105, "the document itself is not changed"


def test_view_beyond_the_text_is_refused():
    with pytest.raises(UsageError, match=r"5.*25.*20"):
        view(np.arange(20), 5, 20, None)
