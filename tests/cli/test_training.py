import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from lengthwise.subjects import load
from lengthwise.training import read_recipe
from lengthwise.yaml_text import read_yaml


@pytest.fixture
def sought(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Addresses and names that anything looked for on a network, which is not there; the hub may be asked."""
    found: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        found.append(arguments)
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return found


def test_a_hub_id_is_what_the_hub_is_asked_for(lengthwise, text, sought):
    assert lengthwise("ppl", "nobody/nothing", *text, "--lengths", 16).code == 3
    assert sought


def test_train_measure_report_and_merge(lengthwise, on_text, recipe, tmp_path, sought):
    """The whole way: an adapter is trained, measured on top of its model, all runs put on one page, and merged.

    Of a local model and text, it opens no connection.
    """
    lora = tmp_path / "lora.yaml"
    lora.write_text(recipe.read_text() + "adapter:\n  r: 2\n")
    words = ("--out", "runs/lora", "--set", "objective.divergence=jeffreys")
    trained = lengthwise("train", lora, *words)
    assert trained.code == 0
    assert "runs/lora" in trained.out
    assert "jeffreys_last" not in trained.out
    assert "jeffreys_last" in lengthwise("train", lora, *words, "--resume", "--verbose").out
    assert read_yaml(tmp_path / "runs/lora/config.yaml")["objective"]["divergence"] == "jeffreys"
    again = lengthwise("train", "runs/lora/config.yaml", "--dry-run", "--json")
    assert (
        again.json["settings"]
        == lengthwise("train", lora, *words[2:], "--dry-run", "--json").json["settings"]
    )
    steps = [json.loads(line) for line in (tmp_path / "runs/lora/metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]

    sizes = ("--lengths", 32, "--windows", 4)
    before = on_text("measure", *sizes, "--out", "runs/before", "--json")
    adapter = ("--adapter", tmp_path / "runs/lora/model")
    after = on_text("measure", *sizes, *adapter, "--out", "runs/after", "--json")
    assert after.code == 0
    assert after.json["provenance"]["model"]["adapter"] == str(adapter[1])
    assert after.json["rows"][0]["value"] != before.json["rows"][0]["value"]

    page = lengthwise("report", "runs/before", "runs/after", "runs/lora", "--out", "page.html")
    assert page.code == 0
    assert page.out == "page.html\n"
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>3 runs: " in html
    assert "Training, step by step" in html

    done = lengthwise("merge", "runs/lora", "--dtype", "bfloat16", "--out", "merged", "--json")
    assert done.code == 0
    assert done.json["dtype"] == "bfloat16"
    assert done.json["written_to"] == "merged"
    assert str(load("merged").model.dtype) == "torch.bfloat16"
    assert lengthwise("merge", "runs/lora", "--out", "merged").code == 2
    assert sought == []


def test_dry_run(lengthwise: Callable[..., Any], recipe: Path, tmp_path: Path) -> None:
    done = lengthwise("train", recipe, "--dry-run", "--json", "--set", "steps=7")
    assert done.code == 0
    plan = done.json
    assert plan["settings"]["steps"] == 7
    assert plan["tokens_per_step"] == 2 * 2 * 16
    assert plan["parameters"] == plan["trainable_parameters"]
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml"}
    shown = lengthwise("train", recipe, "--dry-run")
    assert "what would be done" in shown.out
    assert "settings.model" in shown.out
    assert "settings.views" not in shown.out
    assert "settings.views" in lengthwise("train", recipe, "--dry-run", "--verbose").out


def test_other_processes_of_torchrun_print_and_write_nothing(lengthwise, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("lengthwise.machine._rank_and_count", lambda: (1, 2))
    done = lengthwise("train", recipe, "--out", "run", "--json")
    assert done.code == 0
    assert done.out == ""
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_recipe_is_copied_and_reads_the_same(lengthwise, tmp_path: Path) -> None:
    done = lengthwise("cp", "longqlora")
    assert (done.code, done.out) == (0, "longqlora.yaml\n")
    assert read_recipe("longqlora.yaml") == read_recipe("longqlora")
    assert "# LongQLoRA" in Path("longqlora.yaml").read_text()
    again = lengthwise("cp", "longqlora")
    assert again.code == 2
    assert "longqlora.yaml" in again.err
    assert lengthwise("cp", "longqlora", "mine.yaml").code == 0
    (tmp_path / "folder").mkdir()
    assert lengthwise("cp", "pose", "folder").out == "folder/pose.yaml\n"
