import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
import torch

from lengthwise import progress
from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.settings import ServerOptions, Subject
from lengthwise.subjects import Endpoint, LoadedModel, client, load, open_model
from lengthwise.testing import tiny_tokenizer
from tests.readings import next_logits, token_losses
from tests.served.servers import raw
from tests.served.stub import Stub

IDS = np.random.default_rng(0).integers(1, 320, size=60)


def assert_losses_of(local: LoadedModel, endpoint: Endpoint) -> None:
    [theirs], [ours] = (token_losses(model, [IDS[:10]], [IDS[6:11]]) for model in (endpoint, local))
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("shape", "protocol"), [("vllm", "prompt_logprobs"), ("echo", "echo")])
def test_losses_are_the_models_own(shape, protocol, serve, local, folder):
    subject = Subject(model=serve(shape).url, served_model="tiny", tokenizer=str(folder))
    endpoint = open_model(subject)
    assert isinstance(endpoint, Endpoint)
    assert endpoint.protocol == protocol
    assert endpoint.max_positions == 510
    # More than are sent at once, and of two lengths.
    views = [IDS[start : start + size] for start in range(10) for size in (20, 33)]
    labels = [IDS[start + size - 9 : start + size + 1] for start in range(10) for size in (20, 33)]
    assert len(views) > client.MOST_AT_ONCE
    theirs, ours = token_losses(endpoint, views, labels), token_losses(local, views, labels)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    assert theirs[0].dtype == torch.float64


