"""A model whose weights are here (`LoadedModel`), as a `Predictor`.

The modules that read branches, write replies and read again load only where a measurement asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import Head, NonFiniteLogits
from lengthwise.checkpoints.position_limits import as_length
from lengthwise.errors import UsageError
from lengthwise.settings import KINDS, kind_of
from lengthwise.subjects.pieces import read_along
from lengthwise.subjects.reading import Predictor, Read, Reading, Tokens, Want, naming_bad_logits
from lengthwise.subjects.weights import Weights, WeightsRows, target_losses
from lengthwise.text import tokenizer_fingerprint


class LoadedModel(Weights):
    """A causal LM in eval mode with its tokenizer; see `Weights` for its attributes."""

    gives: ClassVar[frozenset[Want]] = frozenset(Want)

    @torch.no_grad()
    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """See `Predictor.read`. Readings of one length without branches go through one forward pass."""
        found: list[Read] = []
        for alike, some in groupby(readings, key=lambda each: (len(each.tokens), bool(each.branches))):
            batch = list(some)
            if alike[1]:
                from lengthwise.subjects.branches import read_with_branches

                states = [read_with_branches(self, each) for each in batch]
            else:
                tokens = torch.from_numpy(np.stack([each.tokens for each in batch]).astype(np.int64))
                states = [(text, ()) for text in read_along(self, tokens)]
            for reading, (text, branches) in zip(batch, states, strict=True):
                try:
                    found.append(self._answer(reading, text, branches))
                except NonFiniteLogits as error:
                    raise NonFiniteLogits(error.position, view=len(found)) from error
        return found

    def _answer(self, reading: Reading, text: Tensor, branches: Sequence[Tensor]) -> Read:
        """What is wanted of a reading, from what the head takes for its tokens and for those of its branches."""
        if reading.want is Want.ROWS:
            return Read(rows=WeightsRows(self, text))
        if reading.want is Want.NEXT:
            return Read(rows=WeightsRows(self, text[-1:]))
        rows = WeightsRows(self, text)
        losses = rows.losses(reading.labels)
        if not branches:
            return Read(losses=losses)
        # All at once: one at a time, most of the work would be reading the head's weights.
        own = zip(branches, reading.branches, strict=True)
        ends = torch.cat([states[len(states) - len(each.labels) :] for states, each in own])
        labels = np.concatenate([each.labels for each in reading.branches])
        found = target_losses(self, ends, labels, first=reading.branches[0].place)
        return Read(losses=losses, branches=found.split([len(each.labels) for each in reading.branches]))

    def write(
        self,
        prompts: Sequence[Tokens],
        *,
        new_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        at_least: int = 0,
        until: Callable[[str], bool] | None = None,
        at_once: int = 1,
    ) -> list[str]:
        """See `Predictor.write`, and `lengthwise.subjects.writing`."""
        from lengthwise.subjects.writing import write

        with naming_bad_logits(self, "what follows a prompt"):
            return write(
                self,
                prompts,
                new_tokens=new_tokens,
                stop_ids=stop_ids,
                at_least=at_least,
                until=until,
                at_once=at_once,
            )

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """See `Predictor.again`: weights are rounded otherwise (`lengthwise.subjects.rounding`)."""
        from lengthwise.subjects.rounding import read_otherwise

        return read_otherwise(self, reading, read, dtype or self.dtype)

    def fingerprint(self) -> dict[str, str]:
        """Hashes of the weights (adapter included), the configuration and the tokenizer."""
        from lengthwise.subjects.fingerprints import config_fingerprint, weights_fingerprint

        return {
            "weights": weights_fingerprint(self.model),
            "config": config_fingerprint(self.config),
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
        }

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only. Proves the head."""
        head = self.head
        extension = self.extension
        return {
            "name": self.name,
            "source": self.source,
            "adapter": self.adapter,
            "architecture": self.config.model_type,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "dtype": self.dtype,
            "device": str(self.device),
            "vocab_size": self.vocab_size,
            "trained_length": self.trained_length,
            "claimed_length": as_length(getattr(self.config, "max_position_embeddings", None)),
            "max_positions": self.max_positions,
            "rope_parameters": getattr(self.config, "rope_parameters", None) or None,
            "extension": None if extension is None else extension.to_dict(),
            "attn_implementation": self.config._attn_implementation,
            "head": "proven" if isinstance(head, Head) else f"full logits: {head.reason}",
            "tokenizer": type(self.tokenizer).__name__,
        }


def weights_of(model: Predictor, *, needs: str, fix: str) -> LoadedModel:
    """The model, if its weights are here.

    Raises:
        UsageError: it runs elsewhere; says what `needs` the weights, and the `fix`.
    """
    if isinstance(model, LoadedModel):
        return model
    kind = kind_of(model.name)
    raise UsageError(
        f"{model.name} is {'not loaded here' if kind == 'weights' else KINDS[kind]}, and {needs}",
        expected="a model whose weights are loaded here",
        fix=fix,
    )
