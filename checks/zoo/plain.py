"""The oracle: what the model itself says of a text alone, in one pass, and what its own cached generation says."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor

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

    def is_causal(self, ids: Ids) -> bool:
        """Whether the second half of a text changes nothing of what is said in the first."""
        half = len(ids) // 2
        other = [*ids[:half], *reversed(ids[half:])]
        return float((self.log_p(ids) - self.log_p(other))[:half].abs().max()) < 1e-3

    def greedy(self, prompt: Ids, count: int) -> tuple[list[int], float]:
        """The likeliest tokens, each after reading everything before it whole; how clear the least clear one is."""
        ids, clear = list(map(int, prompt)), np.inf
        for _ in range(count):
            best = self.log_p(ids)[-1].topk(2)
            clear = min(clear, float(best.values[0] - best.values[1]))
            ids.append(int(best.indices[0]))
        return ids[len(prompt) :], clear

    def generated(self, prompt: Ids, count: int) -> list[int] | None:
        """What transformers' `generate` writes greedily; None if it cannot."""
        return self._generate(prompt, count, [])

    def served(self, ids: Ids, decode: int, chunk: int | None = None) -> Tensor | None:
        """log p of each of the last `decode` tokens, as `generate` computes it; None if it cannot.

        What comes before them is its prompt, which it reads at once or in chunks.
        """
        forced = _Forced(ids[len(ids) - decode :])
        if self._generate(ids[: len(ids) - decode], decode, [forced], prefill_chunk_size=chunk) is None:
            return None
        return torch.cat(forced.seen).double().log_softmax(dim=-1)

    @torch.no_grad()
    def _generate(self, prompt: Ids, count: int, processors: list[Any], **how: Any) -> list[int] | None:
        ids = torch.tensor([list(map(int, prompt))])
        given = {name: value for name, value in how.items() if value is not None}
        try:
            found = copy.deepcopy(self.model).generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                num_beams=1,
                pad_token_id=0,
                eos_token_id=None,
                logits_processor=processors,
                **given,
            )
        # Some architectures cannot generate, each in its own way.
        except Exception:
            return None
        return found[0, len(prompt) :].tolist()


class _Forced(LogitsProcessor):
    """Keeps what is predicted, and lets these tokens be written."""

    def __init__(self, tokens: Ids) -> None:
        self.tokens, self.seen = list(map(int, tokens)), []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.seen.append(scores.clone())
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.tokens[len(self.seen) - 1]] = 0.0
        return forced
