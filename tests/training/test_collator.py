from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.alignment import PairGeometry
from lengthwise.errors import UsageError
from lengthwise.text import TokenDocument
from lengthwise.training.collator import PairCollator, WindowDataset
from lengthwise.training.views import View


def dataset(documents: list[TokenDocument], length: int = 16, **changes) -> WindowDataset:
    settings = {"batch_size": 4, "steps": 50, "seed": 3}
    return WindowDataset(documents, View(length, offsets=(1, 7)), **(settings | changes))


def test_both_views_of_a_stretch_and_their_labels():
    stretches = [np.arange(10, 16, dtype=np.int32), np.arange(30, 36, dtype=np.int32)]
    batch = PairCollator(View(4, min_context=1))([{"input_ids": stretch} for stretch in stretches])
    assert batch["geometry"] == PairGeometry(4, 2, 1)
    assert batch["input_ids"].tolist() == [
        [10, 11, 12, 13],
        [30, 31, 32, 33],
        [12, 13, 14, 15],
        [32, 33, 34, 35],
    ]
    assert batch["labels"].tolist() == [
        [11, 12, 13, -100],
        [31, 32, 33, -100],
        [13, 14, 15, -100],
        [33, 34, 35, -100],
    ]
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64


def test_bos_replaces_the_first_input_of_each_view_and_no_label():
    items = [{"input_ids": np.arange(10, 16, dtype=np.int32)}]
    plain, with_bos = (
        PairCollator(View(4, min_context=1))(items),
        PairCollator(View(4, min_context=1), bos_id=1)(items),
    )
    assert with_bos["input_ids"].tolist() == [[1, 11, 12, 13], [1, 13, 14, 15]]
    assert torch.equal(with_bos["labels"], plain["labels"])


def test_stretches_of_several_lengths_or_too_short_are_refused():
    with pytest.raises(UsageError, match="6 tokens, others 5"):
        PairCollator(View(4, min_context=1))([{"input_ids": np.zeros(5)}, {"input_ids": np.zeros(6)}])
    with pytest.raises(UsageError, match=r"(?s)22.*23"):
        PairCollator(View(16, offsets=(1, 7)))(stretches(2, 22))
    for nothing in ([], [{}], [{"text": "a"}]):
        with pytest.raises(UsageError, match=r"no samples|columns (none|text)"):
            PairCollator(View(4, min_context=1))(nothing)


def test_the_offset_is_shared_within_a_step_and_even_over_steps(documents: list[TokenDocument]):
    data = dataset(documents, steps=700)
    offsets = [len(data[index]["input_ids"]) - 16 for index in range(len(data))]
    by_step = np.array(offsets).reshape(700, 4)
    assert (by_step == by_step[:, :1]).all()
    counts = Counter(by_step[:, 0].tolist())
    assert set(counts) == set(range(1, 8))
    # 100 expected of each; five standard deviations.
    assert all(abs(count - 100) < 47 for count in counts.values())


def stretches(count: int, size: int) -> list[dict]:
    rng = np.random.default_rng(0)
    return [{"input_ids": rng.integers(0, 320, size=size).tolist()} for _ in range(count)]


def test_a_text_too_short_for_the_largest_offset_is_refused_at_once(documents: list[TokenDocument]):
    with pytest.raises(UsageError, match=r"407.*400"):
        dataset(documents, length=400)


def test_offsets_are_drawn_for_stretches_of_one_size():
    items = stretches(200, 23)
    collator = PairCollator(View(16, offsets=(1, 7)), seed=3)
    batches = [collator(items[i : i + 2]) for i in range(0, 200, 2)]
    assert {batch["geometry"].offset for batch in batches} == set(range(1, 8))
    for index, batch in enumerate(batches):
        exact = [
            {"input_ids": item["input_ids"][: 16 + batch["geometry"].offset]}
            for item in items[2 * index :][:2]
        ]
        expected = PairCollator(View(16))(exact)
        assert batch.keys() == expected.keys()
        assert torch.equal(batch["input_ids"], expected["input_ids"])
        assert torch.equal(batch["labels"], expected["labels"])
    # A function of seed and text: the same in a resumed run.
    assert collator(items[:2])["geometry"] == batches[0]["geometry"]
    other = PairCollator(View(16, offsets=(1, 7)), seed=4)
    assert [other(items[i : i + 2])["geometry"] for i in range(0, 200, 2)] != [b["geometry"] for b in batches]


