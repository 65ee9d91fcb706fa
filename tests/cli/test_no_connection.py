"""A run on a local model and text opens no connection, also where the hub could be reached."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def sought(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses and names that anything looked for on a network, which is not there."""
    import huggingface_hub.constants

    found: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        found.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return found


def test_measuring(lengthwise: Callable[..., Any], on_text: Callable[..., Any], sought: list[Any]) -> None:
    done = on_text("ppl", "--lengths", 16, "--windows", 4, "--out", "run")
    assert done.code == 0, done.err
    assert sought == []
    assert lengthwise("report", "run", "--out", "page.html").code == 0
    assert sought == []


def test_training(lengthwise: Callable[..., Any], recipe: Path, sought: list[Any]) -> None:
    done = lengthwise("train", recipe, "--set", "adapter={r: 2}", "--out", "run")
    assert done.code == 0, done.err
    assert sought == []


def test_a_hub_id_is_what_the_hub_is_asked_for(lengthwise, text, sought):
    assert lengthwise("ppl", "nobody/nothing", *text, "--lengths", 16).code == 3
    assert sought
