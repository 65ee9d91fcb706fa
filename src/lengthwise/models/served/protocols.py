"""The two ways in which servers give log-probabilities of a prompt. One literal table, in the order of the probe.

A request is one prompt of token ids; an answer gives one number for each token, None for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LogProbs = list[float | None]


class NoLogProbs(Exception):
    """An answer does not hold what the protocol promises; its text says what is missing."""


@dataclass(frozen=True)
class Protocol:
    """One way to ask, and how its answer is read."""

    name: str
    asks: Mapping[str, Any]
    """What the body of a request has beside the prompt."""
    read: Callable[[Mapping[str, Any], Sequence[int]], LogProbs]
    """(the answer's choice, the prompt) -> log p of each token of the prompt, the first None."""

    def log_probs(self, answer: Any, prompt: Sequence[int]) -> LogProbs:
        """The log-probabilities in a whole answer.

        Raises:
            NoLogProbs: fewer entries than tokens, or an entry without a number.
        """
        found = self.read(choice(answer), prompt)
        if len(found) != len(prompt):
            raise NoLogProbs(f"{len(found)} entries for {len(prompt)} tokens")
        for position, value in enumerate(found[1:], start=1):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise NoLogProbs(f"no number for token {position} of {len(prompt)}")
        return [None, *found[1:]]


def choice(answer: Any) -> Mapping[str, Any]:
    """The one choice of a completion.

    Raises:
        NoLogProbs: the answer is no completion.
    """
    try:
        found = answer["choices"][0]
    except (KeyError, IndexError, TypeError):
        found = None
    if not isinstance(found, Mapping):
        raise NoLogProbs("an answer without choices")
    return found


def _prompt_logprobs(found: Mapping[str, Any], prompt: Sequence[int]) -> LogProbs:
    entries = found.get("prompt_logprobs")
    if not isinstance(entries, list):
        raise NoLogProbs("no prompt_logprobs")
    values: LogProbs = []
    for token, entry in zip(prompt, entries, strict=False):
        own = entry.get(str(token)) if isinstance(entry, Mapping) else None
        values.append(own.get("logprob") if isinstance(own, Mapping) else None)
    return values


def _echo(found: Mapping[str, Any], prompt: Sequence[int]) -> LogProbs:
    logprobs = found.get("logprobs")
    entries = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(entries, list):
        raise NoLogProbs("no token_logprobs")
    # The last entry is of the token that was generated, if there is one more than the prompt has tokens.
    return entries[: len(prompt)]


PROTOCOLS = (
    Protocol("prompt_logprobs", {"prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}, _prompt_logprobs),
    Protocol("echo", {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}, _echo),
)

DISTRIBUTION = {"logprobs": -1, "return_tokens_as_token_ids": True, "max_tokens": 1, "temperature": 0}
"""What asks for the whole distribution of the next token (vLLM with --max-logprobs -1)."""


def distribution(answer: Any) -> dict[int, float]:
    """log p of every token that an answer to `DISTRIBUTION` names, by id.

    Raises:
        NoLogProbs: entries that are not named by token id.
    """
    logprobs = choice(answer).get("logprobs")
    tops = logprobs.get("top_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(tops, list) or not tops or not isinstance(tops[0], Mapping):
        raise NoLogProbs("no top_logprobs")
    try:
        return {int(name.removeprefix("token_id:")): float(value) for name, value in tops[0].items()}
    except (TypeError, ValueError) as error:
        raise NoLogProbs("top_logprobs that are not named by token id") from error
