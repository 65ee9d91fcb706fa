"""Requests to an endpoint: a bounded number at once, repeated while that may help.

The key comes from the environment (`LENGTHWISE_API_KEY`, else `OPENAI_API_KEY`), goes into the header of each
request, and nowhere else. Proxies and certificates are those of the HTTP library.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import httpx2 as httpx
from anyio.from_thread import start_blocking_portal

from lengthwise.errors import LengthwiseError, MissingError, UsageError, reason, require, require_kind
from lengthwise.progress import advance
from lengthwise.settings import ServerOptions
from lengthwise.subjects.answers import NEUTRAL, NOT_OPENAI, Refused, usage_of
from lengthwise.subjects.headers import KEYS, headers_of

MOST_AT_ONCE = 8
"""Requests under way at a time."""
PATIENCE_SECONDS = 45.0
"""How long an endpoint may answer nothing, before the run stops."""
FIRST_WAIT_SECONDS = 1.0
"""Before the second attempt; each further wait is twice as long, up to the longest."""
LONGEST_WAIT_SECONDS = 30.0
_TIMEOUT_SECONDS = 600.0
"""After which a single request is sent again, while others are answered."""
# 520 to 530 are gateways' own: the server behind them is gone, slow or overloaded.
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 531)})
_MOST_SHOWN = 300


class Client:
    """Speaks JSON with one endpoint. `url` is that of the OpenAI-style API, mostly with /v1 at its end.

    MissingError if a header is to be an environment variable that is not set. UsageError if no such URL can be, or it
    holds a password or a query, which results would record.
    """

    def __init__(self, url: str, options: ServerOptions | None = None) -> None:
        require_kind("the endpoint", url, str, "http://HOST:PORT/v1")
        options = options or ServerOptions()
        require_kind("server", options, ServerOptions, "ServerOptions")
        self.patience = options.patience or PATIENCE_SECONDS
        self.at_once = options.concurrency or MOST_AT_ONCE
        self._starts_until = time.monotonic() + (options.wait or 0.0)
        try:
            parsed = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise UsageError(f"the endpoint has no URL: {error}", expected="http://HOST:PORT/v1") from error
        require(
            parsed.scheme in ("http", "https") and bool(parsed.host) and (parsed.port or 0) < 2**16,
            f"the endpoint's URL has scheme {parsed.scheme!r}, host {parsed.host!r} and port {parsed.port}",
            "http://HOST:PORT/v1",
        )
        if parsed.userinfo or "?" in url or "#" in url:
            raise UsageError(
                f"the URL of the endpoint at {parsed.host} holds more than a place",
                expected="http://HOST:PORT/v1, without password and query (results record it)",
                fix=f"put the key into {KEYS[0]}",
            )
        self.url = str(parsed)
        self.root = self.url.removesuffix("/v1")
        """The URL of the server itself, for what is no part of the API."""
        self._headers = headers_of(options.header)
        try:
            self._certificates = httpx.create_ssl_context()
        except OSError as error:
            raise UsageError(
                f"the certificates of the environment cannot be read: {reason(error)}",
                expected="files of certificates in SSL_CERT_FILE and SSL_CERT_DIR, or neither",
            ) from error
        self._neutral = dict(NEUTRAL)
        self.answers_as: dict[str, Any] = {}
        """What the answers call the model and its build."""

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
            timeout = httpx.Timeout(most, connect=10.0, pool=None)
            limits = httpx.Limits(max_connections=self.at_once)
            try:
                made = httpx.AsyncClient(
                    headers=self._headers, timeout=timeout, verify=self._certificates, limits=limits
                )
            except (ImportError, ValueError) as error:
                kind = MissingError if isinstance(error, ImportError) else UsageError
                raise kind(
                    f"a proxy of the environment cannot be used: {reason(error)}",
                    expected="HTTP_PROXY, HTTPS_PROXY and ALL_PROXY with http://HOST:PORT, or none of them",
                    fix="pip install socksio, for a proxy of SOCKS 5",
                ) from error
            async with made as client:
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
        common = {"model": model, "max_tokens": 1, **self._neutral}
        bodies = [{**common, "prompt": prompt, **fields} for prompt in prompts]

        def answered(index: int) -> None:
            advance(tokens or len(prompts[index]) + bodies[index]["max_tokens"] - 1)

        try:
            answers = self.post(f"{self.url}/completions", bodies, answered=answered)
        except Refused as error:
            unknown = [name for name in NOT_OPENAI if name in self._neutral and name in str(error)]
            if not unknown:
                raise
            neutral = self._neutral
            self._neutral = {name: value for name, value in neutral.items() if name not in unknown}
            try:
                return self.complete(model, prompts, fields, tokens=tokens)
            except Refused:
                # The field was no reason: some servers repeat the whole request in any error.
                self._neutral = neutral
                raise
        for prompt, answer in zip(prompts, answers, strict=True):
            self._check(prompt, answer)
        return answers

    def _check(self, prompt: Any, answer: Any) -> None:
        """Refused for an answer to another prompt than was sent, or of another model than those before."""
        counted = usage_of(answer).get("prompt_tokens")
        # Some servers do not count, and say 0.
        if isinstance(prompt, list) and counted and counted != len(prompt):
            raise Refused(
                f"{self.url} counts {counted} tokens of a prompt of {len(prompt)}",
                expected="a server that neither cuts prompts nor adds to them",
                fix="send the requests to the server itself; start it without truncation and chat template",
            )
        if not isinstance(answer, dict):
            raise Refused(f"{self.url} answers with no object: {self._shown(str(answer))}")
        said = {name: answer[name] for name in ("model", "system_fingerprint") if answer.get(name)}
        self.answers_as = self.answers_as or said
        if said and said != self.answers_as:
            raise Refused(
                self._shown(f"{self.url} answers as {said}, and before as {self.answers_as}"),
                expected="the same model and build in every answer",
                fix="send the requests to one server, without fallbacks, and measure again",
            )

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
                lost = f"{type(error).__name__} {self._shown(str(error))}".strip()
                # What the server said before it closed the connection tells more.
                silence.problem = f"{silence.said}, then {lost}" if silence.said else lost
                if body is None and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    if time.monotonic() >= self._starts_until:
                        raise MissingError(
                            f"there is no server at {self.url} ({silence.problem})",
                            fix="start it, or check the URL; --wait SECONDS waits for one that starts",
                        ) from error
                    wait = FIRST_WAIT_SECONDS
            else:
                content = _json(answer)
                if answer.is_success and content is not None and not _failure(content):
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
        # Whatever charset it names: it may be none of text.
        status, text, url = answer.status_code, answer.content.decode(errors="replace"), answer.request.url
        message = self._shown(
            _message(content or text or ("nothing" if answer.is_success else answer.reason_phrase))
        )
        if failure := answer.is_success and _failure(content):
            # A gateway's own status is 200.
            code = failure.get("code") if isinstance(failure, dict) else None
            status = code if isinstance(code, int) else status
        elif answer.is_success and text.lstrip().startswith(("{", "[")):
            silence.problem = f"JSON that breaks off after {len(text):,} characters"
            return 0.0
        elif answer.is_success:
            raise LengthwiseError(
                f"{self.url} answers with no JSON: {message}",
                expected="an OpenAI-style API, its URL mostly ending in /v1",
            )
        if answer.has_redirect_location:
            place = self._shown(answer.headers["Location"])
            raise Refused(f"{self.url} redirects to {place} ({status}), where no key is sent", status=status)
        if status not in _TRY_AGAIN:
            raise Refused(f"{url} refuses the request ({status}): {message}", status=status)
        silence.said = silence.problem = f"{status}: {message}"
        return _seconds(answer.headers.get("Retry-After", ""))

    def _shown(self, text: str) -> str:
        """A server's text, cut, and without the key that it may repeat."""
        text = " ".join(text.split())
        for secret in self._headers.values():
            text = text.replace(secret.removeprefix("Bearer "), "***")
        return text[:_MOST_SHOWN]


def _seconds(after: str) -> float:
    """Seconds from now of a Retry-After, which is a number of them or a date; 0 for anything else."""
    if after.isdecimal():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except ValueError:
        return 0.0


class _Silence:
    """Since when nothing was answered, and what happened meanwhile."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self.since, self.problem, self.said = time.monotonic(), "no answer came", ""


def _json(answer: httpx.Response) -> Any:
    """The JSON of an answer; None where it has none."""
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None


def _failure(content: Any) -> Any:
    """The error that an answer with a status of success has in place of what was asked for; falsy without one."""
    return isinstance(content, dict) and content.get("error")


def _if_done(answered: Callable[[int], None], index: int, task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        answered(index)


def _message(content: Any) -> str:
    """The server's message, wherever its answer has it."""
    while isinstance(content, dict):
        content = next(
            (content[name] for name in ("error", "message", "detail") if name in content), str(content)
        )
    return str(content)
