"""A small fixed part of the chaos campaign; `make chaos` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_small_campaign_finds_no_broken_promise():
    campaign = [sys.executable, str(Path(__file__).parent), "--small"]
    finished = subprocess.run(campaign, capture_output=True, text=True, timeout=1200)
    assert finished.returncode == 0, finished.stderr[-4000:] + finished.stdout
