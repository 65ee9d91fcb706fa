"""What a side of a planted pair is made of: a base model, and functions that make another side of it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.subjects import LoadedModel

Pattern = Literal[
    "equal", "undecided", "all positions", "from a place", "first tokens", "growing", "some windows",
    "some tokens", "unstable",
]  # fmt: skip


class Kept(LoadedModel):
    """A model whose passes over pairs of windows are kept: most pairs have the same side A."""

    def hidden_states(self, input_ids: Tensor, **how: Any) -> Tensor:
        # A window alone is read to see how the model rounds.
        if how or len(input_ids) == 1:
            return super().hidden_states(input_ids, **how)
        passes = self.__dict__.setdefault("passes", {})
        key = hashlib.md5(input_ids.numpy().tobytes()).hexdigest()
        if key not in passes:
            passes[key] = super().hidden_states(input_ids)
        return passes[key]


@dataclass
class Base:
    """The model that a pair is made of.

    Args:
        model: side A of most pairs.
        scale: by how much the places of the table are multiplied.
        opened: what a side opens, such as a server, is closed with it.
    """

    model: LoadedModel
    scale: int = 1
    opened: ExitStack = field(default_factory=ExitStack)

    def cast(self, dtype: str) -> Base:
        """The same model in another dtype."""
        if str(self.model.model.dtype) == f"torch.{dtype}":
            return self
        other = copy.deepcopy(self.model.model).to(getattr(torch, dtype))
        return replace(self, model=loaded(other, self.model, kept=True))


Side = Callable[[Base], Any]
"""Makes one side of a pair: a `LoadedModel` or an `Endpoint`."""


@dataclass(frozen=True)
class Says:
    """What must be said of a pair.

    Args:
        pattern: one of these.
        sign: of the shift: "worse", "better" or "either".
        place: a token of the place where it begins; multiplied by the base's scale.
        use: one of these, of far context.
        words, never: that must be, and must not be, in the sentences, the notes or the refusal.
        refused: a refusal is as good, if it has `words`.
    """

    pattern: tuple[Pattern, ...]
    sign: str | None = None
    place: int | None = None
    use: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    refused: bool = False


UNSEEN = Says(("equal",), words=("could not have been seen in 16 bits",), never=("differs from A", "less"))
"""Of what is less than a larger model rounds in 16 bits."""
EQUAL = Says(("equal",), words=("predicts as A does",), never=("fault", "differs from A", "less"))


@dataclass(frozen=True)
class Pair:
    """Two sides, and what must be said of them.

    Args:
        what: the planted fault, or how a sound pair differs, in words.
        says: what must be said.
        b, a: the sides, made of the base.
        dtype, lengths, windows: of the comparison; lengths are multiplied by the base's scale.
        base: which model; see `bases`.
        raw: whether the text is given as characters, which tokenizers may read otherwise.
        larger: what must be said of a larger model than `tiny-books`, where that is something else.
    """

    what: str
    says: Says
    b: Side
    a: Side = lambda base: base.model
    dtype: str = "float32"
    lengths: tuple[int, ...] = (512,)
    windows: int = 3
    base: str = "tiny-books"
    raw: bool = False
    larger: Says | None = None


def loaded(
    model: Any, like: LoadedModel, cls: Any = LoadedModel, *, kept: bool = False, **attributes: Any
) -> Any:
    """A side of a transformers model, with the tokenizer of another side."""
    found = (Kept if kept else cls)(model.eval(), like.tokenizer, like.name, "memory")
    for name, value in attributes.items():
        setattr(found, name, value)
    return found


class _Reads(LoadedModel):
    how: Any

    def hidden_states(self, input_ids: Tensor, **_: Any) -> Tensor:
        return self.how(super().hidden_states, input_ids)


def reads(how: Callable[[Callable[..., Tensor], Tensor], Tensor], of: Side | None = None) -> Side:
    """A side that reads in another way: `how` gets the pass of the model, and the ids [B, T]."""

    def side(base: Base) -> LoadedModel:
        model = of(base) if of else base.model
        return loaded(model.model, model, _Reads, how=how, head=model.head)

    return side


class _Predicts(LoadedModel):
    head: Any = SimpleNamespace(logits=lambda hidden: hidden, reason="they are changed")
    how: Any
    of: Any

    def hidden_states(self, input_ids: Tensor, **_: Any) -> Tensor:
        logits = [self.of.head.logits(rows).float() for rows in self.of.hidden_states(input_ids)]
        return self.how(input_ids, torch.stack(logits))


def predicts(how: Callable[[Tensor, Tensor], Tensor], of: Side | None = None) -> Side:
    """A side whose logits are changed: `how` gets the ids [B, T] and the logits [B, T, V]."""

    def side(base: Base) -> LoadedModel:
        model = of(base) if of else base.model
        return loaded(model.model, model, _Predicts, how=how, of=model)

    return side


def changed(how: Callable[[Any], None], of: Side | None = None) -> Side:
    """A side whose weights or buffers `how` changes in place, in a copy."""

    @torch.no_grad()
    def side(base: Base) -> LoadedModel:
        model = of(base) if of else base.model
        other = copy.deepcopy(model.model)
        how(other)
        return loaded(other, model)

    return side


def configured(model_class: Any = None, config_class: Any = None, **settings: Any) -> Side:
    """A side of the same weights with other settings, perhaps of another class; what it lacks is zero."""

    def side(base: Base) -> LoadedModel:
        old = base.model.model
        given = {
            name: value
            for name, value in old.config.to_dict().items()
            if name not in ("model_type", "architectures", "transformers_version", "dtype", "layer_types")
        }
        scaled = {name: value(base) if callable(value) else value for name, value in settings.items()}
        with quiet_transformers():
            config = (config_class or type(old.config))(**given | scaled)
            config._attn_implementation = old.config._attn_implementation
            other = (model_class or type(old))(config).to(old.dtype)
        lacking = other.load_state_dict(old.state_dict(), strict=False).missing_keys
        with torch.no_grad():
            for name, parameter in other.named_parameters():
                if name in lacking and name.endswith("bias"):
                    parameter.zero_()
        other.tie_weights()
        return loaded(other, base.model)

    return side
