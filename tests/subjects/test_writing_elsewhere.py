"""Greedy replies of llama.cpp, whose functions are played by a tiny model, against those of its weights."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import Reading, open_model
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


LONGROPE = {
    b"general.architecture": b"phi3",
    b"phi3.rope.scaling.original_context_length": b"512",
}


@pytest.mark.parametrize(
    ("says", "rooms"),
    [({}, [30, 41]), (LONGROPE, [30, 20, 41]), (LONGROPE | {b"phi3.rope.scaling.type": b"yarn"}, [30, 41])],
)
def test_a_text_has_a_context_of_its_own_where_frequencies_depend_on_it(
    says: dict[bytes, bytes], rooms: list[int], opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LongRoPE in a context for more than the original tokens moved a short text by 1.5 nats per token."""
    monkeypatch.setattr(FakeLlamaCpp, "says", says)
    model, fake = opened()
    text = np.arange(1, 42)
    model.read([Reading(tokens=text[:size], labels=text[:1]) for size in (30, 20, 20, 41)])
    assert fake.rooms == rooms
    model.write([tuple(text[:39])], new_tokens=3)
    assert fake.rooms == rooms
