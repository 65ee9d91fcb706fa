"""Losses of a model in one line, and doubles of a model, for tests."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.subjects import LoadedModel, Predictor, Read, Reading, Want
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_llama, tiny_tokenizer


def in_memory(model: Any = None, name: str = "tiny") -> LoadedModel:
    """A model and the tokenizer of the tests as a loaded model; without a model a tiny Llama."""
    return LoadedModel(model or tiny_llama(), tiny_tokenizer(), name, "memory")


def token_losses(model: Predictor, views: Sequence[Any], labels: Sequence[Any]) -> list[Tensor]:
    """-log p of the labels after the last tokens of each view."""
    readings = [Reading(tokens=view, labels=own) for view, own in zip(views, labels, strict=True)]
    return [read.losses for read in model.read(readings)]


def next_logits(model: Predictor, view: Any) -> Tensor:
    """Logits of the token after a view, [1, V]."""
    [read] = model.read([Reading(tokens=view, want=Want.NEXT)])
    return read.rows.logits(slice(0, 1))


def some_tokens(size: int, seed: int) -> tuple[int, ...]:
    """Ids for the tiny models of the tests."""
    return tuple(torch.randint(3, 320, (size,), generator=torch.Generator().manual_seed(seed)).tolist())


def some_prompts() -> list[tuple[int, ...]]:
    """Three that share 36 tokens, of different lengths, one of them a beginning of another."""
    shared = some_tokens(36, 0)
    return [(*shared, *some_tokens(5, 1)), shared, (*shared, *some_tokens(2, 2))]


class PassesOf:
    """The forward passes of a model whose weights are here."""

    def __init__(self, model: Any) -> None:
        self._read: list[tuple[int, ...]] = []
        # The head, and that a pass sees no later token, are proven by passes of their own.
        assert model.head
        model.proofs.blind_up_to, model.proofs.blind_behind = 1 << 40, (1 << 40, 1 << 40)
        model.model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        self._read.append(tuple(kwargs["input_ids"].shape))

    def taken(self) -> list[tuple[int, ...]]:
        """(rows, tokens of a row) of each pass since the last call."""
        read, self._read = self._read, []
        return read


class Elsewhere(ABC):
    """A model of which only losses are known, as of an endpoint: `losses` of tokens and labels."""

    name = "side"
    gives = frozenset({Want.LOSS})
    max_positions = trained_length = dtype = vocab_size = rope_by_length = None
    path = ReadingPath()
    tokenizer: Any = tiny_tokenizer()

    @abstractmethod
    def losses(self, tokens: Any, labels: Any) -> Tensor:
        """-log p of the labels [N]."""

    def read(self, readings: Sequence[Reading]) -> list[Read]:
        return [Read(losses=self.losses(each.tokens, each.labels)) for each in readings]

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        return []

    def ids_of(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def check_ready(self, tokens: int) -> None:
        assert tokens > 0

    def check_unchanged(self) -> None:
        assert self.name

    def describe(self) -> dict[str, Any]:
        return {}

    def fingerprint(self) -> dict[str, str]:
        return {}
