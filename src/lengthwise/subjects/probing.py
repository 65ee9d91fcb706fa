"""What a server says of its model, and the proof on a short prompt that its numbers and tokens are what they seem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lengthwise.checkpoints.resolve import read_tokenizer
from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.subjects.client import PROTOCOLS, Client, Refused, log_probs

# Scripts, numbers and spaces that tokenizers cut differently.
PROBE = (
    "The old queen remembers the golden mountain. On 12 March 1984 the naïve Zoë paid $3,456.78;\n"
    "\tif x<=10: Straße, кот, 東京, 🙂 disestablishmentarians"
)
_PROBED = 48
"""Tokens of it that are scored."""
_ROUNDING = 0.25
"""Nats by which a token's log-probability may change with what follows it: 16-bit rounding."""


def card_of(client: Client, served_model: str | None) -> dict[str, Any]:
    """What the server's list says of the model.

    Raises:
        UsageError: no such model is served, or several are and none is named.
    """
    listed = client.get(f"{client.url}/models")
    try:
        named = {card["id"]: card for card in listed["data"]}
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
    """The first protocol that holds on a short prompt and on its beginning.

    Raises:
        UsageError: none does; says what is wrong with each.
    """
    ids = _ids(tokenizer)[:_PROBED]
    prompts, reasons = (ids, ids[:-4]), []
    for protocol, fields in PROTOCOLS.items():
        try:
            answers = client.complete(card["id"], prompts, fields)
            reason = _misfit(*map(partial(log_probs, protocol), answers, prompts))
        except Refused as error:
            if error.status in (401, 403, 404):
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
    apart = max(abs(a - b) for a, b in zip(whole, beginning, strict=False))
    if apart > _ROUNDING:
        return f"a token's number changes by {apart:.3g} nats with what follows it"
    return None


def check_tokenizer(client: Client, card: Mapping[str, Any], tokenizer: Any) -> None:
    """Raise UsageError unless server and tokenizer make the same ids, or as many, of one text."""
    ours = _ids(tokenizer)
    body = {"model": card["id"], "prompt": PROBE, "add_special_tokens": False}
    try:
        [answer] = client.post(f"{client.root}/tokenize", [body])
        theirs = list(answer["tokens"])
    except (Refused, KeyError, TypeError):
        theirs = []
    seen, same = len(theirs), theirs == ours
    if not theirs:
        # A server without /tokenize, or with one that takes other fields (llama.cpp), counts them.
        [answer] = client.complete(card["id"], [PROBE], {})
        seen = (answer.get("usage") or {}).get("prompt_tokens")
        # Servers add special tokens to a text as the tokenizer does.
        same = seen in (len(ours), len(tokenizer(PROBE).input_ids))
    if not same:
        raise UsageError(
            f"the tokenizer {tokenizer.name_or_path!r} makes {len(ours)} tokens of a text of which "
            f"{client.url} makes {seen}" + (" others" if seen == len(ours) else ""),
            expected="the tokenizer of the served model",
            fix="--tokenizer with the checkpoint that the server loaded",
        )


def _ids(tokenizer: Any) -> list[int]:
    return list(tokenizer(PROBE, add_special_tokens=False).input_ids)


def version_of(client: Client) -> str | None:
    """What vLLM says of itself; None from other servers."""
    try:
        return str(client.get(f"{client.root}/version")["version"])
    except (LengthwiseError, KeyError, TypeError):
        return None
