"""A small fixed part of the chaos campaign; `make check-chaos` runs all of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_the_small_campaign_finds_no_broken_promise(start: Callable[..., Any]):
    finished = start("--small", program=Path("checks/chaos/__main__.py").resolve()).wait()
    assert finished.returncode == 0, finished.err[-4000:] + finished.out
