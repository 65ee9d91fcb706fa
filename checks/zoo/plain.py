"""The oracle: what the model itself says of a text alone, in one pass, and what its own cached generation says."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LogitsProcessor

Ids = Sequence[int] | NDArray[Any]


class Plain:
    """The plain forward pass of a model folder. No reading leaves a trace: each has a copy of the model as loaded."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self._read: dict[tuple[int, ...], Tensor] = {}

    @torch.no_grad()
    def log_p(self, ids: Ids) -> Tensor:
        """log p of every token after each of `ids`, [T, V], in float64."""
        key = tuple(map(int, ids))
        if key not in self._read:
            output = copy.deepcopy(self.model)(input_ids=torch.tensor([key]), use_cache=False)
            self._read[key] = output.logits[0].double().log_softmax(dim=-1)
        return self._read[key]

    def losses(self, ids: Ids, labels: Ids) -> NDArray[np.float64]:
        """-log p of the label after each of the last N of `ids`, [N]."""
        found, targets = self.log_p(ids)[len(ids) - len(labels) :], torch.tensor(list(map(int, labels)))
        return torch.nn.functional.cross_entropy(found, targets, reduction="none").numpy()

    def why_none(self, ids: Ids) -> str | None:
        """Why there is nothing to compare with: it says another thing each time, or its beginning knows its end."""
        half, first = len(ids) // 2, self.log_p(ids)
        del self._read[tuple(map(int, ids))]
        if not torch.allclose(first, self.log_p(ids), atol=1e-3):
            return "it does not say the same twice"
        apart = (first - self.log_p([*ids[:half], *reversed(ids[half:])]))[:half].abs().max()
        return "it sees later tokens" if apart > 1e-3 else None

    @cached_property
    def by_length(self) -> bool:
        """Whether what is said of a text's beginning depends on how long the text is."""
        ids = np.random.default_rng(0).integers(3, 300, size=160)
        return float((self.log_p(ids)[:60] - self.log_p(ids[:60])).abs().max()) > 1e-3

    def greedy(self, prompt: Ids, count: int) -> tuple[list[int], float]:
        """The likeliest tokens, each after reading everything before it whole; how clear the least clear one is."""
        written: list[int] = []
        clear = np.inf
        # Where a later token changes nothing, one pass proves a guess.
        guess = [] if self.by_length else self.generated(prompt, count) or []
        while len(written) < count:
            log_p = self.log_p([*prompt, *written, *guess])[len(prompt) + len(written) - 1 :]
            best = log_p[: count - len(written)].topk(2)
            for row in range(len(best.values)):
                clear = min(clear, float(best.values[row, 0] - best.values[row, 1]))
                written.append(int(best.indices[row, 0]))
                if row < len(guess) and written[-1] != guess[row]:
                    break
            guess = []
        return written, clear

    def generated(self, prompt: Ids, count: int) -> list[int] | None:
        """What transformers' `generate` writes greedily; None if it cannot."""
        found = self._generate(prompt, count)
        return None if found is None else found.sequences[0, len(prompt) :].tolist()

    def served(self, ids: Ids, decode: int, **how: Any) -> Tensor | None:
        """log p of each of the last `decode` tokens, as `generate` computes it; None if it cannot.

        What comes before them is its prompt. `how` are fields of its `GenerationConfig`.
        """
        start = len(ids) - decode
        found = self._generate(ids[:start], decode, forced=ids[start:], **how)
        if found is None:
            return None
        rows = torch.arange(decode), torch.tensor(list(map(int, ids[start:])))
        return torch.cat(found.logits).double().log_softmax(dim=-1)[rows]

    @torch.no_grad()
    def in_chunks(self, ids: Ids, size: int) -> Tensor | None:
        """log p of each token but the first, as transformers alone gives it in passes of `size` tokens; or None."""
        model, text, cache, parts = copy.deepcopy(self.model), torch.tensor([list(map(int, ids))]), None, []
        # Since transformers 5.24, and before.
        name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        try:
            for piece in text[:, :-1].split(size, dim=1):
                output = model(input_ids=piece, use_cache=True, **({name: cache} if cache else {}))
                cache = output[name]
                parts.append(output.logits[0].double().log_softmax(dim=-1))
        # All that runs here is transformers: some architectures keep no such cache, each in its own way. Without this
        # reading a cell is no easier to pass: it only says by how much transformers itself is off.
        except Exception:
            return None
        return torch.cat(parts).gather(1, text[0, 1:, None])[:, 0]

    @torch.no_grad()
    def _generate(self, prompt: Ids, count: int, *, forced: Ids = (), **how: Any) -> Any:
        model, ids = copy.deepcopy(self.model), torch.tensor([list(map(int, prompt))])
        # Of the model's own settings none counts: some force or forbid tokens.
        model.generation_config = GenerationConfig(max_new_tokens=count, pad_token_id=0, **how)
        try:
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                logits_processor=[_Forced(len(prompt), forced)] if len(forced) else [],
                return_dict_in_generate=True,
                output_logits=True,
            )
        # All that runs here is transformers: some architectures cannot generate, each in its own way. Without this
        # reading replies still face whole readings; it only tells whose fault a difference is.
        except Exception:
            return None


class _Forced(LogitsProcessor):
    """These tokens are written, whatever is predicted."""

    def __init__(self, start: int, tokens: Ids) -> None:
        self.start, self.tokens = start, list(map(int, tokens))

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.tokens[input_ids.shape[1] - self.start]] = 0.0
        return forced
