"""Servers that break off, hang or answer something else, and servers that do not read the prompt as it is sent."""

import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import LengthwiseError
from lengthwise.subjects import Endpoint, client, load
from tests.readings import token_losses
from tests.served.stub import Stub

Socket = socket.socket
IDS = np.random.default_rng(0).integers(1, 320, size=60)
PATIENCE = 0.6
NOTHING = f"nothing for {PATIENCE:g} s"


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def whole(text: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    data = text.encode()
    return head(status, f"Content-Type: {kind}", f"Content-Length: {len(data)}") + data


def sends(*parts: bytes) -> Callable[[Socket], None]:
    def answer(connection: Socket) -> None:
        for part in parts:
            connection.sendall(part)

    return answer


def hangs(*parts: bytes) -> Callable[[Socket], None]:
    def answer(connection: Socket) -> None:
        sends(*parts)(connection)
        time.sleep(30)

    return answer


def drips(connection: Socket) -> None:
    """A chunked body that never ends, a byte at a time: bytes arrive, and no answer."""
    connection.sendall(head("200 OK", "Transfer-Encoding: chunked"))
    for _ in range(300):
        connection.sendall(b"1\r\n \r\n")
        time.sleep(0.1)


HALF = '{"choices": [{"text": "", "promp'
HTML = "<html><head><title>Bad Gateway</title></head></html>"
ANSWERS: dict[str, tuple[Callable[[Socket], None], str]] = {
    "a connection that is closed": (sends(), NOTHING),
    "a body that is cut": (sends(head("200 OK", "Content-Length: 500"), HALF.encode()), NOTHING),
    "no headers for minutes": (hangs(), NOTHING + ".*no answer came"),
    "no body for minutes": (hangs(head("200 OK", "Content-Length: 500")), NOTHING),
    "half a body, and nothing more": (
        hangs(head("200 OK", "Content-Length: 500"), HALF.encode()),
        NOTHING,
    ),
    "a chunk that stalls": (
        hangs(head("200 OK", "Transfer-Encoding: chunked"), b"5\r\n{"),
        NOTHING,
    ),
    "a body that drips": (drips, NOTHING),
    "half of JSON": (sends(whole(HALF)), "breaks off after 32 characters"),
    "a busy server": (sends(whole(HTML, "503 Busy", "text/html")), NOTHING + ".*503.*Bad Gateway"),
    "a page": (sends(whole(HTML, kind="text/html")), "answers with no JSON: <html>"),
    "a page in a charset of no text": (
        sends(whole(HTML, "400 Bad Request", "text/html; charset=hex")),
        r"refuses the request \(400\): <html>",
    ),
    "an empty body": (sends(whole("")), "answers with no JSON: nothing"),
    "null": (sends(whole("null")), "answers with no JSON: null"),
    "a list": (sends(whole("[1]")), "no object"),
    "text for a body in gzip": (
        sends(head("200 OK", "Content-Encoding: gzip", "Content-Length: 2"), b"{}"),
        NOTHING + ".*DecodingError",
    ),
    "a redirect": (
        sends(head("307 Temporary Redirect", "Location: https://other.invalid/v1", "Content-Length: 0")),
        "redirects to https://other.invalid/v1",
    ),
    "no HTTP": (sends(b"SSH-2.0-OpenSSH_9.6\r\n"), NOTHING + ".*RemoteProtocolError"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_bad_answer_ends_with_a_message_in_time(name: str, stub: Stub, endpoint: Endpoint) -> None:
    answer, said = ANSWERS[name]
    stub.answer = lambda *_: (0, answer)
    endpoint._client.patience = PATIENCE
    started = time.monotonic()
    with pytest.raises(LengthwiseError, match=said) as caught:
        token_losses(endpoint, [IDS[:10]], [IDS[6:11]])
    assert time.monotonic() - started < client.PATIENCE_SECONDS / 2, "its own patience, not the usual one"
    if "nothing for" in said:
        assert "--patience" in str(caught.value)


def test_what_a_server_says_is_not_lost_with_its_connection(stub: Stub, endpoint: Endpoint) -> None:
    """It answers once, and closes what the client asks again."""
    answers = iter([sends(whole(HTML, "503 Busy", "text/html"))])
    stub.answer = lambda *_: (0, next(answers, sends()))
    endpoint._client.patience = PATIENCE
    with pytest.raises(LengthwiseError, match=r"503: .*Bad Gateway.*, then "):
        token_losses(endpoint, [IDS[:10]], [IDS[6:11]])


def words(url: str, folder: Path, tmp_path: Path, *more: Any) -> list[Any]:
    (tmp_path / "text.txt").write_text("the old king speaks to the river. " * 40)
    return ["ppl", url, "--tokenizer", folder, "--text", tmp_path / "text.txt", "--lengths", 100, *more]


@pytest.mark.parametrize("name", ["a connection that is closed", "half of JSON", "a busy server"])
def test_what_passes_is_waited_out(name, stub, folder, lengthwise, tmp_path):
    """From the first request on: a server that starts answers so."""
    answer = stub.answer
    stub.seen["failed"] = 0

    def failing(*request: Any) -> Any:
        if stub.seen["failed"] < 3:
            stub.seen["failed"] += 1
            return 0, ANSWERS[name][0]
        return answer(*request)

    stub.answer = failing
    assert lengthwise(*words(stub.url, folder, tmp_path)).code == 0
    assert stub.seen["failed"] == 3


@pytest.mark.parametrize("after", [lambda: "1", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_a_server_says_when_to_ask_again(after: Any, stub: Stub, endpoint: Endpoint) -> None:
    """In seconds, or as a date."""
    answer = stub.answer

    def answered(*request: Any) -> Any:
        stub.answer = answer
        return 0, sends(head("503 Busy", f"Retry-After: {after()}", "Content-Length: 0"))

    stub.answer = answered
    started = time.monotonic()
    token_losses(endpoint, [IDS[:10]], [IDS[6:11]])
    assert time.monotonic() - started > 0.8


def test_patience_is_the_users(stub: Stub, folder: Path, lengthwise: Any, tmp_path: Path) -> None:
    """A server that takes most of a second for a request is given up on, and then waited for, in the same run."""
    answer = stub.answer

    def slow(method: str, path: str, body: Any) -> Any:
        if path.endswith("completions") and len(body["prompt"]) > 60:
            time.sleep(0.8)
        return answer(method, path, body)

    stub.answer = slow
    out = ["--out", tmp_path / "run"]
    done = lengthwise(*words(stub.url, folder, tmp_path, *out, "--patience", 0.4))
    assert (done.code, "nothing for 0.4 s" in done.err) == (1, True)
    assert lengthwise(*words(stub.url, folder, tmp_path, *out, "--patience", 20, "--resume")).code == 0


@pytest.mark.parametrize("tokens", [48, 49, 300, 510])
def test_a_server_that_reads_it_is_not(tokens: int, serve: Any, bos_folder: Path) -> None:
    stub = serve(model=load(str(bos_folder)))
    endpoint = Endpoint(stub.url, tokenizer=str(bos_folder))
    endpoint.check_ready(tokens)
    asked = stub.seen["/v1/completions"]
    endpoint.check_ready(tokens)
    assert (endpoint.proven_to, stub.seen["/v1/completions"]) == (tokens + 1, asked)
