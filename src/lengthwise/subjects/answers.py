"""What is asked of a server, and what its answers hold: numbers of a prompt, whole distributions, replies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lengthwise.errors import LengthwiseError

PROTOCOLS: dict[str, dict[str, Any]] = {
    "prompt_logprobs": {"prompt_logprobs": 0},
    "echo": {"echo": True, "logprobs": 1},
}
"""The ways in which servers give log-probabilities of a prompt, in the order of the probe: fields of the request."""
DISTRIBUTION = {"logprobs": -1, "return_tokens_as_token_ids": True}
"""Fields of a request for the whole distribution of the next token (vLLM with --max-logprobs -1)."""

FORCED = {"logprobs": 1, "return_tokens_as_token_ids": True}
"""Fields of a request for the log-probability of one token, which `allowed_token_ids` names (vLLM)."""

NEUTRAL = {
    "temperature": 0,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
}
"""Fields of every request: servers have other defaults (vLLM takes them from a model's generation_config.json)."""
NOT_OPENAI = ("repetition_penalty",)
"""Of these what OpenAI's API does not have: strict servers refuse it by its name, and have no such default."""

MOST = 1e-3
"""What a log-probability may be, with rounding."""
LEAST = -1000.0
"""A lower number means minus infinity. Servers send -9999, or the lowest number of float32, for it."""
ENDS = (None, "stop", "length", "eos", "eos_token", "stop_sequence")
"""Why a reply may end; any other reason (content_filter, abort, error) says that the model did not end it."""


class Refused(LengthwiseError):
    """An error of the server that another attempt does not change, or an answer that lacks what the request wants.

    Attributes:
        status: of the HTTP answer.
    """

    def __init__(self, problem: str, *, status: int = 200, **more: str) -> None:
        self.status = status
        key = "set LENGTHWISE_API_KEY, or --header NAME=ENV for a gateway with a header of its own"
        url = "check the URL of the API, which mostly ends in /v1, and that it has /completions: chat scores no text"
        fixes = {
            401: key,
            403: key,
            404: url,
            405: url,
            **dict.fromkeys(range(300, 400), "give the URL that answers by itself"),
        }
        super().__init__(problem, **({"fix": fixes[status]} if status in fixes else {}), **more)


def usage_of(answer: Any) -> dict[str, Any]:
    """What an answer counts."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return usage if isinstance(usage, dict) else {}


def log_probs(protocol: str, answer: Any, prompt: Sequence[int]) -> list[float]:
    """log p of each token of a prompt but the first, in the answer of a protocol.

    Refused for fewer entries than tokens, or an entry that is no log-probability.
    """
    try:
        choice = answer["choices"][0]
        if protocol == "echo":
            # One more than the prompt has tokens is of the token that was generated.
            found = choice["logprobs"]["token_logprobs"][1 : len(prompt)]
        else:
            pairs = zip(prompt[1:], choice["prompt_logprobs"][1:], strict=True)
            found = [entry and entry[str(token)]["logprob"] for token, entry in pairs]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Refused(f"the answer has other or fewer entries than {protocol} promises: {error!r}") from error
    if len(found) != len(prompt) - 1:
        raise Refused(f"the answer has {len(found) + 1} entries for {len(prompt)} tokens")
    for position, value in enumerate(found, start=1):
        # NaN and infinities stay: they are what the model computes, and have an error of their own.
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Refused(f"the answer has no number for token {position} of {len(prompt)}")
        if value > MOST:
            raise Refused(f"{value} is no log-probability (token {position} of {len(prompt)})")
    return list(map(computed, found))


def computed(value: float) -> float:
    """What the model computes where a server sends `value`."""
    return -math.inf if value < LEAST else value


def distribution(answer: Any) -> dict[int, float]:
    """log p of every token that an answer to `DISTRIBUTION` names, by id.

    Refused unless entries are named by id, and are log-probabilities.
    """
    try:
        [tops] = answer["choices"][0]["logprobs"]["top_logprobs"]
        found = {int(name.removeprefix("token_id:")): float(value) for name, value in tops.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"the answer has no top_logprobs by token id: {error!r}") from error
    for token, value in found.items():
        if value > MOST:
            raise Refused(f"{value} is no log-probability (token id {token})")
    return {token: computed(value) for token, value in found.items()}


def written(answer: Any, prompt: str, *, most: int, at_least: int) -> str:
    """The text of a greedy reply of at most `most` tokens; Refused if the answer has another one, or none.

    Where it has the log-probabilities of its tokens, each but the first `at_least` has to be the likeliest.
    """
    try:
        [choice] = answer["choices"]
        text, ended, numbers = choice["text"], choice.get("finish_reason"), choice.get("logprobs") or {}
        tokens = int(usage_of(answer).get("completion_tokens") or most)
        pairs = list(
            zip(numbers.get("token_logprobs") or (), numbers.get("top_logprobs") or (), strict=False)
        )
        apart = max((max(top.values()) - own for own, top in pairs[at_least:] if top), default=0.0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"the answer has no text of a reply: {error!r}") from error
    if not isinstance(text, str):
        raise Refused("the answer has no text")
    # A prompt of special tokens alone has no text.
    if prompt.strip() and text.lstrip().startswith(prompt.strip()):
        raise Refused("a reply begins with its prompt, where the answer may be")
    if ended not in ENDS:
        raise Refused(f"a reply ended with {ended}")
    if tokens > most or (ended == "length" and tokens < most):
        raise Refused(f"a reply has {tokens} tokens, where {most} were asked for")
    if apart > MOST:
        raise Refused(f"a token of a reply is not the likeliest, by {apart:.3g} nats: replies are not greedy")
    return text


def cut(tokenizer: Any, text: str, until: Callable[[str], bool]) -> str:
    """A reply, cut where `until` is first true of its tokens."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    starts = (tokenizer.decode(ids[:count]) for count in range(1, len(ids) + 1))
    return next((start for start in starts if until(start)), text)
