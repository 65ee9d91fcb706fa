"""Rows for pairs of windows from any data set, and TRL's SFTTrainer on them."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, IterableDataset
from transformers import TrainingArguments

from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.training import AlignmentTrainer, PairCollator, View, pair_windows
from tests.tiny_folders import writing

VIEW = View(16, offsets=(1, 7))
SIZE = 16 + 7
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning"),
]


def tokenizer() -> Any:
    made = tiny_tokenizer()
    made.chat_template = TEMPLATE
    return made


def ids(text: str) -> list[int]:
    return tiny_tokenizer()(text)["input_ids"]


def words(seed: int, count: int = 40) -> str:
    return tiny_text(count, seed=seed)


def turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


# Three rows of each kind, the second too short for a pair, as tokens and which of them are targets.
SIZES = (40, 1, 25)
ASKED, SAID = (lambda i: words(i, SIZES[i])), (lambda i: words(i + 9, SIZES[i]))
KINDS: dict[str, tuple[Any, Any]] = {
    "text": (lambda i: {"text": ASKED(i)}, lambda i: ([*ids(ASKED(i)), tiny_tokenizer().eos_token_id], 0)),
    "input_ids": (lambda i: {"input_ids": ids(ASKED(i)), "id": f"row {i}"}, lambda i: (ids(ASKED(i)), 0)),
    "messages": (
        lambda i: {"messages": [turn("user", ASKED(i)), turn("assistant", SAID(i))]},
        lambda i: (ids(f"<user>{ASKED(i)}<assistant>{SAID(i)}"), 0),
    ),
    "prompt": (
        lambda i: {"prompt": ASKED(i), "completion": " " + SAID(i)},
        lambda i: ([*ids(f"{ASKED(i)} {SAID(i)}"), tiny_tokenizer().eos_token_id], len(ids(ASKED(i)))),
    ),
    "chat prompt": (
        lambda i: {"prompt": [turn("user", ASKED(i))], "completion": [turn("assistant", SAID(i))]},
        lambda i: (ids(f"<user>{ASKED(i)}<assistant>{SAID(i)}"), len(ids(f"<user>{ASKED(i)}<assistant>"))),
    ),
}


@pytest.mark.parametrize("form", ["list", "data set", "stream"])
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_cut_as_by_hand(kind: str, packing: bool, form: str, caplog: pytest.LogCaptureFixture):
    make, expect = KINDS[kind]
    rows: Any = [make(i) for i in range(3)]
    expected = [expect(i) for i in range(3)]
    flat = [(tokens, [-100] * begin + tokens[begin:]) for tokens, begin in expected]
    if packing:
        flat = [tuple([token for row in flat for token in row[side]] for side in (0, 1))]
    by_hand = [
        {name: row[side][at : at + SIZE] for side, name in enumerate(("input_ids", "labels"))}
        for row in flat
        for at in range(0, len(row[0]) - SIZE + 1, SIZE)
    ]
    data = rows if form == "list" else Dataset.from_list(rows)
    data = data.to_iterable_dataset() if form == "stream" else data
    with caplog.at_level(logging.WARNING, logger="lengthwise"):
        made = pair_windows(data, tokenizer(), VIEW, packing=packing)
    assert list(made) == by_hand
    assert len(by_hand) > 2
    everything = sum(len(tokens) for tokens, _ in expected)
    rest = everything - SIZE * len(by_hand)
    counted = f"{rest} of {everything} tokens" if rest else ""
    assert ("a stream" if form == "stream" else counted) in caplog.text
    assert bool(caplog.text) == (form == "stream" or rest > 0)
    assert "draw" not in PairCollator(VIEW)(list(made)[:2])


@pytest.mark.parametrize("form", ["text", "prompt"])
@pytest.mark.parametrize("bos", [False, True])
def test_a_long_row_is_tokenized_in_pieces(form: str, bos: bool, monkeypatch: pytest.MonkeyPatch):
    """Not in one go, and with the same ids: special tokens around the whole of it."""
    asked, made = list[int](), writing("<|begin|> $A") if bos else tiny_tokenizer()
    row = (
        {"text": words(1, 4000)} if form == "text" else {"prompt": "lake", "completion": " " + words(1, 4000)}
    )
    expected = pair_windows([row], made, VIEW)[:]
    call = type(made).__call__

    def counted(self: Any, text: Any, *given: Any, **how: Any) -> Any:
        asked.extend(map(len, [text] if isinstance(text, str) else text))
        return call(self, text, *given, **how)

    for name in ("text.tokens.LONG", "training.stretches.LONG", "text.encoding.PIECE"):
        monkeypatch.setattr(f"lengthwise.{name}", 3_000)
    monkeypatch.setattr(type(made), "__call__", counted)
    found = pair_windows([row], made, VIEW)[:]
    assert found == expected
    assert expected["input_ids"][0][0] == (made.bos_token_id if bos else expected["input_ids"][0][0])
    assert max(asked) < 10_000 < len("".join(row.values()))


def test_only_assistant_turns_are_targets_where_asked():
    row = {"messages": [turn("user", words(0)), turn("assistant", words(1))]}
    made = pair_windows([row], tokenizer(), VIEW, assistant_only=True)
    begin = len(ids(f"<user>{words(0)}<assistant>"))
    labels = [label for each in made for label in each["labels"]]
    tokens = ids(f"<user>{words(0)}<assistant>{words(1)}")[: len(labels)]
    assert labels == [-100] * begin + tokens[begin:]
    plain = tokenizer()
    plain.chat_template = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    with pytest.raises(UsageError, match="generation"):
        pair_windows([row], plain, VIEW, assistant_only=True)


UNREAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    **{
        f"assistant_only and {kind}": (KINDS[kind][0](0), {"assistant_only": True}, "an assistant's")
        for kind in ("text", "input_ids", "prompt")
    },
    **{
        f"text_field and {kind}": (
            KINDS[kind][0](0) | {"body": words(3)},
            {"text_field": "body"},
            f"'body'.*'{kind.split()[-1]}'",
        )
        for kind in ("input_ids", "prompt", "messages", "chat prompt")
    },
}


@pytest.mark.parametrize("form", ["list", "data set", "stream"])
@pytest.mark.parametrize("case", UNREAD)
def test_an_option_that_the_rows_have_no_use_for_is_refused(case: str, form: str):
    row, options, says = UNREAD[case]
    data: Any = [row] if form == "list" else Dataset.from_list([row])
    with pytest.raises(UsageError, match=says):
        pair_windows(data.to_iterable_dataset() if form == "stream" else data, tokenizer(), VIEW, **options)


def test_masks_of_a_row_say_what_an_assistant_said():
    tokens = ids(words(0))
    marks = [int(place % 3 == 0) for place in range(len(tokens))]
    made = pair_windows([{"input_ids": tokens, "assistant_masks": marks}], None, VIEW, assistant_only=True)
    wanted = [token if mark else -100 for token, mark in zip(tokens, marks, strict=True)]
    assert made[0]["labels"] == wanted[:SIZE]


def test_what_gives_no_pair_is_refused():
    with pytest.raises(UsageError, match="the longest has"):
        pair_windows([{"text": words(0, 2)}], tokenizer(), VIEW)
    with pytest.raises(UsageError, match="columns body"):
        pair_windows([{"body": words(0)}], tokenizer(), VIEW)
    assert len(pair_windows([{"body": words(0)}], tokenizer(), VIEW, text_field="body")) >= 1
    with pytest.raises(UsageError, match="padding"):
        row = {"input_ids": [1] * 30, "attention_mask": [1] * 25 + [0] * 5}
        pair_windows([row], tokenizer(), VIEW)


NO_TEXT: dict[str, tuple[Any, str]] = {
    "a number": ([{"text": 5}], "'text' is a int, not text"),
    "another form of chat": ([{"messages": [{"from": "human", "value": words(0)}]}], "'messages' is a list"),
    "a preference": ([{"prompt": words(0), "chosen": "a", "rejected": "b"}], "no field 'completion'"),
    "a message without content": ([{"messages": [{"role": "user"}]}], "message 1 of 'messages' has no text"),
    "a template that refuses": ([{"messages": [turn("user", words(0))]}], "do not become a text"),
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_a_row_that_is_no_text_is_named(name: str):
    rows, says = NO_TEXT[name]
    made = tokenizer()
    made.chat_template = "{{ raise_exception('no content') }}"
    with pytest.raises(UsageError, match=says):
        pair_windows(rows, made, VIEW)


def test_null_is_a_short_row(caplog: pytest.LogCaptureFixture):
    null = {
        "text": [{"text": None}],
        "messages": [{"messages": None}],
        "prompt": [{"prompt": None, "completion": None}],
    }
    for kind, rows in null.items():
        given = [KINDS[kind][0](0), *rows]
        expected = pair_windows(given[:1], tokenizer(), VIEW)
        caplog.clear()
        assert list(pair_windows(given, tokenizer(), VIEW)) == list(expected)
        assert "1 of 2 rows are shorter" in caplog.text
    chats = [KINDS["messages"][0](0), *null["messages"]]
    alone = pair_windows(chats[:1], tokenizer(), VIEW, assistant_only=True)
    assert list(pair_windows(chats, tokenizer(), VIEW, assistant_only=True)) == list(alone)


def test_chats_in_a_column_of_another_name():
    chats = [KINDS["messages"][0](i) for i in (0, 2)]
    renamed = [{"talk": row["messages"]} for row in chats]
    given = pair_windows(renamed, tokenizer(), VIEW, text_field="talk")
    assert list(given) == list(pair_windows(chats, tokenizer(), VIEW))


def sft(
    folder: Path, data: Any, *, view: View = VIEW, evaluated: Any = None, plain: bool = False, **changes: Any
) -> Any:
    """SFTTrainer with its defaults, or with plain arguments, but for what keeps a test small."""
    trl = pytest.importorskip("trl")
    config = TrainingArguments if plain else trl.SFTConfig

    class AlignmentSFTTrainer(AlignmentTrainer, trl.SFTTrainer): ...

    small = {"max_steps": 2, "report_to": "none", "use_cpu": True, "bf16": False, "logging_steps": 1}
    return AlignmentSFTTrainer(
        tiny_llama(num_hidden_layers=1),
        config(str(folder), **(small | {"save_strategy": "no", "disable_tqdm": True} | changes)),
        objective=Objective(alpha=0.3, divergence="jeffreys"),
        data_collator=PairCollator(view),
        train_dataset=data,
        eval_dataset=evaluated,
        processing_class=tokenizer(),
    )


CHATS = [KINDS["messages"][0](i) for i in (0, 1, 2)] * 4


@pytest.mark.parametrize("stream", [False, True])
def test_trl_trains_with_its_defaults_on_all_rows_as_they_are(stream: bool, tmp_path: Path, caplog: Any):
    data = Dataset.from_list(CHATS)
    made = pair_windows(data.to_iterable_dataset() if stream else data, tokenizer(), VIEW)
    trainer = sft(tmp_path, made)
    assert caplog.text.count("left out") == 1
    columns = ("input_ids", "labels")
    given = [[row[name] for name in columns] for row in made]
    assert [[row[name] for name in columns] for row in trainer.train_dataset] == given
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "jeffreys" in entry] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "rows", "words"),
    [
        ({"packing": True}, None, "packing=True"),
        ({"packing": True, "packing_strategy": "wrapped"}, None, "packing=True"),
        ({"padding_free": True}, None, "padding_free=True"),
        ({"eval_packing": True}, None, "eval_packing=True"),
        ({"max_length": 20}, None, "max_length=20"),
        ({"assistant_only_loss": True}, None, "assistant_only=True"),
        ({"completion_only_loss": False}, None, "completion_only_loss=False"),
        ({}, CHATS, "pair_windows"),
        ({}, [{"input_ids": [1] * SIZE}] * 9 + [{"input_ids": [1] * 9}], "9 tokens, others 23"),
        ({}, [{"input_ids": [1] * 300}] * 10, "300 tokens"),
    ],
)
def test_what_trl_would_do_to_rows_is_refused_before_the_first_step(changes, rows, words, tmp_path):
    data = pair_windows(CHATS, tokenizer(), VIEW) if rows is None else Dataset.from_list(rows)
    with pytest.raises(UsageError, match=words):
        sft(tmp_path, data, **changes)


def test_without_offsets_rows_that_trl_cuts_are_refused(tmp_path: Path):
    """Every size is one of pairs, so nothing else tells."""
    rows = Dataset.from_list([{"input_ids": [*range(1, SIZE + 1)]}] * 8)
    for most in (SIZE, 1024, None):
        trainer = sft(tmp_path, rows, view=View(16), max_length=most)
        assert len(trainer.train_dataset[0]["input_ids"]) == SIZE
    short = rows.map(lambda row: {"input_ids": row["input_ids"][:20]})
    for data, evaluated in (
        (rows, None),
        (short, rows),
        (short, {"a": rows}),
        (short.to_iterable_dataset(), None),
    ):
        with pytest.raises(UsageError, match="max_length=20"):
            sft(tmp_path, data, evaluated=evaluated, view=View(16), max_length=20)
    # Plain arguments become an SFTConfig with its default.
    with pytest.raises(UsageError, match="max_length=1024"):
        sft(tmp_path, Dataset.from_list([{"input_ids": [1] * 1499}] * 8), view=View(1000), plain=True)


class _Rows(torch.utils.data.IterableDataset[Any]):
    """A stream of torch."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


