"""Prompts and answers as tokens: chat templates, what is cut, and what is said of it.

LongBench's middle truncation: a prompt of more than L tokens keeps its first floor(L/2) and its last
floor(L/2) tokens; both halves are decoded, joined and tokenised again. So a cut prompt can be a few tokens
longer or shorter than L. The limit leaves no room for the reply: choose it below the model's context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Literal

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Item, Record
from lengthwise.text.chats import render_chat
from lengthwise.text.tokens import added_tokens

_OPENING = 8
"""The last tokens of a prompt, in which a chat template may open <think>."""
Truncation = Literal["middle", "left"]
"""middle keeps both ends (LongBench); left keeps the end (lm-eval), so an instruction at the beginning is lost."""


def fit(
    tokenizer: Any, text: str, limit: int | None, truncation: Truncation | None, *, chat: bool = False
) -> tuple[tuple[int, ...], int]:
    """The prompt's tokens, cut to `limit` as `truncation` says, and how many are over the limit.

    Without a truncation nothing is cut. The tokenizer adds what it puts before a text. With `chat` the text, cut
    first as upstream does, becomes a user's turn in the tokenizer's chat template.
    """
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    ids = prompt_ids(tokenizer, text)
    over = 0 if limit is None else max(0, len(ids) - limit)
    if limit is not None and over and truncation == "middle":
        half = limit // 2
        text = decode(ids[:half]) + decode(ids[len(ids) - half :])
        ids = prompt_ids(tokenizer, text)
        over += limit % 2
    elif over and truncation == "left":
        ids = ids[over:]
        text = decode(ids)
    if chat:
        written = partial(render_chat, tokenizer, [{"role": "user", "content": text}], "a prompt")
        whole = written(add_generation_prompt=True, tokenize=False)
        ids = written(add_generation_prompt=True, return_dict=True)["input_ids"]
        # A template may strip and indent, and no more.
        if "".join(text.split()) not in "".join(whole.split()):
            raise UsageError(
                "the chat template leaves out a prompt, or a part of it",
                expected="a template that writes what the user says",
                fix="--chat never, or another tokenizer",
            )
    return tuple(ids), over


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a prompt, with what the tokenizer puts before a text, and without an EOS: an answer follows."""
    _, after = added_tokens(tokenizer)
    ids: list[int] = tokenizer(text, verbose=False).input_ids
    return ids[: len(ids) - len(after)]


def answer_tokens(tokenizer: Any, prompt: str, answer: str) -> tuple[int, ...]:
    """The tokens of `answer` right after `prompt`."""
    # The end of the prompt decides how the answer after it becomes tokens.
    tail = prompt[-200:]
    before: list[int] = tokenizer(tail, add_special_tokens=False).input_ids
    both: list[int] = tokenizer(tail + answer, add_special_tokens=False).input_ids
    if both[: len(before)] == before and len(both) > len(before):
        return tuple(both[len(before) :])
    # The border is inside a token, so the answer is tokenised alone.
    return tuple(tokenizer(answer, add_special_tokens=False).input_ids)


def unfinished_thoughts(tokenizer: Any, items: Sequence[Item], records: Mapping[str, Record]) -> list[str]:
    """How many replies of each task end inside of <think>, which a chat template may have begun."""
    cut, written = Counter[str](), Counter[str]()
    for item in items:
        if (reply := records.get(item.key, {}).get("reply")) is not None:
            text = tokenizer.decode(item.content.ids[-_OPENING:]) + reply
            cut[item.facts["task"]] += text.rfind("<think>") > text.rfind("</think>")
            written[item.facts["task"]] += 1
    return [
        f"{count} of {written[name]} replies of {name} end inside <think>: they hold no answer, and their scores "
        "mean nothing."
        for name, count in (+cut).items()
    ]


def prompt_notes(
    tasks: Mapping[str, Sequence[Mapping[str, Any]]], truncation: Truncation | None, limit: int | None
) -> list[str]:
    """What was cut, and how far answers are from their depths, from the facts of each task's items."""
    where = "in the middle" if truncation == "middle" else "at the beginning"
    notes: list[str] = []
    for name, own in tasks.items():
        cut = [facts["cut"] for facts in own if facts["cut"]]
        if cut:
            notes.append(
                f"{len(cut)} of {len(own)} prompts of {name} were cut {where} to {limit} tokens "
                f"({fmean(cut):.0f} tokens of each on average)."
            )
        placed = [each for each in own if None not in (each.get("depth"), each.get("reached"))]
        off = max((abs(each["reached"] * 100 - each["depth"]) for each in placed), default=0)
        if off >= 2:
            notes.append(
                f"In {name} an answer is up to {off:.0f} points from its depth: sentences are not split."
            )
    return notes
