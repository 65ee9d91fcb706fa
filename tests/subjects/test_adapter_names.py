"""A hub id that nobody has as the adapter: one request, before any weight is loaded."""

import socket
import time
from typing import Any

import huggingface_hub
import pytest

from lengthwise import MissingError, UsageError, load
from lengthwise.checkpoints import loading


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """No network. What is sought is kept. Loading weights is a failure, and so is a pause before another try."""
    sought: list[object] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        sought.append(arguments)
        raise OSError("no network")

    def pause(seconds: float) -> None:
        raise AssertionError(f"it waits {seconds} s to try again")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.delattr(loading, "_load_weights")
    return sought


def test_the_hub_is_asked_once(folder, unreachable):
    with pytest.raises(MissingError, match="the adapter 'nobody/nothing'"):
        load(str(folder), adapter="nobody/nothing")
    assert unreachable


def test_a_path_asks_nobody(folder, unreachable):
    with pytest.raises(MissingError, match="no adapter folder"):
        load(str(folder), adapter="./gone")
    assert not unreachable


def test_a_name_that_no_hub_takes(folder, unreachable):
    with pytest.raises(UsageError, match="no adapter name"):
        load(str(folder), adapter="no body")
    assert not unreachable
