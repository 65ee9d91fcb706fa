"""Greedy replies of llama.cpp, whose functions are played by a tiny model, against those of its weights."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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

    def opened(*ends: int, kind: Any = FakeLlamaCpp, **settings: Any) -> tuple[Any, FakeLlamaCpp]:
        fake = kind(weights.model, frozenset(ends))
        monkeypatch.setitem(sys.modules, "llama_cpp", fake)
        subject = Subject(**{"model": f"llama.cpp:{tmp_path / 'tiny.gguf'}"} | settings)
        return open_model(subject, tokenizer=weights.tokenizer), fake

    return opened


def test_replies_are_those_of_the_weights(opened: Any) -> None:
    model, fake = opened(read="chunks=16")
    assert written(model, some_prompts(), new_tokens=5) == written(llama(), some_prompts(), new_tokens=5)
    # Two texts of eight tokens show that it is causal; then each prompt in batches, then a token at a time.
    assert sorted(fake.batches) == sorted([8] * 2 + [16] * 6 + [4, 6, 9] + [1] * 12)


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


class Encoder(FakeLlamaCpp):
    """Every token of a batch sees all others."""

    def llama_decode(self, context: Any, batch: Any) -> int:
        text = batch.token[: batch.n_tokens]
        with torch.no_grad():
            whole = self._model(torch.tensor([text])).logits[0]
        self._logits = (whole + whole.mean(0)).float().contiguous()
        return 0


class WithoutHead(FakeLlamaCpp):
    def llama_get_logits_ith(self, *_: Any) -> None:
        return None


class TwoStacks(FakeLlamaCpp):
    def llama_model_has_encoder(self, _: Any) -> bool:
        return True


@pytest.mark.parametrize("read", [None, "decode=40", "chunks=4"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [(Encoder, "before it"), (WithoutHead, "gives no logits"), (TwoStacks, "has an encoder")],
)
def test_what_is_no_decoder_is_refused(kind: Any, words: str, read: str | None, opened: Any) -> None:
    """Where tokens see later ones, a loss is no prediction, and llama.cpp gives numbers all the same."""
    with pytest.raises(UsageError, match=words):
        opened(kind=kind, read=read)[0].check_ready(50)


def test_a_hash_reads_every_part_of_a_model(
    opened: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = [tmp_path / f"tiny-{part:05}-of-00003.gguf" for part in (1, 2, 3)]
    for part in parts:
        part.write_bytes(part.name.encode())
    for says, same in (({}, True), ({b"split.count": b"3"}, False)):
        monkeypatch.setattr(FakeLlamaCpp, "says", says)
        model, _ = opened(model=f"llama.cpp:{parts[0]}")
        parts[2].write_bytes(b"x")
        before = model.fingerprint()
        parts[2].write_bytes(b"y")
        assert (model.fingerprint() == before) is same


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
