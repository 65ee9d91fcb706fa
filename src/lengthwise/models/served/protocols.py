"""The two ways in which servers give log-probabilities of a prompt of token ids, in the order of the probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lengthwise.errors import LengthwiseError

LogProbs = list[float | None]
"""log p of each token of a prompt; None for the first."""


class NoLogProbs(LengthwiseError):
    """An answer lacks log-probabilities that were asked for."""


def _prompt_logprobs(choice: Any, prompt: Sequence[int]) -> list[Any]:
    entries = choice["prompt_logprobs"]
    pairs = zip(prompt[1:], entries[1:], strict=True)
    return [None, *(entry and entry[str(token)]["logprob"] for token, entry in pairs)]


def _echo(choice: Any, prompt: Sequence[int]) -> list[Any]:
    # One more than the prompt has tokens is of the token that was generated.
    return choice["logprobs"]["token_logprobs"][: len(prompt)]


PROTOCOLS: dict[str, tuple[dict[str, Any], Callable[[Any, Sequence[int]], list[Any]]]] = {
    "prompt_logprobs": ({"prompt_logprobs": 0, "max_tokens": 1, "temperature": 0}, _prompt_logprobs),
    "echo": ({"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}, _echo),
}
"""The body of a request besides the prompt, and what its answer gives for the tokens of the prompt."""

DISTRIBUTION = {"logprobs": -1, "return_tokens_as_token_ids": True, "max_tokens": 1, "temperature": 0}
"""What asks for the whole distribution of the next token (vLLM with --max-logprobs -1)."""


def log_probs(protocol: str, answer: Any, prompt: Sequence[int]) -> LogProbs:
    """The log-probabilities in a whole answer.

    Raises:
        NoLogProbs: fewer entries than tokens, or an entry without a number.
    """
    try:
        found = PROTOCOLS[protocol][1](answer["choices"][0], prompt)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NoLogProbs(
            f"the answer has other or fewer entries than {protocol} promises: {error!r}"
        ) from error
    if len(found) != len(prompt):
        raise NoLogProbs(f"the answer has {len(found)} entries for {len(prompt)} tokens")
    for position, value in enumerate(found[1:], start=1):
        if not isinstance(value, int | float):
            raise NoLogProbs(f"the answer has no number for token {position} of {len(prompt)}")
    return [None, *found[1:]]


def distribution(answer: Any) -> dict[int, float]:
    """log p of every token that an answer to `DISTRIBUTION` names, by id.

    Raises:
        NoLogProbs: entries that are not named by token id.
    """
    try:
        [tops] = answer["choices"][0]["logprobs"]["top_logprobs"]
        return {int(name.removeprefix("token_id:")): float(value) for name, value in tops.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise NoLogProbs(f"the answer has no top_logprobs by token id: {error!r}") from error
