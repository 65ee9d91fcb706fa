"""A GGUF file read by llama.cpp in this process (`llama.cpp:FILE.gguf`), through the C interface of llama-cpp-python.

llama.cpp reads a text in batches, each through its cache of keys and values, and so does this. The logits of a batch
are handed on in pieces; no tensor of [T, V] is made.
"""

from __future__ import annotations

import ctypes
import importlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import chunk_rows, locating_bad_logits
from lengthwise.checkpoints.resolve import ResolvedModel, read_tokenizer
from lengthwise.errors import LengthwiseError, MissingError, UsageError, reason, require_known
from lengthwise.files import named_path
from lengthwise.progress import advance
from lengthwise.settings import Subject, path_text
from lengthwise.subjects.llama_cpp_file import architecture, digest, remarks, says
from lengthwise.subjects.llama_cpp_settings import CACHE_TYPES, rope_settings
from lengthwise.subjects.llama_cpp_stream import Stream
from lengthwise.subjects.reading import Ends, Read, Reading, ReadingPath, Tokens, Want, reading_path
from lengthwise.subjects.rounding import beginning
from lengthwise.subjects.rows import Rows, naming_bad_logits
from lengthwise.subjects.writing import Replies
from lengthwise.text import tokenizer_fingerprint

BATCH = 512
"""The most tokens of a batch, and llama.cpp's own default."""
INSTALL = "pip install llama-cpp-python==0.3.36 (it compiles llama.cpp, which takes up to 18 minutes)"
_ERROR = 4
"""The level of errors in llama.cpp's log."""
_SENTENCEPIECE, _BYTE = 1, 1 << 5
"""llama.cpp's numbers of a kind of vocabulary and of a kind of token."""
_LOG: list[Any] = []
"""The log callback that llama.cpp has: it keeps no reference, and calls it until another one is set."""


