"""Greedy replies of llama.cpp, whose functions are played by a tiny model, against those of its weights."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import open_model
from tests.architectures import tiny_model
from tests.readings import some_prompts
from tests.subjects.fake_llama_cpp import FakeLlamaCpp
from tests.subjects.test_writing import as_loaded, llama, written


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(ends of generation, settings) -> the model, and what plays llama.cpp."""
    (tmp_path / "tiny.gguf").write_bytes(b"")
    weights = as_loaded(tiny_model("llama-gqa", eos_token_id=None).double())

    def opened(*ends: int, **settings: Any) -> tuple[Any, FakeLlamaCpp]:
        fake = FakeLlamaCpp(weights.model, frozenset(ends))
        monkeypatch.setitem(sys.modules, "llama_cpp", fake)  # type: ignore[arg-type]
        subject = Subject(model=f"llama.cpp:{tmp_path / 'tiny.gguf'}", **settings)
        return open_model(subject, tokenizer=weights.tokenizer), fake

    return opened


def test_replies_are_those_of_the_weights(opened: Any) -> None:
    model, fake = opened(read="chunks=16")
    assert written(model, some_prompts(), new_tokens=5) == written(llama(), some_prompts(), new_tokens=5)
    # Each prompt in batches, then a token at a time.
    assert sorted(fake.batches) == sorted([16] * 6 + [4, 6, 9] + [1] * 12)


def test_a_reply_ends_where_the_file_and_the_task_say(opened: Any) -> None:
    prompts = some_prompts()[:1]
    [whole] = written(llama(), prompts, new_tokens=6)
    third = whole[2]
    for ends, settings in (((third,), {}), ((), {"stop_ids": frozenset({third})})):
        [found] = written(opened(*ends)[0], prompts, new_tokens=6, **settings)
        assert found == whole[: whole.index(third)]
    [found] = written(opened()[0], prompts, new_tokens=6, until=lambda text: len(text.split()) == 2)
    assert found == whole[:2]


def test_a_reply_has_room_in_the_context(opened: Any) -> None:
    model, _ = opened(n_ctx=44)
    model.write(some_prompts(), new_tokens=4)
    with pytest.raises(UsageError, match="45 tokens"):
        model.write(some_prompts(), new_tokens=5)
