from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from lengthwise.cli.main import run
from lengthwise.testing import save_tiny_model


@pytest.fixture(scope="session")
def shared_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("sparsity") / "model"))


@pytest.fixture
def lengthwise(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the command in this process and return its exit code and outputs."""

    def call(*arguments: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["lengthwise", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            run()
        return Outcome(stopped.value.code or 0, *capfd.readouterr())

    return call


class Outcome:
    """Exit code, standard output, standard error."""

    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
