"""Requests to an endpoint: a bounded number at once, repeated while that may help; log-probabilities in the answers.

The key comes from the environment (`LENGTHWISE_API_KEY`, else `OPENAI_API_KEY`), goes into the header of each
request, and nowhere else. Proxies and certificates are those of the HTTP library.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import httpx2 as httpx
from anyio.from_thread import start_blocking_portal

from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.progress import advance
from lengthwise.settings import ServerOptions

PROTOCOLS: dict[str, dict[str, Any]] = {
    "prompt_logprobs": {"prompt_logprobs": 0},
    "echo": {"echo": True, "logprobs": 1},
}
"""The ways in which servers give log-probabilities of a prompt, in the order of the probe: fields of the request."""
DISTRIBUTION = {"logprobs": -1, "return_tokens_as_token_ids": True}
"""Fields of a request for the whole distribution of the next token (vLLM with --max-logprobs -1)."""

FORCED = {"logprobs": 1, "return_tokens_as_token_ids": True}
"""Fields of a request for the log-probability of one token, which `allowed_token_ids` names (vLLM)."""

MOST_AT_ONCE = 8
"""Requests under way at a time."""
MOST = 1e-3
"""What a log-probability may be, with rounding."""
PATIENCE_SECONDS = 45.0
"""How long an endpoint may answer nothing, before the run stops."""
FIRST_WAIT_SECONDS = 1.0
"""Before the second attempt; each further wait is twice as long, up to the longest."""
LONGEST_WAIT_SECONDS = 30.0
_TIMEOUT_SECONDS = 600.0
"""After which a single request is sent again, while others are answered."""
_KEYS = ("LENGTHWISE_API_KEY", "OPENAI_API_KEY")
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_MOST_SHOWN = 300


class Refused(LengthwiseError):
    """An error of the server that another attempt does not change, or an answer that lacks what the request wants.

    Attributes:
        status: of the HTTP answer.
    """

    def __init__(self, problem: str, *, status: int = 200) -> None:
        self.status = status
        key = f"set {_KEYS[0]}, or --header NAME=ENV for a gateway with a header of its own"
        url = "check the URL of the API, which mostly ends in /v1"
        fixes = {
            401: key,
            403: key,
            404: url,
            **dict.fromkeys(range(300, 400), "give the URL that answers by itself"),
        }
        super().__init__(problem, fix=fixes.get(status))


class Client:
    """Speaks JSON with one endpoint. `url` is that of the OpenAI-style API, mostly with /v1 at its end.

    MissingError if a header is to be an environment variable that is not set. UsageError if no such URL can be, or it
    holds a password or a query, which results would record.
    """

    def __init__(self, url: str, options: ServerOptions | None = None) -> None:
        options = options or ServerOptions()
        self.patience = options.patience or PATIENCE_SECONDS
        self.at_once = options.concurrency or MOST_AT_ONCE
        self._starts_until = time.monotonic() + (options.wait or 0.0)
        try:
            parsed = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is no URL: {error}", expected="http://HOST:PORT/v1") from error
        if parsed.userinfo or parsed.query or parsed.fragment or not parsed.host:
            raise UsageError(
                f"the URL of the endpoint at {parsed.host or 'no host'} holds more than a place",
                expected="http://HOST:PORT/v1, without password and query (results record it)",
                fix=f"put the key into {_KEYS[0]}",
            )
        self.url = str(parsed)
        self.root = self.url.removesuffix("/v1")
        """The URL of the server itself, for what is no part of the API."""
        self._key = next((key for name in _KEYS if (key := os.environ.get(name, "").strip())), None)
        self._headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._headers |= dict(map(_header, options.header))
        self._certificates = httpx.create_ssl_context()

    def get(self, url: str) -> Any:
        """The JSON at `url`; MissingError if there is no server, else as `post`."""
        return self.post(url, [None], method="GET")[0]

    def post(
        self,
        url: str,
        bodies: Sequence[Any],
        *,
        answered: Callable[[int], None] = lambda _: None,
        method: str = "POST",
    ) -> list[Any]:
        """The JSON answers to `bodies`, in order; at most `concurrency` under way at a time.

        `answered` is called with the index of each, as its answer arrives, in another thread.

        Raises:
            Refused: the server will not answer, whatever the attempt.
            LengthwiseError: nothing was answered for as long as `patience`, whatever the failures meanwhile.
        """

        async def answers() -> list[Any]:
            silence = _Silence()
            # A request may wait for the others as long as they take.
            most = max(_TIMEOUT_SECONDS, self.patience)
            async with httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(most, connect=10.0, pool=None),
                verify=self._certificates,
                limits=httpx.Limits(max_connections=self.at_once),
            ) as client:
                try:
                    async with asyncio.TaskGroup() as group:
                        watch = group.create_task(self._watch(silence))
                        tasks = [
                            group.create_task(self._answer(client, method, url, body, silence))
                            for body in bodies
                        ]
                        for index, task in enumerate(tasks):
                            task.add_done_callback(partial(_if_done, answered, index))
                        await asyncio.gather(*tasks)
                        watch.cancel()
                except BaseExceptionGroup as errors:
                    raise errors.exceptions[0] from errors.exceptions[0].__cause__
            return [task.result() for task in tasks]

        # A loop in a thread of its own, so also inside a notebook's loop; Ctrl-C here cancels what is under way.
        with start_blocking_portal() as portal:
            return portal.call(answers)

    def complete(
        self, model: str, prompts: Sequence[Any], fields: Mapping[str, Any], *, tokens: int | None = None
    ) -> list[Any]:
        """The answers of a served model; each is so many `tokens` in the progress, by default those of its prompt."""
        common = {"model": model, "max_tokens": 1, "temperature": 0}
        bodies = [{**common, "prompt": prompt, **fields} for prompt in prompts]

        def answered(index: int) -> None:
            advance(tokens or len(prompts[index]) + bodies[index]["max_tokens"] - 1)

        return self.post(f"{self.url}/completions", bodies, answered=answered)

    async def _watch(self, silence: _Silence) -> None:
        """End the run when nothing was answered for too long: a server may hang, or drip a body that never ends."""
        while (left := max(silence.since + self.patience, self._starts_until) - time.monotonic()) > 0:
            await asyncio.sleep(left)
        raise LengthwiseError(
            f"{self.url} has answered nothing for {self.patience:.3g} s ({silence.problem})",
            fix="check that the server runs, and its log; a slow one needs a greater patience (--patience SECONDS); "
            "--resume continues a run with --out",
        )

    async def _answer(
        self, client: httpx.AsyncClient, method: str, url: str, body: Any, silence: _Silence
    ) -> Any:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                answer = await client.request(method, url, json=body)
            except httpx.RequestError as error:
                silence.problem = f"{type(error).__name__} {self._shown(str(error))}".strip()
                if body is None and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    if time.monotonic() >= self._starts_until:
                        raise MissingError(
                            f"there is no server at {self.url} ({silence.problem})",
                            fix="start it, or check the URL; --wait SECONDS waits for one that starts",
                        ) from error
                    wait = FIRST_WAIT_SECONDS
            else:
                content = _json(answer)
                if answer.is_success and content is not None:
                    silence.end()
                    self._starts_until = 0.0
                    return content
                after = self._failed(answer, content, silence)
                wait = max(wait, min(after, LONGEST_WAIT_SECONDS))
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def _failed(self, answer: httpx.Response, content: Any, silence: _Silence) -> float:
        """Seconds that the server wants us to wait after an answer without what was asked for.

        Refused or LengthwiseError where another attempt would change nothing.
        """
        status, text = answer.status_code, answer.text
        message = self._shown(
            _message(content or text or ("nothing" if answer.is_success else answer.reason_phrase))
        )
        if answer.is_success and text.lstrip().startswith(("{", "[")):
            silence.problem = f"JSON that breaks off after {len(text):,} characters"
            return 0.0
        if answer.is_success:
            raise LengthwiseError(
                f"{self.url} answers with no JSON: {message}",
                expected="an OpenAI-style API, its URL mostly ending in /v1",
            )
        if answer.has_redirect_location:
            place = self._shown(answer.headers["Location"])
            raise Refused(f"{self.url} redirects to {place} ({status}), where no key is sent", status=status)
        if status not in _TRY_AGAIN:
            raise Refused(f"{self.url} refuses the request ({status}): {message}", status=status)
        silence.problem = f"{status}: {message}"
        after = answer.headers.get("Retry-After", "")
        return float(after) if after.isdecimal() else 0.0

    def _shown(self, text: str) -> str:
        """A server's text, cut, and without the key that it may repeat."""
        text = " ".join(text.split())
        for secret in self._headers.values():
            text = text.replace(secret.removeprefix("Bearer "), "***")
        return text[:_MOST_SHOWN]


