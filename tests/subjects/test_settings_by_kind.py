"""Every setting of every kind of subject: it is used, or refused with a message that names both."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.settings import KINDS, TAKEN_BY, Kind, Subject, TextOptions
from lengthwise.subjects import LoadedModel, load, open_model
from lengthwise.subjects.llama_cpp import LlamaCpp
from lengthwise.testing import save_tiny_model
from tests.served.stub import Stub, serving

OTHERS = {"text", "model", *TextOptions.model_fields}
"""Of the measurement, not of what reads the model."""
PAIRS = [(kind, name) for kind in KINDS for name in TAKEN_BY]
TAKEN = [(kind, name) for kind, name in PAIRS if kind in TAKEN_BY[name]]
# A path: the hub would be asked again and again for a name.
IMPOSSIBLE: dict[str, Any] = {"n_ctx": 1, "patience": 1e-9, "adapter": "./gone"}
NAMES: dict[Kind, str] = {
    "weights": "tiny-books",
    "endpoint": "http://127.0.0.1:9/v1",
    "llama.cpp": "llama.cpp:model.gguf",
}


def wrong(subject: Subject, name: str) -> Subject:
    """The subject with a value that no reader can use."""
    return subject.model_copy(update={name: IMPOSSIBLE.get(name, "gone")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("kinds") / "model")


@pytest.fixture
def subject_of(folder, tmp_path, monkeypatch, request) -> Callable[[Kind], Subject]:
    """A subject of a kind that can be opened here: a folder, a stub of a server, or llama.cpp without its library."""

    def gpu_is_refused(self: LlamaCpp, *, gpu: bool) -> Any:
        if gpu:
            raise UsageError("gone: there is no GPU")
        return None

    def made(kind: Kind) -> Subject:
        if kind == "endpoint":
            local: LoadedModel = load(str(folder))
            server = serving(Stub(local, "vllm"))
            stub = server.__enter__()
            request.addfinalizer(lambda: server.__exit__(None, None, None))
            return Subject(model=stub.url, tokenizer=str(folder))
        if kind == "llama.cpp":
            library = MagicMock(
                **{
                    "llama_model_n_ctx_train.return_value": 4096,
                    "llama_model_meta_val_str.return_value": -1,
                    "llama_model_has_encoder.return_value": False,
                }
            )
            monkeypatch.setitem(sys.modules, "llama_cpp", library)
            monkeypatch.setattr(LlamaCpp, "_loaded", gpu_is_refused)
            (tmp_path / "model.gguf").touch()
            monkeypatch.setattr(LlamaCpp, "_context", lambda self, tokens: None)
            # What it would read, checks/llamacpp reads.
            monkeypatch.setattr(LlamaCpp, "_check_causal", lambda self, room: None)
            return Subject(model=f"llama.cpp:{tmp_path}/model.gguf", device="cpu", tokenizer=str(folder))
        return Subject(model=str(folder))

    return made


def test_every_setting_of_a_subject_has_its_kinds():
    assert set(TAKEN_BY) | OTHERS == set(Subject.model_fields)
    assert all(set(kinds) <= set(KINDS) for kinds in TAKEN_BY.values())


@pytest.mark.parametrize(("kind", "name"), TAKEN)
def test_it_is_used(subject_of: Callable[[Kind], Subject], kind: Kind, name: str):
    """A value that cannot work is noticed, and the same subject without it can be read."""
    subject = subject_of(kind)
    open_model(subject).check_ready(2)
    with pytest.raises(LengthwiseError, match=rf"gone|\b{name}\b"):
        open_model(wrong(subject, name)).check_ready(2)


@pytest.mark.parametrize(("kind", "name"), [pair for pair in PAIRS if pair not in TAKEN])
def test_it_is_refused(kind: Kind, name: str):
    """Before anything is opened. Both the setting and the model are named."""
    given: dict[str, Any] = {
        "n_ctx": 64,
        "dtype": "float32",
        "device_map": "auto",
        "tp_plan": "auto",
        "patience": 9.0,
        "wait": 9.0,
        "concurrency": 2,
        "header": ("api-key=KEY",),
    }
    with pytest.raises(UsageError) as refused:
        Subject(model=NAMES[kind], **{name: given.get(name, "nf4")})
    assert f"{name} is given, and {NAMES[kind]} is {KINDS[kind]}" in refused.value.problem


def test_an_endpoint_reads_in_no_chunks():
    with pytest.raises(UsageError, match="chunks=64"):
        open_model(Subject(model=NAMES["endpoint"], read="chunks=64"))


def test_another_model_beside_one_keeps_what_its_kind_takes():
    one = Subject(model="m", adapter="a", dtype="float32", device="cpu", text="code")
    assert one.beside("other") == Subject(model="other", dtype="float32", device="cpu", text="code")
    assert one.beside("llama.cpp:m.gguf") == Subject(model="llama.cpp:m.gguf", device="cpu", text="code")
    assert one.beside("https://host/v1") == Subject(model="https://host/v1", text="code")