class LlamaCpp:
    """A model that llama.cpp runs, as a `Predictor`. Weights are not repacked for the processor.

    Args:
        subject: its model is `llama.cpp:FILE.gguf`. `kv_cache` is one of `CACHE_TYPES` (default f16); `rope_scaling`
            is none, linear:FACTOR or yarn:FACTOR (default: what the file says); `n_ctx` the tokens that the context
            has room for (default: as many as are read); `read=chunks=N` the tokens of a batch (default 512);
            `tokenizer` the hub id or folder of a tokenizer.
        tokenizer: one to use where the subject names none; None: the file's own, as transformers reads it.

    Raises:
        UsageError: a setting that llama.cpp has not, a file that it cannot read.
        MissingError: llama-cpp-python or the file is missing.
    """

    gives: ClassVar[frozenset[Want]] = frozenset(Want)
    dtype: str | None = None
    rope_by_length: str | None = None
    """LongRoPE: a context with room for more tokens than the original ones has other frequencies, for every text."""
    being_read: weakref.ref[Stream] | None = None
    """The text that the context holds."""

    def __init__(self, subject: Subject, *, tokenizer: Any = None) -> None:
        self.name = subject.model
        self.kv_cache = subject.kv_cache or "f16"
        require_known(self.kv_cache, CACHE_TYPES, "no cache")
        self.rope_scaling, self._rope = subject.rope_scaling, rope_settings(subject.rope_scaling)
        path = reading_path(subject)
        if path.chunk is not None and path.chunk > BATCH:
            raise UsageError(f"read is {subject.read!r}", expected=f"batches of at most {BATCH} tokens")
        # A batch reads from the cache from the first token on: it is no chunk.
        self.batch, self.path = path.chunk or BATCH, ReadingPath(decode=path.decode)
        self.max_positions = subject.n_ctx
        self.file = named_path(self.name.removeprefix("llama.cpp:"), what="the GGUF file").absolute()
        try:
            # By name: this module has the same.
            c: Any = importlib.import_module("llama_cpp")
        # A library that was built for another machine raises other errors than ImportError.
        except (ImportError, OSError, RuntimeError) as error:
            raise MissingError(f"llama.cpp cannot be loaded: {reason(error)}", fix=INSTALL) from error
        if not self.file.is_file():
            raise MissingError(f"there is no file {self.file}", expected="llama.cpp:FILE.gguf")
        self._c, self._said = c, list[str]()
        self._model = self._loaded(gpu=subject.device != "cpu")
        weakref.finalize(self, c.llama_model_free, self._model)
        if c.llama_model_has_encoder(self._model):
            # llama.cpp ends the process where a decoder has read no encoder.
            raise self._no_decoder("it has an encoder")
        self._vocabulary = c.llama_model_get_vocab(self._model)
        self.vocab_size: int = c.llama_vocab_n_tokens(self._vocabulary)
        # 0 where the file does not say.
        self.trained_length: int | None = max(0, c.llama_model_n_ctx_train(self._model)) or None
        if (named := subject.tokenizer or path_text(tokenizer)) is None:
            own = ResolvedModel(self.name, str(self.file.parent))
            named = read_tokenizer(own, gguf_file=self.file.name)
        self.tokenizer = read_tokenizer(named) if isinstance(named, str) else named
        scaling = says(c, self._model, "rope.scaling.type")
        if says(c, self._model, "rope.scaling.original_context_length") and scaling in (None, "longrope"):
            self.rope_by_length = "longrope"
        self._open: tuple[int, Any, weakref.finalize[Any, Any]] | None = None
        self._causal = False
        """Whether it was seen to be."""
        self._turn = 0
        """Which reading the context belongs to."""

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if no context of `tokens` tokens can be made."""
        if self.max_positions is not None and tokens > self.max_positions:
            problem = f"{tokens} tokens are read, and n_ctx is {self.max_positions}"
            raise UsageError(problem, fix="leave n_ctx out, or use a shorter length")
        self._context(tokens)
        if not self._causal and tokens > 1:
            self._check_causal(tokens)

    def _check_causal(self, room: int) -> None:
        """Raise UsageError if a token changes what is predicted before it, as in an encoder."""
        texts = np.linspace(1, self.vocab_size - 2, size := min(room, 8), dtype=np.int64)[None].repeat(2, 0)
        texts[1, -1] -= 1
        # In batches, also where a text is read a token at a time in the end.
        pieces = ReadingPath(self.batch).pieces(size)
        one, other = (torch.cat([*self._on(self._begun(room), text, 0, pieces)])[:-1] for text in texts)
        if not torch.allclose(one, other, rtol=0, atol=1e-3 * float(one.abs().max()), equal_nan=True):
            raise self._no_decoder("a token changes what is predicted before it")
        self._causal = True

    def _no_decoder(self, problem: str) -> UsageError:
        return UsageError(
            f"{self.name} ({architecture(self._c, self._model)}) is not a causal language model: {problem}",
            expected="a decoder that predicts each token from those before it",
        )

    def check_unchanged(self) -> None:
        """See `Predictor.check_unchanged`: each text begins with an empty cache."""

    def logits(self, view: NDArray[Any], first: int, *, room: int = 0) -> Iterator[Tensor]:
        """Logits after the tokens of `view` [T] from `first` on, in order: [n, V] at a time, fp32.

        There is `room` for tokens that `_on` reads later. LengthwiseError if llama.cpp failed, or another text was
        read in between.
        """
        pieces = ReadingPath(self.batch, self.path.decode).pieces(len(view))
        yield from self._on(self._begun(max(room, len(view))), view, first, pieces)

    def _begun(self, room: int) -> Any:
        """A context for another text."""
        context = self._context(room)
        self._turn += 1
        self._c.llama_memory_clear(self._c.llama_get_memory(context), True)
        return context

    def _on(
        self, context: Any, view: NDArray[Any], first: int, pieces: Sequence[int], begin: int = 0
    ) -> Iterator[Tensor]:
        """As `logits`, of a view of which the first `begin` tokens were read: the rest in pieces."""
        c, turn, size = self._c, self._turn, chunk_rows(self.vocab_size)
        batch = c.llama_batch_init(self.batch, 0, 1)
        try:
            for piece in pieces:
                batch.n_tokens = piece
                for row, token in enumerate(view[begin : begin + piece]):
                    batch.token[row], batch.pos[row] = int(token), begin + row
                    batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
                    batch.logits[row] = begin + row >= first
                if code := c.llama_decode(context, batch):
                    raise LengthwiseError(f"llama.cpp cannot read {self.name} ({code}): {self._last_words()}")
                rows = min(piece, max(0, begin + piece - first))
                begin += piece
                advance(piece)
                for start in range(0, rows, size):
                    n = min(size, rows - start)
                    # llama.cpp writes the next batch's to the same place.
                    if not (place := c.llama_get_logits_ith(context, piece - rows + start)):
                        raise self._no_decoder("it gives no logits")
                    yield torch.from_numpy(np.ctypeslib.as_array(place, shape=(n, self.vocab_size)).copy())
                    if turn != self._turn:
                        raise LengthwiseError(f"{self.name} was asked for another text while it read one")
        finally:
            c.llama_batch_free(batch)

    def _rows(self, tokens: NDArray[Any], begin: int = 0) -> Rows:
        """The rows after the tokens [T] of a text, from `begin` on."""
        return Rows(Stream(self, tokens, begin).logits, len(tokens) - begin, self.vocab_size)

    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """See `Predictor.read`. Texts, and branches with the text before them, are read one after the other."""
        found = []
        for index, each in enumerate(readings):
            with locating_bad_logits(view=index):
                if each.want is not Want.LOSS:
                    first = len(each.tokens) - 1 if each.want is Want.NEXT else 0
                    found.append(Read(rows=self._rows(each.tokens, first)))
                    continue
                rows = self._rows(each.tokens) if len(each.labels) else None
                losses = Read().losses if rows is None else rows.losses(each.labels)
                branches = [
                    self._rows(branch.after(each.tokens)).losses(branch.labels) for branch in each.branches
                ]
                found.append(Read(losses=losses, branches=branches))
        return found

    def write(self, prompts: Sequence[Tokens], *, at_once: int = 1, **ends: Unpack[Ends]) -> list[str]:
        """See `Predictor.write`. One reply after the other; the file's own ends of generation end one too."""
        c, found = self._c, dict[Tokens, str]()
        self.check_ready(max(map(len, prompts)) + ends["new_tokens"] - 1)
        own = {token for token in range(self.vocab_size) if c.llama_vocab_is_eog(self._vocabulary, token)}
        ends["stop_ids"] = ends.get("stop_ids", frozenset()) | own
        for prompt in sorted(set(prompts)):
            reply, tokens = Replies(1, tokenizer=self.tokenizer, **ends), np.array(prompt)
            room = len(prompt) + ends["new_tokens"] - 1
            with naming_bad_logits(self, "what follows a prompt"):
                [logits] = self.logits(tokens, len(tokens) - 1, room=room)
                while reply.add(logits):
                    tokens = np.append(tokens, reply.chosen[-1].item())
                    [logits] = self._on(self._context(room), tokens, len(tokens) - 1, [1], len(tokens) - 1)
            [found[prompt]] = reply.texts
        return [found[prompt] for prompt in prompts]

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """See `Predictor.again`: a shorter text goes through the kernels in other batches."""
        return [(read, self.read([beginning(reading)])[0])]

    def ids_of(self, text: str) -> list[int]:
        """The ids that llama.cpp itself makes of a text, without BOS: a wrong pre-tokenizer shows here."""
        c, vocabulary = self._c, self._vocabulary
        # Of bytes that have no token llama.cpp ends the process.
        if c.llama_vocab_type(vocabulary) == _SENTENCEPIECE and not any(
            c.llama_vocab_get_attr(vocabulary, token) & _BYTE for token in range(self.vocab_size)
        ):
            raise UsageError(
                f"llama.cpp cannot split text into tokens with {self.name}: its vocabulary has no bytes",
                expected="a token for each byte, for letters that are no tokens",
            )
        plain = text.encode()
        room = (ctypes.c_int32 * (len(plain) + 16))()
        count = c.llama_tokenize(vocabulary, plain, len(plain), room, len(room), False, False)
        return list(room[: max(0, count)])

    def fingerprint(self) -> dict[str, str]:
        """Hashes of the file, in all its parts, and of the tokenizer."""
        return {
            "weights": digest(self._c, self._model, self.file),
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
        }

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only."""
        words = ctypes.create_string_buffer(256)
        self._c.llama_model_desc(self._model, words, len(words))
        return {
            "name": self.name,
            "source": str(self.file),
            "architecture": words.value.decode(errors="replace"),
            "parameters": self._c.llama_model_n_params(self._model),
            "dtype": f"as in the file; cache {self.kv_cache}",
            "vocab_size": self.vocab_size,
            "trained_length": self.trained_length,
            "claimed_length": self.trained_length,
            "rope_scaling": self.rope_scaling or "as in the file",
            "batch": self.batch,
            "remarks": remarks(self._c, self._model, self.file, self.rope_scaling),
            "llama-cpp-python": self._c.__version__,
        }

    def _loaded(self, *, gpu: bool) -> Any:
        c, said = self._c, self._said

        @c.llama_log_callback
        def log(level: int, text: bytes, _: Any) -> None:
            if level == _ERROR:
                said.append(text.decode(errors="replace"))

        _LOG[:] = [log]
        c.llama_log_set(log, ctypes.c_void_p(0))
        c.llama_backend_init()
        how = c.llama_model_default_params()
        how.use_extra_bufts = False
        how.n_gpu_layers = -1 if gpu else 0
        model = c.llama_model_load_from_file(str(self.file).encode(), how)
        if not model:
            expected = "a whole GGUF file of a model that this llama.cpp knows"
            raise UsageError(f"llama.cpp cannot read {self.file}: {self._last_words()}", expected=expected)
        return model

    def _context(self, tokens: int) -> Any:
        """A context with room for `tokens` tokens."""
        room = self.max_positions or tokens
        if self._open is not None:
            had, context, free = self._open
            if had == room or (had > room and self.rope_by_length is None):
                return context
            free()
        how = (c := self._c).llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch = room, self.batch, self.batch
        how.n_threads = how.n_threads_batch = torch.get_num_threads()
        # As llama-server does: a sliding window's cache is no longer than the window.
        how.swa_full = False
        how.type_k = how.type_v = CACHE_TYPES[self.kv_cache]
        if self.kv_cache == "f32":
            # Flash attention would round it to f16.
            how.flash_attn_type = 0
        for name, value in self._rope.items():
            setattr(how, name, value)
        context = c.llama_init_from_model(self._model, how)
        if not context:
            raise UsageError(
                f"llama.cpp cannot make a context of {room} tokens for {self.name}: {self._last_words()}",
                expected="memory for it, and a cache type that this model and machine take",
            )
        self._open = room, context, weakref.finalize(self, c.llama_free, context)
        return context

    def _last_words(self) -> str:
        return " ".join("".join(self._said[-4:]).split()) or "it does not say why"
