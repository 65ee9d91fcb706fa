"""What a server says of its model, and the proofs that its numbers and tokens are what they seem.

A short prompt shows whether a server gives log-probabilities, a long one whether it reads all that it is sent.
Servers cut prompts on either side or in the middle, begin them with a BOS of their own or drop it, or take a
beginning from a cache that holds another one, and then answer with as many numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from lengthwise.checkpoints.resolve import read_tokenizer
from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.subjects.answers import PROTOCOLS, Refused, log_probs, usage_of
from lengthwise.subjects.client import Client

Ask = Callable[[Sequence[Sequence[int]]], list[list[float]]]
"""Prompts -> log p of each of their tokens but the first."""

# Scripts, numbers and spaces that tokenizers cut differently.
PROBE = (
    "The old queen remembers the golden mountain. On 12 March 1984 the naïve Zoë paid $3,456.78;\n"
    "\tif x<=10: Straße, кот, 東京, 🙂 disestablishmentarians"
)
PROBED = 48
"""Tokens of it that are scored."""
_CHANGED = 16
"""Tokens at the end of a long prompt, every second of which is another one when it is asked again."""
_BLOCK = 16
"""Tokens over which differences are averaged: 16 bits move single numbers of unlikely tokens by more."""
UNLIKE = 0.01
"""Nats between two answers to a prompt that results name."""
_AT_THE_END = 4
"""So many tokens have the lowest number where a server cuts numbers off; random tokens have many that are lower."""
_ROUNDING = 0.25
"""Nats by which a token's log-probability may change with what follows it: 16-bit rounding."""


def card_of(client: Client, served_model: str | None) -> dict[str, Any]:
    """What the server's list says of the model; UsageError unless one is named or served alone."""
    listed = client.get(f"{client.url}/models")
    try:
        named = {card["id"]: card for card in listed["data"] if isinstance(card["id"], str)}
    except (KeyError, TypeError):
        # Another list, or null where nothing is served.
        named = {}
    if served_model is None and len(named) == 1:
        return next(iter(named.values()))
    if served_model in named:
        return named[served_model]
    problem = f"does not serve {served_model!r}" if served_model else "serves several models, or none"
    raise UsageError(
        f"{client.url} {problem}", expected=f"--served-model with one of: {', '.join(named) or 'none'}"
    )


def served_tokenizer(card: Mapping[str, Any]) -> Any:
    """The tokenizer that the server says it loaded; MissingError if it is not known here."""
    try:
        return read_tokenizer(str(card.get("root") or card["id"]))
    except LengthwiseError as error:
        raise MissingError(
            f"the tokenizer of the served model {card['id']} is not known here: {error.problem}",
            fix="--tokenizer with its hub id or folder",
        ) from error


def protocol_of(client: Client, card: Mapping[str, Any], tokenizer: Any) -> str:
    """The first protocol that holds on a short prompt and its beginning; UsageError says what is wrong with each."""
    ids = _ids(tokenizer)[:PROBED]
    prompts, reasons = (ids, ids[:-4]), []
    for protocol, fields in PROTOCOLS.items():
        try:
            answers = client.complete(card["id"], prompts, fields)
            reason = _misfit(*map(partial(log_probs, protocol), answers, prompts))
        except Refused as error:
            if error.fix:
                # It is no question of protocols.
                raise
            reason = error.problem
        if reason is None:
            return protocol
        reasons.append(f"{protocol}: {reason}")
    raise UsageError(
        f"{client.url} ({card.get('owned_by') or 'a server without a name'}) gives no log-probabilities of prompts "
        f"({'; '.join(reasons)})",
        expected="vLLM, SGLang, or another server with prompt_logprobs or echo on /v1/completions",
    )


def _misfit(whole: Sequence[float], beginning: Sequence[float]) -> str | None:
    """What is wrong with the log-probabilities of a text and of its beginning; None if they fit each other."""
    if not all(map(math.isfinite, whole)):
        return "numbers that are no log-probabilities"
    if max(whole) - min(whole) < 1e-3:
        return "the same number for every token"
    if sorted(whole, reverse=True) == list(whole):
        return "sums of the numbers before"
    apart = max(abs(a - b) for a, b in zip(whole, beginning, strict=False))
    if apart > _ROUNDING:
        return f"a token's number changes by {apart:.3g} nats with what follows it"
    return None