STREAMS: dict[str, Any] = {
    "torch": _Rows,
    "data set": lambda rows: Dataset.from_list(rows).to_iterable_dataset(),
    "unknown columns": lambda rows: IterableDataset.from_generator(lambda: iter(rows)),
}


def streaming(data: Any, folder: Path, view: View = VIEW, evaluated: Any = None) -> AlignmentTrainer:
    return AlignmentTrainer(
        tiny_llama(num_hidden_layers=1),
        TrainingArguments(str(folder), max_steps=2, use_cpu=True, report_to="none", save_strategy="no"),
        objective=Objective(alpha=0.3),
        data_collator=PairCollator(view),
        train_dataset=data,
        eval_dataset=evaluated,
    )


@pytest.mark.parametrize("kind", STREAMS)
def test_a_ragged_stream_is_cut_as_rows_are(kind: str, tmp_path: Path):
    tokens = [ids(words(seed, count)) for seed, count in enumerate((40, 1, 25, 60))]
    masks = [([0] * 5 + [1] * len(each))[: len(each)] for each in tokens]
    rows = [{"input_ids": each, "completion_mask": own} for each, own in zip(tokens, masks, strict=True)]
    expected = list(pair_windows(rows, None, VIEW))
    cut = pair_windows(STREAMS[kind](rows), None, VIEW)
    assert list(cut) == expected
    assert {len(row["input_ids"]) for row in expected} == {SIZE}
    trainer = streaming(cut, tmp_path)
    trainer.train()
    assert trainer.state.global_step == 2


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_gives_no_pair_is_refused(kind: str, tmp_path: Path):
    stream = STREAMS[kind]
    with pytest.raises(UsageError, match="no row"):
        pair_windows(stream([{"input_ids": [1] * 9}] * 3), None, VIEW)
    with pytest.raises(UsageError, match="offsets"):
        pair_windows(stream([{"input_ids": [1] * 16}]), None, View(16))
    for rows, view, says in (
        ([{"input_ids": [1] * 9}] * 8, VIEW, "9 tokens"),
        ([{"input_ids": [1] * 16}] * 8, View(16), "both windows of a pair are the same"),
        ([{"words": "a"}] * 8, VIEW, "the columns words"),
    ):
        with pytest.raises(UsageError, match=says):
            streaming(stream(rows), tmp_path, view).train()