def test_the_whole_distribution(endpoint: Endpoint, local: LoadedModel) -> None:
    theirs, ours = next_logits(endpoint, IDS[:30]), next_logits(local, IDS[:30])
    assert theirs.shape == (1, 320)
    torch.testing.assert_close(theirs, ours.double().log_softmax(-1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("most", [20, None])
def test_a_part_of_the_distribution_is_refused(most: int | None, serve: Any, folder: Path) -> None:
    shape = "vllm" if most else "echo"
    endpoint = Endpoint(serve(shape, most_logprobs=most).url, tokenizer=str(folder))
    with pytest.raises(UsageError, match="--max-logprobs -1"):
        next_logits(endpoint, IDS[:30])


@pytest.mark.parametrize(
    "listed",
    [
        {},
        [],
        {"data": None},
        {"data": [{"name": "tiny"}]},
        {"data": ["tiny"]},
        {"data": [{"id": None}]},
        {"data": [{"id": 1}, {"id": 2}]},
    ],
)
def test_another_list_of_models_is_refused(listed: Any, stub: Stub, folder: Path) -> None:
    stub.answer = lambda *_: (200, listed)
    with pytest.raises(UsageError, match="serves several models, or none"):
        Endpoint(stub.url, tokenizer=str(folder))


@pytest.mark.parametrize("other", [(200, {"tokens": []}), (200, None), raw("200 OK", data=b"<html>")])
def test_tokens_are_counted_where_tokenize_is_another_page(other: Any, stub: Stub, folder: Path) -> None:
    answer = stub.answer
    stub.answer = lambda method, path, body: other if path == "/tokenize" else answer(method, path, body)
    assert Endpoint(stub.url, tokenizer=str(folder)).served_model == "tiny"


def test_a_completion_without_text_is_an_error(stub: Stub, endpoint: Endpoint) -> None:
    stub.answer = lambda *_: (200, {"choices": [{"text": None}]})
    with pytest.raises(LengthwiseError, match="no text"):
        endpoint.write([(1, 2)], new_tokens=4)


def test_prompts_beyond_the_maximum_are_refused_before_they_are_sent(stub: Stub, endpoint: Endpoint) -> None:
    before = stub.seen.total()
    with pytest.raises(UsageError) as caught:
        token_losses(endpoint, [np.resize(IDS, 511)], [np.resize(IDS, 512)[511:]])
    assert caught.value.exit_code == 2
    assert stub.seen.total() == before
    assert len(token_losses(endpoint, [np.resize(IDS, 510)], [np.resize(IDS, 511)[510:]])[0]) == 1
    # The server's own refusal of a length is passed on and not repeated.
    before = stub.seen.total()
    with pytest.raises(LengthwiseError, match="maximum context length is 512"):
        endpoint._ask([[1] * 520])
    assert stub.seen.total() == before + 1


def test_an_answer_that_does_not_come_is_asked_for_again_while_others_come(
    stub, endpoint, local, monkeypatch
):
    answer, asked = stub.answer, list[str]()
    late = [5.0, 1.0]

    def late_twice(method: str, path: str, body: Any) -> Any:
        asked.append(path)
        time.sleep(late[len(asked) - 1] if len(asked) <= len(late) else 0.0)
        return answer(method, path, body)

    monkeypatch.setattr(stub, "answer", late_twice)
    monkeypatch.setattr(client, "_TIMEOUT_SECONDS", 1.5)
    endpoint._client.patience = 1.5
    views, labels = [IDS[:10], IDS[:20]], [IDS[6:11], IDS[16:21]]
    torch.testing.assert_close(
        token_losses(endpoint, views, labels), token_losses(local, views, labels), atol=1e-5, rtol=1e-5
    )
    # The two texts, the short prompt that is known, and one again.
    assert len(asked) == 4


def test_a_server_that_dies_in_the_probe_is_not_called_incapable(serve: Any, folder: Path) -> None:
    stub = serve(failures=(0,) * 100)
    with pytest.raises(LengthwiseError) as caught:
        Endpoint(stub.url, tokenizer=str(folder), server=ServerOptions(patience=1.0))
    assert type(caught.value) is LengthwiseError
    assert "has answered nothing for 1 s" in caught.value.problem


def test_no_server() -> None:
    with pytest.raises(MissingError, match="--wait"):
        Endpoint("http://127.0.0.1:9/v1")


def test_a_server_that_starts_is_waited_for(stub, folder, monkeypatch):
    request, refused = httpx.AsyncClient.request, [httpx.ConnectError("refused")] * 3

    async def starting(*given: Any, **named: Any) -> Any:
        if refused:
            raise refused.pop()
        return await request(*given, **named)

    monkeypatch.setattr(httpx.AsyncClient, "request", starting)
    assert Endpoint(stub.url, tokenizer=str(folder), server=ServerOptions(wait=60.0)).served_model == "tiny"
    assert not refused


def test_a_header_of_a_gateway(stub: Stub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE", "word-of-the-gate")
    options = ServerOptions(header=("api-key=GATE",), concurrency=1)
    endpoint = Endpoint(stub.url, tokenizer=str(folder), server=options)
    assert stub.headers["api-key"] == "word-of-the-gate"
    assert "word" not in endpoint._client._shown("wrong key word-of-the-gate"), "a server may repeat it"
    for wrong in (
        ["api-key"],
        ["a b=GATE"],
        ["api-key=NOWHERE"],
        ["Content-Length=GATE"],
        ["a=GATE", "A=GATE"],
    ):
        with pytest.raises((UsageError, MissingError)) as caught:
            Endpoint(stub.url, server=ServerOptions(header=tuple(wrong)))
        assert "NOWHERE" not in str(caught.value), "it may be the secret itself"
    # In place of the key, which another gateway is not told.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    stub.headers.clear()
    Endpoint(stub.url, tokenizer=str(folder), server=ServerOptions(header=("authorization=GATE",)))
    assert {name: value for name, value in stub.headers.items() if name.lower() == "authorization"} == {
        "authorization": "word-of-the-gate"
    }


@pytest.mark.parametrize("value", ["word…", "word\nsecond", "wörd"])
@pytest.mark.parametrize("name", ["LENGTHWISE_API_KEY", "GATE"])
def test_a_value_that_no_header_can_have_is_refused_and_not_shown(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(
        UsageError, match=r"of (LENGTHWISE_API_KEY|--header api-key) has a character"
    ) as caught:
        Endpoint("http://127.0.0.1:9/v1", server=ServerOptions(header=("api-key=GATE",) * (name == "GATE")))
    assert value[:4] not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALL_PROXY", "socks4://me:word@127.0.0.1:9", "a proxy of the environment"),
        ("http_proxy", "socks5://me:word@127.0.0.1:9", "a proxy of the environment"),
        ("SSL_CERT_FILE", "/gone", "the certificates of the environment"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(name, value, said, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises((UsageError, MissingError), match=said) as caught:
        Endpoint("http://127.0.0.1:9/v1")
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:word@127.0.0.1:9/v1",
        "http://me:word@127.0.0.1:port/v1",
        "http://me:word@127.0.0.1:99999/v1",
        "ftp://me:word@127.0.0.1/v1",
        "http://127.0.0.1:9/v1?api_key=word",
        "http://127.0.0.1:9/v1?",
        "http:///v1",
        "127.0.0.1:9/v1",
    ],
)
def test_urls_that_hold_a_secret_or_are_of_no_server_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint(url)
    assert "word" not in str(caught.value).replace("without password", "")


def test_a_proxy_of_the_environment_is_used(stub, local, folder, monkeypatch):
    answer = stub.answer
    # A proxy is asked for whole URLs.
    monkeypatch.setattr(
        stub, "answer", lambda how, url, body: answer(how, url.removeprefix("http://model.invalid"), body)
    )
    monkeypatch.setenv("http_proxy", stub.url.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", "")
    assert_losses_of(local, Endpoint("http://model.invalid/v1", tokenizer=str(folder)))


def test_the_served_model_is_named_or_the_only_one(stub: Stub, folder: Path) -> None:
    with pytest.raises(UsageError, match="tiny"):
        Endpoint(stub.url, served_model="other", tokenizer=str(folder))


def test_a_folder_with_the_tokenizer_alone(serve: Any, tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "own")
    assert not (tmp_path / "own" / "config.json").exists()
    endpoint = Endpoint(serve().url, tokenizer=str(tmp_path / "own"))
    assert endpoint.tokenizer.get_vocab() == tiny_tokenizer().get_vocab()


def test_an_endpoint_is_not_loaded() -> None:
    with pytest.raises(UsageError, match="endpoint"):
        load("http://127.0.0.1:9/v1")


def test_the_key_goes_to_the_server_alone(stub, folder, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("LENGTHWISE_API_KEY", "sk-secret")
    with caplog.at_level("DEBUG"):
        endpoint = Endpoint(stub.url, tokenizer=str(folder))
        token_losses(endpoint, [IDS[:10]], [IDS[6:11]])
    assert stub.keys == {"Bearer sk-secret"}
    assert "sk-secret" not in caplog.text + str(endpoint.describe()) + str(vars(endpoint))
    assert os.environ["LENGTHWISE_API_KEY"] == "sk-secret"
    # A server that repeats the key in its error.
    stub.failures = [400]
    monkeypatch.setattr("tests.served.stub.NAME", "sk-secret")
    endpoint.served_model = "sk-secret"
    with pytest.raises(LengthwiseError, match=r"busy, \*\*\*"):
        token_losses(endpoint, [IDS[:10]], [IDS[6:11]])


def test_replies_are_those_of_the_weights(endpoint: Endpoint, local: LoadedModel) -> None:
    prompts = [tuple(map(int, IDS[start : start + size])) for start, size in ((0, 20), (7, 33), (0, 26))]
    whole = local.write(prompts, new_tokens=8)
    assert endpoint.write(prompts, new_tokens=8) == whole
    assert all(whole)
    end = local.tokenizer(whole[0], add_special_tokens=False).input_ids[3]
    how: dict[str, Any] = {"new_tokens": 8, "stop_ids": frozenset({end})}
    assert endpoint.write(prompts, **how) == local.write(prompts, **how) != whole
    # The server writes on; what it wrote is cut.
    until = {"new_tokens": 8, "until": lambda text: len(text) > 4}
    assert endpoint.write(prompts, **until) == local.write(prompts, **until) != whole


def test_each_answer_moves_the_bar(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[float]()
    monkeypatch.setattr(progress, "_WATCH", [seen.append])
    endpoint.write([tuple(map(int, IDS[:20])), tuple(map(int, IDS[:33]))], new_tokens=5)
    # The short prompt that is asked again comes last.
    assert sorted(seen[:2]) == [20 + 4, 33 + 4]
