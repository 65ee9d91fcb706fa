from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lengthwise import load
from lengthwise.subjects import Endpoint, LoadedModel, client
from lengthwise.testing import save_tiny_model, tiny_tokenizer
from tests.served.stub import Stub, serving
from tests.tiny_folders import texts_in

CERTIFICATES = client.httpx.create_ssl_context()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def bos_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a tokenizer that has a BOS."""
    folder = save_tiny_model(tmp_path_factory.mktemp("bos") / "model")
    tiny_tokenizer(bos_token="<s>").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def local(folder: Path) -> LoadedModel:
    return load(str(folder))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(texts_in(tmp_path_factory.mktemp("text"), 2, 300))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_SECONDS", 0.01)
    # Reading the certificates takes longer than all else of a small run.
    monkeypatch.setattr(client.httpx, "create_ssl_context", lambda: CERTIFICATES)
    for name in (
        "LENGTHWISE_API_KEY",
        "OPENAI_API_KEY",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve(local: LoadedModel) -> Iterator[Callable[..., Any]]:
    """Start a stub: `serve("vllm", failures=(429,))`; it ends with the test."""
    with ExitStack() as stack:
        yield lambda shape="vllm", model=local, **how: stack.enter_context(serving(Stub(model, shape, **how)))


@pytest.fixture
def stub(serve: Callable[..., Any]) -> Stub:
    return serve()


@pytest.fixture
def endpoint(stub: Stub, folder: Path) -> Endpoint:
    """Of the stub."""
    return Endpoint(stub.url, tokenizer=folder)
