"""Requests to an endpoint: a bounded number at once, repeated where that helps.

The key comes from the environment (`LENGTHWISE_API_KEY`, else `OPENAI_API_KEY`), goes into the header of each
request, and nowhere else. Proxies and certificates are those of the HTTP library.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import httpx2 as httpx
from anyio.from_thread import start_blocking_portal

from lengthwise.errors import LengthwiseError, MissingError, UsageError

MOST_AT_ONCE = 8
"""Requests under way at a time."""
ATTEMPTS = 6
FIRST_WAIT_SECONDS = 1.0
"""Before the second attempt; each further wait is twice as long, up to the longest."""
LONGEST_WAIT_SECONDS = 30.0
_TIMEOUT = httpx.Timeout(600.0, connect=10.0)
_KEYS = ("LENGTHWISE_API_KEY", "OPENAI_API_KEY")
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_MOST_SHOWN = 300


class Refused(LengthwiseError):
    """The server answers a request with an error that another attempt does not change.

    Attributes:
        status: of the HTTP answer.
        message: what the server says.
    """

    def __init__(self, url: str, status: int, message: str) -> None:
        self.status, self.message = status, message
        fix = f"set {_KEYS[0]}" if status in (401, 403) else None
        super().__init__(f"{url} refuses the request ({status}): {message}", fix=fix)


class Client:
    """Speaks JSON with one endpoint.

    Args:
        url: of the OpenAI-style API, mostly with /v1 at its end.

    Raises:
        UsageError: no such URL can be, or it holds a password or a query, which results would record.
    """

    def __init__(self, url: str) -> None:
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
        self._key = next((key for name in _KEYS if (key := os.environ.get(name, "").strip())), None)
        self._certificates = httpx.create_ssl_context()

    @property
    def root(self) -> str:
        """The URL of the server itself, for what is no part of the API."""
        return self.url.removesuffix("/v1")

    def get(self, url: str) -> Any:
        """The JSON at `url`, asked once; the errors are those of `post`, and a MissingError where nothing answers."""
        return self._run([("GET", url, None)], attempts=1)[0]

    def post(self, url: str, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        """The JSON answers to `bodies`, in order; at most `MOST_AT_ONCE` under way at a time.

        Raises:
            Refused: the server will not answer, whatever the attempt.
            LengthwiseError: it failed at every attempt.
        """
        return self._run([("POST", url, body) for body in bodies], attempts=ATTEMPTS)

    def _run(self, requests: Sequence[tuple[str, str, Any]], *, attempts: int) -> list[Any]:
        # A loop in a thread of its own, so also inside a notebook's loop; Ctrl-C here cancels what is under way.
        with start_blocking_portal() as portal:
            return portal.call(self._all, requests, attempts)

    async def _all(self, requests: Sequence[tuple[str, str, Any]], attempts: int) -> list[Any]:
        slots = asyncio.Semaphore(MOST_AT_ONCE)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        async with httpx.AsyncClient(headers=headers, timeout=_TIMEOUT, verify=self._certificates) as client:

            async def one(method: str, url: str, body: Any) -> Any:
                async with slots:
                    return await self._answer(client, method, url, body, attempts)

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(*request)) for request in requests]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from errors.exceptions[0].__cause__
        return [task.result() for task in tasks]

    async def _answer(
        self, client: httpx.AsyncClient, method: str, url: str, body: Any, attempts: int
    ) -> Any:
        wait, problem, cause = FIRST_WAIT_SECONDS, "", None
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            try:
                answer = await client.request(method, url, json=body)
            except httpx.TransportError as error:
                problem, cause = f"{type(error).__name__} {self._shown(str(error))}".strip(), error
                continue
            if answer.is_success:
                return self._parsed(answer)
            if answer.status_code not in _TRY_AGAIN:
                raise Refused(self.url, answer.status_code, self._message(answer))
            problem, cause = f"{answer.status_code}: {self._message(answer)}", None
            wait = max(wait, _retry_after(answer))
        tried = "" if attempts == 1 else f", {attempts} times"
        kind = MissingError if attempts == 1 else LengthwiseError
        raise kind(
            f"{self.url} does not answer{tried} ({problem})",
            fix="check that the server runs, and its log" + ("; --resume continues" if attempts > 1 else ""),
        ) from cause

    def _parsed(self, answer: httpx.Response) -> Any:
        try:
            return json.loads(answer.content)
        except ValueError as error:
            raise LengthwiseError(
                f"{self.url} answers with no JSON: {self._shown(answer.text)}",
                expected="an OpenAI-style API, its URL mostly ending in /v1",
            ) from error

    def _message(self, answer: httpx.Response) -> str:
        """The server's message, wherever its answer has it."""
        try:
            found = json.loads(answer.content)
        except ValueError:
            return self._shown(answer.text) or answer.reason_phrase
        while isinstance(found, dict):
            found = next(
                (found[name] for name in ("error", "message", "detail") if name in found), str(found)
            )
        return self._shown(str(found))

    def _shown(self, text: str) -> str:
        """A server's text, cut, and without the key that it may repeat."""
        text = " ".join(text.split())
        return (text.replace(self._key, "***") if self._key else text)[:_MOST_SHOWN]


def _retry_after(answer: httpx.Response) -> float:
    """Seconds that the server wants us to wait, at most the longest wait."""
    said = answer.headers.get("Retry-After", "")
    return min(float(said), LONGEST_WAIT_SECONDS) if said.isdigit() else 0.0
