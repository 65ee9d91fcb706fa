"""The weights of a model that is measured: their hidden states, and the distributions that the head makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.checkpoints.head import (
    FullLogits,
    Head,
    find_head,
    states_and_output,
    why_not,
)
from lengthwise.checkpoints.hidden import decoder_of, is_compiled, runs_compiled, unwrap
from lengthwise.checkpoints.position_limits import (
    RECORD,
    check_positions_fit,
    max_positions,
    rope_by_input_length,
    trained_length,
)
from lengthwise.checkpoints.position_modules import following_ropes, frequencies_of, set_frequencies
from lengthwise.checkpoints.probe import check_blind, rounds_together
from lengthwise.errors import UsageError
from lengthwise.machine import device_of
from lengthwise.progress import advance, watched
from lengthwise.subjects.proof import Proofs, one_pass
from lengthwise.subjects.reading import ReadingPath
from lengthwise.subjects.rows import Rows

if TYPE_CHECKING:
    from lengthwise.checkpoints.extension import Extension

_LONG = 2048
"""Tokens of a pass that takes long enough to show its layers."""
_BEGINNING = 320
"""Tokens that are read again alone, at least: more than 256, which recurrent layers compute at once."""
_TOGETHER = "its products are rounded by scales, or outliers, of all tokens that are read at once"


@dataclass
class Weights:
    """The weights of a causal LM in eval mode, with its tokenizer, and how they are read.

    Attributes:
        model: the transformers model (a PeftModel if an adapter was given).
        tokenizer: its tokenizer.
        name: the model as the user wrote it.
        source: its folder, or hub id and commit.
        adapter: the adapter's folder or hub id, if one was given.
        config: the configuration of the text model.
        max_positions: the number of positions that have an embedding; None if every position has one (rope, ALiBi).
        path: which tokens one forward pass reads, and through which cache.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    adapter: str | None = None
    config: Any = field(init=False, repr=False)
    max_positions: int | None = field(init=False, repr=False)
    _proofs: dict[str, Proofs] = field(init=False, repr=False, compare=False, default_factory=dict)
    path: ReadingPath = field(default_factory=ReadingPath, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.tokenizer) or not hasattr(self.tokenizer, "decode"):
            raise UsageError(f"a {type(self.tokenizer).__name__} is no tokenizer")
        self.config = unwrap(self.model).config.get_text_config()
        self.max_positions = max_positions(self.model)

    @cached_property
    def head(self) -> Head | FullLogits:
        """The output head, proven at its first use to give the model's own logits; see `find_head`."""
        return find_head(self.model)

    @property
    def proofs(self) -> Proofs:
        """Which shortcuts it was seen to take without a difference, with the attention kernel in use."""
        kernel = str(getattr(self.config, "_attn_implementation", None))
        if kernel not in self._proofs:
            self._proofs[kernel] = Proofs(never=_TOGETHER if rounds_together(self.model) else None)
        return self._proofs[kernel]

    def may_continue(self, shortcut: str) -> bool:
        """Whether a shortcut that continues a text from its cache may be tried."""
        method = self.rope_by_length
        if method is not None and not self.proofs.failed(shortcut):
            why = f"the frequencies of {method} rope depend on how many tokens are read in one go"
            self.proofs.refuse(shortcut, why, name=self.name)
        return not self.proofs.failed(shortcut)

    @cached_property
    def following_ropes(self) -> list[Any]:
        """See `lengthwise.checkpoints.position_modules`."""
        return following_ropes(self.model)

    @property
    def device(self) -> torch.device:
        """The device of the input embedding."""
        return device_of(self.model.get_input_embeddings())

    @property
    def vocab_size(self) -> int:
        """V, the number of logits (padding of the vocabulary included)."""
        return self.config.vocab_size

    @property
    def dtype(self) -> str:
        """Of the weights, by torch's name without `torch.`."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not recorded."""
        return trained_length(self.config)

    @property
    def rope_by_length(self) -> str | None:
        """See `Reader.rope_by_length`."""
        return rope_by_input_length(self.config)

    @property
    def extension(self) -> Extension | None:
        """What `lengthwise.extend` did to the model, now or before it was saved; None if nothing."""
        if getattr(self.config, RECORD, None) is None:
            return None
        from lengthwise.checkpoints.extension import read_extension

        return read_extension(self.config)

    def ids_of(self, text: str) -> list[int]:
        """The tokenizer's ids of a text, without BOS."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if the model has no positions for `tokens` tokens, or is in training mode."""
        check_positions_fit(self.max_positions, tokens, name=self.name)
        for part, module in self.model.named_modules():
            if module.training:
                where = f" (its part {part})" if part else ""
                raise UsageError(
                    f"{self.name} is in training mode{where}", fix="call model.eval() before measuring"
                )

    @torch.no_grad()
    def hidden_states(self, input_ids: Tensor, **views: Tensor) -> Tensor:
        """What `self.head.logits` takes: final hidden states [B, T, d] (full logits for `FullLogits`).

        Without gradients; what was read before changes nothing. `views` are `position_ids`, which need not be
        consecutive (every token attends to all before it), and `attention_mask`; without them rows are whole texts.

        Raises:
            UsageError: more positions than the model's table has, or a model that is not the same each time or sees
                later tokens.
        """
        places = views.get("position_ids")
        needed = input_ids.shape[1] if places is None else int(places.max()) + 1
        check_positions_fit(self.max_positions, needed, name=self.name)
        with reported(self.model, input_ids.numel()):
            hidden = self.run(input_ids, **views)
        if not views:
            self.check_blind(input_ids, hidden)
        return hidden

    def plain_pass(self, tokens: Any) -> Tensor:
        """What the head takes for every token of a text [T, ...], read in one pass."""
        return self.hidden_states(torch.from_numpy(np.array(tokens, dtype=np.int64))[None])[0]

    def run(self, input_ids: Tensor, **views: Tensor) -> Tensor:
        """As `hidden_states`, which looks at what this gives."""
        # Its first use reads a few tokens to prove it.
        device, head = self.device, self.head
        set_frequencies(self.following_ropes, frequencies_of(self.following_ropes, fresh=True))
        given = {name: each.to(device) for name, each in views.items()}
        with one_pass(self.name, input_ids.shape[1]):
            found = states_and_output(self.model, head, input_ids.to(device), **given, whole=not given)
        return self.checked(*found)

    def checked(self, hidden: Tensor, output: Any) -> Tensor:
        """Hidden states [B, T, d] on the head's device. The head is proven again, on the last token of each row."""
        head, found = self.head, self.at_head(hidden)
        if isinstance(head, Head) and (reason := why_not(head, found[:, -1], output["logits"][:, -1])):
            raise UsageError(
                f"the output head of {self.name} does not give its logits after {found.shape[1]:,} tokens: {reason}",
                expected="a model whose output head gives its logits at every position",
            )
        return found

    def check_blind(
        self, ids: Tensor, hidden: Tensor, behind: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Look at the first of the longest texts so far [B, T], or of pieces `behind` a cache; see `check_blind`."""
        length = ids.shape[1]
        # More than half: windows and chunks end at powers of two, as lengths do. An odd number cuts every chunk.
        size = min(max(_BEGINNING, length * 5 // 8) | 1, length - 1)
        # Frequencies may follow the length of the text, and its beginning is then another text.
        if size and self.rope_by_length is None and (behind or length > self.proofs.blind_up_to):
            # LLM.int8 rounds by what is read at once.
            dtype = torch.bfloat16 if rounds_together(self.model) else None
            check_blind(ids[:1], hidden[0], behind or self.run, size, name=self.name, dtype=dtype)
            self.proofs.blind_up_to = max(self.proofs.blind_up_to, 0 if behind else length)

    def rows(self, hidden: Tensor) -> Rows:
        """The distributions that the head makes of what it takes, [T, ...]."""
        return Rows(lambda rows: self.head.logits(hidden[rows]), len(hidden), self.vocab_size, hidden)

    def at_head(self, hidden: Tensor) -> Tensor:
        """Hidden states on the device of the output head, which may be another than that of the last layer."""
        return hidden.to(self.head.weight.device) if isinstance(self.head, Head) else hidden


@contextmanager
def reported(model: nn.Module, tokens: int) -> Iterator[None]:
    """Report the tokens of the forward pass inside: a share after each layer of a long one, else all at its end."""
    if not watched():
        yield
        return
    layers = _shown_layers(model) if tokens >= _LONG else []
    with ExitStack() as hooks:
        for layer in layers:
            handle = layer.register_forward_hook(lambda *_: advance(tokens / len(layers)))
            hooks.callback(handle.remove)
        yield
    if not layers:
        advance(tokens)


def _shown_layers(model: nn.Module) -> list[nn.Module]:
    """The layers that may report; none where torch would compile again for a hook."""
    if is_compiled(model):
        return []
    layers = layers_of(decoder_of(model))
    return [] if any(runs_compiled(layer) for layer in layers) else layers


def layers_of(decoder: nn.Module) -> list[nn.Module]:
    """The layers of a decoder: its outermost list of modules, the longest of several; none where it has no list."""
    lists = [
        (name.count("."), -len(module), module)
        for name, module in decoder.named_modules()
        if isinstance(module, nn.ModuleList)
    ]
    return list(min(lists, key=lambda each: each[:2])[2]) if lists else []