def _header(assignment: str) -> tuple[str, str]:
    """Name and value of a header that the command line gives as NAME=ENV."""
    name, _, variable = assignment.partition("=")
    if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not variable:
        raise UsageError(
            f"--header is {name!r}", expected="NAME=ENV, as in api-key=AZURE_KEY (results record it)"
        )
    if not (value := os.environ.get(variable, "").strip()):
        # It may be the secret itself, by mistake.
        raise MissingError(
            f"the environment variable of --header {name} is not set", fix=f"--header {name}=ENV, and set ENV"
        )
    return name, value


class _Silence:
    """Since when nothing was answered, and what happened meanwhile."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self.since, self.problem = time.monotonic(), "no answer came"


def _json(answer: httpx.Response) -> Any:
    """The JSON of an answer; None where it has none."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _if_done(answered: Callable[[int], None], index: int, task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        answered(index)


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
    return found


def distribution(answer: Any) -> dict[int, float]:
    """log p of every token that an answer to `DISTRIBUTION` names, by id; Refused unless entries are named by id."""
    try:
        [tops] = answer["choices"][0]["logprobs"]["top_logprobs"]
        return {int(name.removeprefix("token_id:")): float(value) for name, value in tops.items()}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"the answer has no top_logprobs by token id: {error!r}") from error


def written(answer: Any) -> str:
    """The text of a completion; Refused if the answer has none."""
    try:
        text = answer["choices"][0]["text"]
    except (KeyError, IndexError, TypeError):
        text = None
    if not isinstance(text, str):
        raise Refused("the answer has no text")
    return text


def _message(content: Any) -> str:
    """The server's message, wherever its answer has it."""
    while isinstance(content, dict):
        content = next(
            (content[name] for name in ("error", "message", "detail") if name in content), str(content)
        )
    return str(content)
