"""Any data set as rows that pairs of windows are cut from, and what a Trainer must not do to them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset as StreamOfTorch

from lengthwise.errors import UsageError, require_kind
from lengthwise.progress import progress
from lengthwise.text.chats import render_chat
from lengthwise.text.local_files import text_of
from lengthwise.text.tokens import LONG, added_tokens, encode
from lengthwise.training.arguments import check_steps
from lengthwise.training.collator import PairCollator, WindowDataset, tokens_and_targets
from lengthwise.training.columns import check_columns, check_has_tokens
from lengthwise.training.views import View, last_offset
from lengthwise.versions import need

logger = logging.getLogger(__name__)

_MANY = 10_000
"""Rows from which on reading them shows its progress."""


def pair_windows(
    dataset: Any,
    tokenizer: Any,
    view: View,
    *,
    text_field: str = "text",
    assistant_only: bool = False,
    packing: bool = False,
) -> Any:
    """A data set of `input_ids` and `labels`, each row as long as a pair of windows of `view` needs.

    A row of `dataset` has a text (which then ends with EOS), `messages` for the tokenizer's chat template, a `prompt`
    and a `completion` (texts or messages; only the completion is a target), or `input_ids` with `labels` or masks. It
    gives as many rows as fit into it. The rest of it is left out, and a row that is too short: a warning counts them,
    but for a stream, of which nobody knows the length.

    Args:
        dataset: a `datasets.Dataset` or `IterableDataset`, an `IterableDataset` of torch, or a list of rows.
        tokenizer: that of the model.
        view: how the windows are made; give the collator the same one.
        text_field: the column with the text, or with the messages of a chat.
        assistant_only: only assistant turns are targets; the chat template has to mark them with {% generation %}, or
            `assistant_masks` beside `input_ids`.
        packing: join the rows first, so that windows cross from one text into the next and little is left out.

    Raises:
        UsageError: no column or row to make windows of; a text_field beside a column that is read in its place;
            assistant_only where nothing marks an assistant's turns; a truncated view without offsets, of which both
            windows would be the same.
    """
    need("datasets")
    from datasets import Dataset, Features, IterableDataset, Sequence, Value

    require_kind("view", view, View, "a View, as View(1024, offsets=(1, 511))")
    require_kind("text_field", text_field, str, "the name of a column")
    require_kind("assistant_only", assistant_only, bool, "True or False")
    require_kind("packing", packing, bool, "True or False")
    if view.offsets is None:
        raise UsageError(
            "the view has no offsets, which leaves the size of a row open",
            expected="rows of one size: length + the last offset",
            fix="View(length, offsets=(1, length // 2 - 1))",
        )
    data = dataset
    if not hasattr(dataset, "map"):
        stream = isinstance(dataset, StreamOfTorch)
        several = hasattr(dataset, "__iter__") or hasattr(dataset, "__getitem__")
        rows: Any = dataset if stream else list(dataset) if several else [dataset]
        for row in islice(iter(rows), 1) if stream else rows:
            require_kind("a row of the data set", row, Mapping, "a dict with a text, messages or input_ids")
        data = IterableDataset.from_generator(lambda: iter(rows)) if stream else Dataset.from_list(rows)
    names = data.column_names or list(next(iter(data), {}))
    # The first of them is read.
    known = ("input_ids", "prompt", "messages", text_field)
    read = next((name for name in known if name in names), None)
    if read is None:
        raise UsageError(
            f"a data set with the columns {', '.join(names) or 'none'}",
            expected=f"one of {', '.join(known)}",
            fix="text_field=NAME, the column with the text",
        )
    if text_field not in ("text", read):
        raise UsageError(
            f"text_field is {text_field!r}, and the data set has a column {read!r}, which is read in its place",
            fix=f"remove the column {read!r}, or leave text_field out",
        )
    columns = {name: Sequence(Value("int64")) for name in ("input_ids", "labels")}
    kinds: dict[str, Any] = {"features": Features(columns)}
    # datasets 3.0 would remove what the function gives by a name that the stream had.
    others = [name for name in names if name not in columns]
    tokens = data.map(_Tokens(tokenizer, text_field, assistant_only), remove_columns=others, **kinds)
    size = view.longest_stretch
    # As arrays too.
    cut: Any = tokens.with_format("numpy").map(
        _Stretches(size, packing), batched=True, batch_size=max(1000, size), **kinds
    )
    cut, lengths = cut.with_format(None), row_lengths(tokens)
    if next(iter(cut), None) is None:
        longest = "" if lengths is None else f"; the longest has {max(lengths, default=0)}"
        raise UsageError(
            f"no row has the {size} tokens of a pair of windows{longest}",
            expected="length + the last offset, or more",
            fix="packing=True, which joins rows, or a shorter length",
        )
    if lengths is None:
        logger.warning(
            "a stream: rows under %d tokens, and what is left at the end of others, are left out", size
        )
    elif rest := sum(lengths) - size * len(cut):
        short = sum(length < size for length in lengths)
        logger.warning(
            "left out: %d of %d tokens (%d of %d rows are shorter than the %d of a pair of windows)",
            *(rest, sum(lengths), short, len(lengths), size),
        )
    return cut


class _Tokens:
    """A row as tokens and labels. `datasets` keeps what it gives under a hash of its fields."""

    def __init__(self, tokenizer: Any, text_field: str, assistant_only: bool) -> None:
        from lengthwise import __version__

        self.version = __version__
        self.tokenizer, self.text_field, self.assistant_only = tokenizer, text_field, assistant_only

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        # As arrays: a row may have millions of tokens.
        tokens, targets = tokens_and_targets(self._item(row))
        return {"input_ids": tokens, "labels": targets}

    def _item(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if "input_ids" in row:
            check_columns([row])
            self._check_turns(row.get("assistant_masks") is not None)
            return {**row}
        if "prompt" not in row:
            value = _value(row, "messages" if "messages" in row else self.text_field)
            return self._chat(value, row) if isinstance(value, list) else self._words(value)
        prompt, completion = _value(row, "prompt"), _value(row, "completion")
        if isinstance(prompt, str) and isinstance(completion, str):
            begin, item = self._plain(prompt), self._words(prompt + completion)
        else:
            begin = self._chat(prompt, row, add_generation_prompt=True, marked=False)["input_ids"]
            item = self._chat([*prompt, *completion], row)
        ids = item["input_ids"]
        # Tokens may merge across the border.
        pairs = enumerate(zip(begin, ids, strict=False))
        first = next((i for i, (a, b) in pairs if a != b), min(len(begin), len(ids)))
        return item | {"completion_mask": [int(i >= first) for i in range(len(ids))]}

    def _plain(self, text: str) -> Any:
        """The ids of a text with special tokens around it, which a long one gets apart: it is tokenized in pieces."""
        before, after = added_tokens(self.tokenizer) if len(text) >= LONG else ((), ())
        # A tokenizer whose special tokens change those of the text has no `before` and `after`.
        if len(text) < LONG or [*before] == self.tokenizer("a")["input_ids"]:
            return self.tokenizer(text, verbose=False)["input_ids"]
        [ids] = encode([text], self.tokenizer)
        return np.concatenate([before, ids, after]).astype(np.int64)

    def _words(self, text: str) -> dict[str, Any]:
        """A text with EOS. A row of null is none, whatever the others are."""
        self._check_turns(not text)
        ids, eos = self._plain(text), self.tokenizer.eos_token_id
        return {"input_ids": ids if eos is None or [*ids[-1:]] == [eos] else np.append(ids, eos)}

    def _check_turns(self, told_apart: bool) -> None:
        if self.assistant_only and not told_apart:
            raise UsageError(
                "assistant_only, and a row does not say which of its tokens are an assistant's",
                expected="messages, a prompt and a completion of messages, or input_ids with assistant_masks",
                fix="assistant_only=False",
            )

    def _chat(
        self, messages: Any, row: Mapping[str, Any], *, marked: bool = True, **options: Any
    ) -> dict[str, Any]:
        marked = marked and self.assistant_only
        options |= {"tools": row.get("tools"), **(row.get("chat_template_kwargs") or {})}
        options |= {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": marked}
        made = render_chat(self.tokenizer, messages, "a row", **options)
        item = {"input_ids": made["input_ids"]}
        if marked:
            item["assistant_masks"] = made["assistant_masks"]
            if 1 not in made["assistant_masks"]:
                raise UsageError(
                    "assistant_only, and the chat template marks no token of a row as the assistant's",
                    fix="a template with {% generation %} around the assistant's turns, or assistant_only=False",
                )
        return item


def _value(row: Mapping[str, Any], name: str) -> Any:
    """The text or the messages in a column of a row, "" for null; UsageError for something else."""
    value = text_of(row, name, where="a row of the data set")
    if isinstance(value, UsageError):
        raise UsageError(value.problem, expected=value.expected)
    return value


class _Stretches:
    """Rows of one size from a batch of rows of any."""

    def __init__(self, size: int, packing: bool) -> None:
        self.size, self.packing = size, packing

    def __call__(self, batch: Mapping[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        columns = ("input_ids", "labels")
        return {name: [np.asarray(row).tolist() for row in self.rows(batch[name])] for name in columns}

    def rows(self, rows: Sequence[Any]) -> Iterator[Any]:
        """Every row, or all joined, in stretches of the size."""
        if self.packing:
            rows = [np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])] if len(rows) else []
        for row in rows:
            for start in range(0, len(row) - self.size + 1, self.size):
                yield row[start : start + self.size]


def row_lengths(dataset: Any) -> list[int] | None:
    """The tokens in each row of a list, a `datasets.Dataset`, or what has rows by number; None of a stream.

    Where only reading tells, all of it is read.
    """
    if not hasattr(dataset, "__len__"):
        return None
    if "input_ids" in (getattr(dataset, "column_names", None) or ()) and hasattr(dataset, "with_format"):
        batches = dataset.select_columns("input_ids").with_format("arrow").iter(batch_size=1000)
        chunks = (chunk for batch in batches for chunk in batch["input_ids"].chunks)
        return [length for chunk in chunks for length in chunk.value_lengths().to_pylist()]
    lengths, places = list[int](), range(len(dataset))
    for index in progress(places, what="rows", total=len(places)) if len(places) > _MANY else places:
        row = dataset[index]
        if "draw" in row:
            # Of a WindowDataset, whose view says how long they are.
            return None
        check_has_tokens(row)
        lengths.append(len(row["input_ids"]))
    return lengths


def check_preparation(
    args: Any, data_collator: Any = None, train_dataset: Any = None, eval_dataset: Any = None, **_: Any
) -> None:
    """Refuse what a Trainer such as TRL's would do to the rows of a PairCollator before it sees them.

    UsageError for packing, padding-free batches, a `max_length` that cuts rows, rows without tokens, or settings
    that choose other targets; a WindowDataset of another view, or whose steps the Trainer would not keep together.
    """
    if not isinstance(data_collator, PairCollator):
        return
    for datasets, training in (([train_dataset], True), ([eval_dataset], False)):
        for windows in _each(datasets):
            if isinstance(windows, WindowDataset):
                data_collator.view.check_takes(windows.view)
                check_steps(args, windows, training=training)
    view, given = data_collator.view, _each([train_dataset, eval_dataset])
    size = view.longest_stretch
    whole = f"None: a pair of windows needs {f'{size} tokens' if view.offsets else 'the whole row'}"

    def cuts(most: int | None) -> bool:
        """Without offsets a row that is cut makes other pairs in silence; nobody knows the rows of a stream."""
        if most is None or view.offsets is not None:
            return most is not None and most < size
        rows = (each for each in given if each is not None and not isinstance(each, WindowDataset))
        return any((n := row_lengths(each)) is None or max(n, default=0) > most for each in rows)

    joined = "False, and pair_windows(..., packing=True) to join texts"
    for name, changes, fix in (
        ("packing", bool, joined),
        ("eval_packing", bool, joined),
        ("padding_free", bool, "False: windows have no padding"),
        ("max_length", cuts, whole),
        ("assistant_only_loss", bool, "False, and pair_windows(..., assistant_only=True)"),
        ("completion_only_loss", lambda only: only is False, "None: rows of whole texts have no prompt"),
    ):
        if changes(value := getattr(args, name, None)):
            raise UsageError(f"{name}={value} is not for rows that windows are cut from", fix=f"{name}={fix}")
    for dataset in given:
        names = getattr(dataset, "column_names", None)
        custom = (getattr(dataset, "format", None) or {}).get("type") == "custom"
        if names is not None and not custom:
            check_has_tokens(names)


def check_rows(collator: Any, *datasets: Any) -> None:
    """Refuse, before the first step, rows that no pair of windows can be made of, or that would be cut."""
    if isinstance(collator, PairCollator):
        for dataset in _each(datasets):
            view, offsets = collator.view, collator.view.offsets
            if isinstance(dataset, WindowDataset):
                view, offsets = dataset.view, dataset.view.offsets or (0, 0)
            elif lengths := row_lengths(dataset):
                collator.check_sizes(lengths)
            if view.name == "truncation" and offsets is not None and offsets[0] == 0:
                raise UsageError(
                    "an offset of 0 makes both windows of a pair the same, which trains no divergence",
                    expected="offsets from 1 on",
                    fix=f"offsets=(1, {offsets[1] or last_offset(view.name, view.length, view.min_context)})",
                )


def _each(datasets: Sequence[Any]) -> list[Any]:
    return [one for each in datasets for one in (each.values() if isinstance(each, Mapping) else [each])]