def steady(ask: Ask, url: str, tokenizer: Any) -> tuple[tuple[list[int], Any], float]:
    """A short prompt with its numbers, and how far answers were apart: four are asked alone, then twice all at once.

    Raises as `check_same`.
    """
    ids = _ids(tokenizer)[:PROBED]
    # All have one length: a server could tell prompts of several lengths apart.
    prompts = [ids[start:] + ids[:start] for start in range(0, PROBED, PROBED // 4)]
    alone = [np.array(ask([prompt])[0], dtype=float) for prompt in prompts]
    pairs = zip(alone * 2, ask(prompts * 2), strict=True)
    apart = max(check_same(url, one, np.array(beside, dtype=float)) for one, beside in pairs)
    return (prompts[0], alone[0]), apart


def check_same(url: str, one: Any, other: Any) -> float:
    """How far two answers to a prompt are apart, asked at another time and beside other prompts, in nats.

    UsageError unless they are alike.
    """
    # What the model does not compute is named where it is read, with its text.
    if (apart := _apart(np.nan_to_num(one), np.nan_to_num(other))) > _ROUNDING:
        raise UsageError(
            f"{url} gives a prompt other numbers when it is asked again, by {apart:.3g} nats",
            expected="answers that depend on their prompt alone",
            fix="send the requests to one server, not to replicas that differ, and look whether it was started "
            "again; try --concurrency 1",
        )
    return apart


def check_next(number: Callable[[list[int], int], float], known: tuple[list[int], Any], url: str) -> None:
    """Raise UsageError unless the number of a token after a prefix is the one that it has in a short prompt.

    It is that of the one token that is allowed, or that of the token in a whole distribution.
    """
    ids, numbers = known
    places = range(8, PROBED, 8)
    found = np.array([number(ids[:place], ids[place]) for place in places])
    if not (apart := float(np.abs(found - numbers[places[0] - 1 :: 8]).mean())) <= _ROUNDING:
        raise UsageError(
            f"{url} gives the token after a prompt another number than in a prompt, by {apart:.3g} nats",
            expected="log-probabilities of the model, before tokens are left out and without a temperature",
            fix="start vLLM with --logprobs-mode raw_logprobs, or use a verb and a path that score prompts",
        )


def rounded_to(numbers: Any) -> str | None:
    """How a server rounds the numbers that it sends, where it does so coarsely."""
    ways = {
        "bfloat16": torch.from_numpy(numbers).bfloat16().double().numpy(),
        "float16": numbers.astype(np.float16).astype(float),
        "two decimals": numbers.round(2),
    }
    return next((name for name, found in ways.items() if np.array_equal(found, numbers)), None)


def check_length(ask: Ask, url: str, tokenizer: Any, length: int) -> None:
    """Raise UsageError unless a server reads a prompt of `length` tokens from its first to its last token.

    The first half has to give what it gives alone. With other tokens near the end, what follows them has to change,
    and nothing before them. Where the tokenizer has a BOS, a text has to give other numbers with it.
    """
    drawn = np.random.default_rng(0).choice(_ids(tokenizer), size=(2, length)).tolist()
    bos = tokenizer.bos_token_id
    whole, other = ([*([] if bos is None else [bos]), *each][:length] for each in drawn)
    changed = [*whole]
    places = range(length - _CHANGED, length - 1, 2)
    for place in places:
        changed[place] = next(each for each in other[place:] + other if each != whole[place])
    prompts = [whole, changed, whole[: length // 2]] + ([] if bos is None else [whole[1:PROBED]])
    try:
        found = [np.array(each, dtype=float) for each in ask(prompts)]
        reason = _unread(*found, first=places[0] - 1)
    except Refused as error:
        reason = error.problem
    if reason is not None:
        raise UsageError(
            f"{url} does not read a prompt of {length} tokens as it is sent: {reason}",
            expected="a server that neither cuts prompts nor adds to them",
            fix="use a shorter length, or start the server with a greater maximum (vLLM: --max-model-len), without "
            "truncation, context shift and prompt cache",
        )


def _unread(whole: Any, changed: Any, half: Any, bare: Any = None, *, first: int) -> str | None:
    """What shows that a long prompt was not read as it was sent; None if nothing does.

    Args:
        whole, changed, half: numbers of the prompt, of the one with another end, and of its first half.
        bare: of its beginning without the BOS, if it has one.
        first: where the first two differ.
    """
    known = np.isfinite(whole + changed)
    known[: len(half)] &= np.isfinite(half)
    if not known[first : first + 2].all():
        return "numbers at its end are no log-probabilities"
    # Others are the model's own, which the run names with the text that they are of; the rest has to fit.
    whole, changed, half = (np.where(known[: len(each)], each, 0) for each in (whole, changed, half))
    if (apart := _apart(whole[: len(half)], half)) > _ROUNDING:
        return f"its first {len(half) + 1} tokens give other numbers alone, by {apart:.3g} nats"
    if (apart := _apart(whole[:first], changed[:first])) > _ROUNDING:
        return f"the same tokens give other numbers when they are asked again, by {apart:.3g} nats"
    lowest = np.unique(whole[known], return_counts=True)
    if lowest[1][0] >= _AT_THE_END and lowest[1][0] > 3 * lowest[1][1]:
        return f"numbers are cut off: {lowest[1][0]} are {lowest[0][0]:.4g}, and none is lower"
    # Of the tokens after the changed ones, which are the same in both.
    noise = np.abs(whole - changed)[max(0, first - _CHANGED) : first].max()
    if abs(whole[first] - changed[first]) <= min(noise, 1e-3):
        return "the number of a token does not change with the token"
    if np.abs(whole - changed)[first + 1 :: 2].max() <= max(4 * noise, 1e-4):
        return "other tokens at its end change nothing"
    if abs(whole[first + 1] - changed[first + 1]) <= min(noise, 1e-3):
        return "the number of a token does not change with the token before it"
    if bare is not None:
        same = slice(1, min(len(bare) + 1, first))
        bare = np.where(np.isfinite(bare), bare, whole[1 : len(bare) + 1])
        if np.abs(whole[same] - bare[: first - 1]).mean() <= max(
            2 * np.abs(whole - changed)[same].mean(), 1e-4
        ):
            return "a text gives the same numbers with and without a BOS before it"
    return None


def _apart(one: Any, other: Any) -> float:
    """The mean difference of the worst block."""
    blocks = np.add.reduceat(np.abs(one - other), range(0, len(one), _BLOCK))
    return float(blocks.max()) / min(_BLOCK, len(one))


def check_tokenizer(client: Client, card: Mapping[str, Any], tokenizer: Any) -> None:
    """Raise UsageError unless server and tokenizer make the same ids, or as many, of one text."""
    ours = _ids(tokenizer)
    body = {"model": card["id"], "prompt": PROBE, "add_special_tokens": False}
    try:
        [answer] = client.post(f"{client.root}/tokenize", [body])
        theirs = list(answer["tokens"])
    except (LengthwiseError, KeyError, TypeError):
        theirs = []
    seen, same = len(theirs), theirs == ours
    if not theirs:
        # A server without /tokenize, or with one that takes other fields (llama.cpp), counts them.
        [answer] = client.complete(card["id"], [PROBE], {})
        seen = usage_of(answer).get("prompt_tokens")
        # Servers add special tokens to a text as the tokenizer does.
        counted = seen in (len(ours), len(tokenizer(PROBE).input_ids))
        written = _writes(client, card, tokenizer, ours)
        same = counted if written is None else written and (counted or not seen)
    if not same:
        raise UsageError(
            f"the tokenizer {tokenizer.name_or_path!r} makes {len(ours)} tokens of a text of which "
            f"{client.url} makes {seen}" + (" others" if seen == len(ours) else ""),
            expected="the tokenizer of the served model",
            fix="--tokenizer with the checkpoint that the server loaded",
        )


def _writes(client: Client, card: Mapping[str, Any], tokenizer: Any, ids: list[int]) -> bool | None:
    """Whether a server writes ids as the tokenizer does; None of one that does not repeat a prompt.

    Letters of several tokens are not compared: a server that writes one token after the other cannot.
    """
    try:
        [answer] = client.complete(card["id"], [ids], {"echo": True})
        theirs = _plain(answer["choices"][0]["text"])
    except (Refused, KeyError, IndexError, TypeError, AttributeError):
        return None
    return _plain(tokenizer.decode(ids)) in theirs if len(theirs) > len(PROBE) // 2 else None


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isascii() and not letter.isspace())


def _ids(tokenizer: Any) -> list[int]:
    return list(tokenizer(PROBE, add_special_tokens=False).input_ids)


def version_of(client: Client) -> str | None:
    """What vLLM says of itself; None from other servers."""
    try:
        return str(client.get(f"{client.root}/version")["version"])
    except (LengthwiseError, KeyError, TypeError):
        return None