class _ByNumber(torch.utils.data.Dataset[Any]):
    """Rows of torch, by number."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def made_when_read(rows: Any) -> Any:
    numbers = Dataset.from_dict({"number": range(len(rows))})
    return numbers.with_transform(
        lambda batch: {"input_ids": [rows[number]["input_ids"] for number in batch["number"]]}
    )


@pytest.mark.parametrize("kind", [list, _ByNumber, made_when_read])
def test_ragged_rows_by_number_are_refused_before_the_first_step(kind: Any, tmp_path: Path):
    rows = [{"input_ids": [1] * SIZE} for _ in range(20)]
    whole, ragged = kind(rows), kind([*rows, {"input_ids": [1] * (SIZE - 1)}])
    streaming(whole, tmp_path, evaluated={"a": whole})
    for data, evaluated in ((ragged, None), (whole, {"a": ragged})):
        with pytest.raises(UsageError, match=f"{SIZE - 1} tokens, others {SIZE}"):
            streaming(data, tmp_path, evaluated=evaluated)
    if kind is _ByNumber:
        with pytest.raises(UsageError, match="the columns words"):
            streaming(kind([{"words": "a"}]), tmp_path)


def test_rows_whose_two_windows_are_the_same_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="16 tokens, and so has a window"):
        streaming([{"input_ids": [1] * 16}] * 3, tmp_path, View(16))
