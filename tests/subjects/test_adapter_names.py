"""A hub id as the adapter: one request before any weight is loaded, and what a cache does not say."""

import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from lengthwise import MissingError, UsageError, load
from lengthwise.checkpoints import extend, loading
from lengthwise.checkpoints.saving import save_whole
from lengthwise.testing import tiny_llama, tiny_tokenizer
from tests.architectures import with_lora


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


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> Path:
    """The folder in which the cache keeps the adapter someone/adapter, trained with YaRN, without its record."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository, commit = tmp_path / "hub" / "models--someone--adapter", "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    model = tiny_llama()
    extend(model, "yarn", factor=4.0)
    save_whole(with_lora(model), tiny_tokenizer(), repository / "snapshots" / commit)
    shutil.move(repository / "snapshots" / commit / RECORD, tmp_path)
    return repository / "snapshots" / commit


RECORD = "lengthwise_extension.json"


@pytest.mark.parametrize("known", [None, "a mark", "all names", "all names, and it"])
def test_a_record_that_a_cache_lacks(folder, cached, known, monkeypatch):
    """Without the record, and without a connection, nobody knows whether there is one."""
    if known == "a mark":
        mark = cached.parents[1] / ".no_exist" / cached.name / RECORD
        mark.parent.mkdir(parents=True)
        mark.touch()
    if known is not None and "names" in known:
        names = ["adapter_config.json", *([RECORD] if "it" in known.split() else [])]
        listed = [SimpleNamespace(path=name) for name in names]
        monkeypatch.setattr(huggingface_hub, "get_cached_repo_tree", lambda _: listed, raising=False)
    loaded = load(str(folder), adapter="someone/adapter")
    assert loaded.extension is None
    said = [remark for remark in loaded.remarks if "someone/adapter was trained on an extended" in remark]
    assert len(said) == (known in (None, "all names, and it"))


def test_a_record_in_a_cache_is_obeyed(folder, cached, tmp_path):
    shutil.copy(tmp_path / RECORD, cached)
    loaded = load(str(folder), adapter="someone/adapter")
    assert loaded.extension is not None
    assert loaded.extension.method == "yarn"
    assert not [remark for remark in loaded.remarks if "extended" in remark]


@pytest.mark.parametrize("pickle", [False, True])
def test_an_adapter_of_whole_numbers_in_a_cache(folder, cached, pickle):
    file = cached / "adapter_model.safetensors"
    tensors = {name: (each * 99).to(torch.int8) for name, each in load_file(file).items()}
    if pickle:
        torch.save(tensors, cached / "adapter_model.bin")
        file.unlink()
    else:
        save_file(tensors, file)
    with pytest.raises(UsageError, match="whole numbers, or numbers in 8 bits"):
        load(str(folder), adapter="someone/adapter")
