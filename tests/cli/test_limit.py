from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.testing import save_tiny_model


def test_the_longest_context_follows_the_trained_length(
    lengthwise: Callable[..., Any], text: list[str], tmp_path: Path
) -> None:
    """Eight times 64; a plan and a run agree."""
    save_tiny_model(tmp_path / "short", max_position_embeddings=64)
    command = ("limit", "short", *text, "--limit", 2, "--json")
    plan = lengthwise(*command, "--dry-run").json
    assert plan["samples"] == {"windows of 641 tokens": "2 of 2"}
    assert {row["length"] for row in lengthwise(*command).json["rows"]} == {512}
