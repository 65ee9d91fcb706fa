"""A checkpoint against an endpoint: prefill and decode, equal, or found where they differ."""

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.report.run_page import build_report
from tests.served.stub import Stub

LENGTH = 96


@pytest.fixture
def options(text: str) -> list[str]:
    return ["--text", text, "--split", "all", "--lengths", str(LENGTH), "--windows", "2"]


def rows_in(folder: Path) -> dict[str, Any]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return {row["metric"]: row for row in rows if "position" not in row}


def test_prefill_is_equal(lengthwise, stub, folder, options, tmp_path):
    out = tmp_path / "run"
    done = lengthwise("compare", folder, stub.url, *options, "--out", out, "--fail-above", 0.01)
    assert done.code == 0
    assert "predicts as A does" in done.out
    rows = rows_in(out)
    assert rows["largest"]["value"] < 1e-4
    assert rows["equal_up_to"]["value"] == LENGTH
    assert rows["equal_up_to"]["at_least"] is True
    assert "kl" not in rows
    assert "difference-by-position" in build_report([out]).read_text()


@pytest.mark.parametrize("first", [True, False])
def test_decode_is_equal(lengthwise: Any, stub: Stub, folder: Path, options: list[str], first: bool) -> None:
    decoded = [stub.url, folder, "--a", f"tokenizer={folder}", "--a", "read=decode=8"]
    sides = decoded if first else [folder, stub.url, "--b", "read=decode=8"]
    done = lengthwise("compare", *sides, *options)
    assert done.code == 0
    assert "predicts as A does" in done.out


def test_a_prefix_cache_that_mixes_prompts(lengthwise, serve, folder, options, tmp_path):
    words = ["compare", folder, serve(mixes_prompts=True).url, *options]
    assert "predicts as A does" in lengthwise(*words).out
    out = tmp_path / "run"
    done = lengthwise(*words, "--b", "read=decode=8", "--out", out)
    assert done.code == 0
    assert "With its prefix cache the server predicts otherwise" in " ".join(done.out.split())
    assert rows_in(out)["prefix_cache"]["value"] > 0.1


def test_a_server_that_decodes_no_chosen_token_is_refused(lengthwise, serve, folder, options):
    done = lengthwise("compare", folder, serve("echo").url, *options, "--b", "read=decode=8")
    assert done.code == 2
    assert "a token that we choose" in done.err
