"""llama-cpp-python's functions as far as a `LlamaCpp` calls them, with a tiny model behind them."""

import ctypes
from types import SimpleNamespace
from typing import Any, ClassVar

import torch


class FakeLlamaCpp:
    """A module in place of `llama_cpp`; reads the whole text again for each batch."""

    says: ClassVar[dict[bytes, bytes]] = {}
    """The keys of the file."""

    def __init__(self, model: Any, ends: frozenset[int]) -> None:
        self._model, self._ends = model, ends
        self.rooms: list[int] = []
        self._text: list[int] = []
        self._logits = torch.empty(0)
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> Any:
        """What has no effect here: a log, parameters, and what is freed."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: SimpleNamespace()

    def llama_model_has_encoder(self, _: Any) -> bool:
        return False

    def llama_log_callback(self, function: Any) -> Any:
        return function

    def llama_model_meta_val_str(self, _: Any, key: bytes, words: Any, size: int) -> int:
        words.value = self.says.get(key, b"")[:size]
        return len(words.value) if key in self.says else -1

    def llama_init_from_model(self, _: Any, how: Any) -> Any:
        self.rooms.append(how.n_ctx)
        return how

    def llama_vocab_n_tokens(self, _: Any) -> int:
        return self._model.config.vocab_size

    def llama_model_n_ctx_train(self, _: Any) -> int:
        return self._model.config.max_position_embeddings

    def llama_vocab_is_eog(self, _: Any, token: int) -> bool:
        return token in self._ends

    def llama_memory_clear(self, *_: Any) -> None:
        self._text = []

    def llama_batch_init(self, size: int, *_: Any) -> Any:
        rows = {name: [0] * size for name in ("token", "pos", "n_seq_id", "logits")}
        return SimpleNamespace(n_tokens=0, seq_id=[[0] for _ in range(size)], **rows)

    def llama_decode(self, _: Any, batch: Any) -> int:
        assert batch.pos[: batch.n_tokens] == [*range(len(self._text), len(self._text) + batch.n_tokens)]
        self.batches.append(batch.n_tokens)
        self._text += batch.token[: batch.n_tokens]
        with torch.no_grad():
            found = self._model(torch.tensor([self._text])).logits[0, -batch.n_tokens :]
        self._logits = found.float().contiguous()
        return 0

    def llama_get_logits_ith(self, _: Any, row: int) -> Any:
        pointer = ctypes.c_void_p(self._logits[row].data_ptr())
        return ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
