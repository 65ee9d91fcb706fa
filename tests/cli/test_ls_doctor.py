import importlib.metadata
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise import catalogue, machine
from lengthwise.checkpoints import embedded_models
from lengthwise.training.recipe import shipped_recipes

MODELS = ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "tiny-books"]


def test_ls_names_everything(lengthwise: Callable[..., Any]) -> None:
    lists = lengthwise("ls", "--json").json
    assert list(lists) == ["models", "corpora", "recipes", "methods", "tasks", "studies"]
    assert [entry["name"] for entry in lists["models"]] == MODELS
    assert [entry["name"] for entry in lists["corpora"]] == ["books", "books-20", "books-21", "code"]
    assert {entry["name"] for entry in lists["recipes"]} == set(shipped_recipes())
    assert all(text for entries in lists.values() for entry in entries for text in entry.values())
    shown = lengthwise("ls").out
    assert all(entry["name"] in shown for entries in lists.values() for entry in entries)
    # Through a pipe.
    assert not [line for line in shown.splitlines() if line.endswith(" ")]


def test_studies_are_listed_by_whose_claims_they_judge(lengthwise, monkeypatch):
    found = {entry["name"]: entry["about"] for entry in lengthwise("ls", "studies", "--json").json["studies"]}
    assert set(found.values()) == {"the alignment paper", "the sparsity paper", "our own"}
    assert (found["table4"], found["sparse-parity"], found["demo"]) == tuple(dict.fromkeys(found.values()))
    monkeypatch.setattr(catalogue, "STUDIES", "no_such_package")
    refused = lengthwise("ls", "studies")
    assert (refused.code, "pip install ./studies" in refused.err) == (3, True)
    assert "studies" not in lengthwise("ls", "--json").json


def test_the_methods_listed_are_the_methods_there_are() -> None:
    from lengthwise.alignment import DIVERGENCES
    from lengthwise.measure.misalignment import ESTIMATORS
    from lengthwise.positions import ROPE_METHODS

    tables = {"divergence": DIVERGENCES, "estimator": ESTIMATORS, "rope": ROPE_METHODS}
    for kind, table in tables.items():
        assert [entry["name"] for entry in catalogue.methods() if entry["kind"] == kind] == list(table)


def test_a_recipe_is_described_by_its_first_sentence(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("# One thing\n# and another. More.\n#   lengthwise train r\nmodel: m\n")
    assert catalogue.description(path) == "One thing and another"
    assert all(len(catalogue.description(file)) > 20 for file in shipped_recipes().values())


def test_the_state_of_an_embedded_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path))

    def state() -> str:
        return next(entry["state"] for entry in catalogue.models() if entry["name"] == "smollm2-135m")

    monkeypatch.setattr(catalogue, "installed", lambda _: False)
    assert state() == "missing"
    monkeypatch.setattr(catalogue, "installed", lambda _: True)
    assert state() == "made at first use"
    folder = embedded_models._place("smollm2-135m")
    folder.with_name(folder.name + ".checkpoint").mkdir(parents=True)
    assert state() == "made at first use"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert state() == "cached"


def test_doctor_of_the_machine_says_what_a_report_of_a_fault_needs(lengthwise, monkeypatch):
    done = lengthwise("doctor", "--json")
    assert done.code == 0
    # As pip names it: without the build, where the wheel has none in its name.
    assert done.json["packages"]["torch"] == importlib.metadata.version("torch")
    assert done.json["threads"] == torch.get_num_threads()
    assert done.json["embedded"]["tiny-books"] in ("cached", "made at first use")
    found = machine.package_versions() | {"transformers": None}
    monkeypatch.setattr(machine, "package_versions", lambda: found)
    done = lengthwise("doctor")
    assert done.code == 3
    assert re.search("packages.transformers +none", done.out)
    assert "fix: pip install transformers" in done.err


def test_doctor_of_a_model(lengthwise: Callable[..., Any], shared: Path) -> None:
    done = lengthwise("doctor", str(shared / "model"))
    assert done.code == 0
    assert done.out.startswith(f"{shared / 'model'} reads positions as configured: plain rope, base 10,000")
    found = lengthwise("doctor", str(shared / "model"), "--config-only", "--json")
    assert found.code == 0
    assert (found.json["trained_length"], found.json["position_table"], found.json["faults"]) == (
        128,
        None,
        [],
    )


def test_doctor_of_a_model_with_a_fault(lengthwise: Callable[..., Any], shared: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(shared / "model", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 500_000.0}))
    done = lengthwise("doctor", str(folder), "--json")
    assert done.code == 1
    assert [each["fault"] for each in done.json["faults"]] == ["wrong base"]
    assert "wrong base: config.json has rope_theta = 500000.0" in done.err
    assert "fix: " in done.err