@pytest.mark.parametrize("name", ["labels", "completion_mask", "assistant_masks"])
def test_tokens_that_are_no_targets_have_no_label_in_either_view(name: str):
    ids = np.arange(10, 16)
    targets = [-100, 11, -100, 13, 14, -100]
    mask = [int(target != -100) for target in targets]
    batch = PairCollator(View(4, min_context=1))(
        [{"input_ids": ids, name: targets if name == "labels" else mask}]
    )
    assert batch["input_ids"].tolist() == [[10, 11, 12, 13], [12, 13, 14, 15]]
    assert batch["labels"].tolist() == [[11, -100, 13, -100], [13, 14, -100, -100]]


ONE_TEXT = {
    "position_ids": [*range(24)],
    "attention_mask": [1] * 24,
    "token_type_ids": [0] * 24,
    "seq_lengths": [24],
    "max_length_q": 24,
    "cu_seqlens": torch.tensor([0, 24]),
    "segment_ids": np.full(24, 7),
    "text": "words",
    "messages": [{"role": "user", "content": "words"}],
    "id": 3,
}
SEVERAL = {
    "position_ids that begin again": {"position_ids": [*range(12), *range(12)]},
    "positions of three axes": {"position_ids": [[*range(24)]] * 3},
    "padding on the left": {"attention_mask": [0] * 4 + [1] * 20},
    "padding on the right": {"attention_mask": torch.tensor([1] * 20 + [0] * 4)},
    "sequence ids in the mask": {"attention_mask": [1] * 12 + [2] * 12},
    "a mask of a block": {"attention_mask": np.tril(np.ones((24, 24)))},
    "types": {"token_type_ids": [0] * 12 + [1] * 12},
    "lengths": {"seq_lengths": [12, 12]},
    "one length that is not all": {"seq_lengths": [12]},
    "edges": {"cu_seq_lens_q": [0, 12, 24]},
    "the longest": {"max_length_k": 12},
    "ids": {"sequence_ids": [1] * 12 + [2] * 12},
    "ids of nothing known": {"doc_mask": [0] * 24},
    "an object": {"block_mask": object()},
    "images": {"pixel_values": np.zeros((3, 4, 4))},
}


def packed(**columns: Any) -> dict[str, Any]:
    return {"input_ids": [*range(24)], **columns}


@pytest.mark.parametrize("name", SEVERAL)
def test_a_column_that_changes_what_a_token_sees_is_refused(name: str):
    [column] = SEVERAL[name]
    with pytest.raises(UsageError, match=column):
        PairCollator(View(16, min_context=7))([packed(**SEVERAL[name])])


def test_a_column_that_says_one_text_changes_nothing(caplog: pytest.LogCaptureFixture):
    collator = PairCollator(View(16, min_context=7))
    plain, given = PairCollator(View(16, min_context=7))([packed()]), collator([packed(**ONE_TEXT)])
    assert plain.keys() == given.keys()
    assert torch.equal(plain["input_ids"], given["input_ids"])
    assert torch.equal(plain["labels"], given["labels"])
    collator([packed(**ONE_TEXT)])
    [said] = caplog.messages
    assert said.endswith(": id, messages, text")


@pytest.mark.parametrize("name", ["labels", "completion_mask"])
def test_a_column_with_other_than_one_value_a_token_is_refused(name: str):
    with pytest.raises(UsageError, match=rf"{name}.*\(23,\)"):
        PairCollator(View(16, min_context=7))([packed(**{name: [1] * 23})])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_ids", 0.7),
        ("input_ids", float("nan")),
        ("input_ids", -100),
        ("labels", 1.5),
        ("completion_mask", 0.5),
        ("completion_mask", -100),
        ("assistant_masks", 2),
    ],
)
def test_numbers_that_are_no_tokens_or_marks_are_refused(name: str, value: float):
    with pytest.raises(UsageError, match=rf"{name} of a sample.*\n.*whole numbers"):
        PairCollator(View(16, min_context=7))([packed(**{name: [value] * 24})])


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.uint8, torch.tensor])
def test_whole_numbers_of_any_type_are_tokens(kind: Any):
    marks = np.arange(24) > 3
    found = PairCollator(View(16, min_context=7))(
        [packed(input_ids=kind([*range(24)]), completion_mask=marks)]
    )
    expected = PairCollator(View(16, min_context=7))([packed(completion_mask=marks.astype(int).tolist())])
    assert torch.equal(found["input_ids"], expected["input_ids"])
    assert torch.equal(found["labels"], expected["labels"])
