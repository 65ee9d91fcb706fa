from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.checkpoints import extend, push_to_hub
from lengthwise.errors import LengthwiseError
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import tiny_llama, tiny_tokenizer


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the hub, and beside it the calls in order."""
    calls: list[tuple[str, Any]] = []

    class Api:
        def create_repo(self, repo_id: str, **options: Any) -> None:
            calls.append(("create_repo", options))

        def create_branch(self, repo_id: str, *, branch: str, **options: Any) -> None:
            calls.append(("create_branch", branch))

        def upload_folder(self, *, repo_id: str, folder_path: Path, revision: str | None, **_: Any) -> Any:
            calls.append(("upload_folder", revision))
            Path(folder_path).rename(tmp_path / repo_id)
            (tmp_path / "calls.json").write_text(json.dumps(calls))
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    (tmp_path / "me").mkdir()
    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return tmp_path


def in_memory(model: Any) -> LoadedModel:
    return LoadedModel(model, tiny_tokenizer(), "tiny", "memory")


def test_an_extended_model_comes_back_from_the_hub_extended(hub: Path):
    model = tiny_llama()
    extension = extend(model, "clex", factor=2.0)
    address = push_to_hub(in_memory(model), "me/long", private=True, revision="v1")
    assert address == "https://hub/me/long/commit/1"
    assert json.loads((hub / "calls.json").read_text()) == [
        ["create_repo", {"private": True, "exist_ok": True}],
        ["create_branch", "v1"],
        ["upload_folder", "v1"],
    ]
    again = load(str(hub / "me/long"))
    assert again.extension == extension
    assert "clex" in (hub / "me/long/README.md").read_text()
    ids = torch.arange(40)[None]
    torch.testing.assert_close(again.model(input_ids=ids).logits, model(input_ids=ids).logits)


def test_a_hub_that_refuses(monkeypatch: pytest.MonkeyPatch):
    class Api:
        def create_repo(self, repo_id: str, **options: Any) -> None:
            raise OSError("401 Unauthorized")

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    with pytest.raises(LengthwiseError, match=r"me/long .*401 Unauthorized"):
        push_to_hub(in_memory(tiny_llama()), "me/long")
