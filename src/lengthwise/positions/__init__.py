"""Context extension methods. They need torch and pydantic only, and import torch at the first use."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import create_model

from lengthwise.errors import UsageError, nearest
from lengthwise.settings import Settings, checked

if TYPE_CHECKING:
    from lengthwise.positions.attention import QueryScale, ShiftedSparse
    from lengthwise.positions.rope.plain_rope import RopeMethod
    from lengthwise.positions.samplers import PositionSampler


@dataclass(frozen=True)
class Entry:
    """Where a method lives (`file.name` beside this one), and what others must know of it without importing it."""

    home: str
    what: str
    by_input_length: bool = False
    """Of a rope method: whether its frequencies depend on how many tokens are read in one pass."""
    rope_type: str | None = None
    """transformers' name for it, where that is another one and its frequencies depend on the input."""
    learned: bool = False
    """Of a rope method: whether it has weights of its own, which are trained and saved with the model's."""


ROPE_METHODS: dict[str, Entry] = {
    "pi": Entry(
        "rope.scaled_rope.position_interpolation",
        "position interpolation: divides every frequency by the factor",
    ),
    "ntk": Entry(
        "rope.scaled_rope.ntk",
        "NTK-aware scaling: a larger base; only the last frequency is divided by the factor",
    ),
    "dynamic_ntk": Entry(
        "rope.scaled_rope.dynamic_ntk",
        "NTK-aware scaling whose base grows with the input",
        by_input_length=True,
        rope_type="dynamic",
    ),
    "ntk_by_parts": Entry(
        "rope.scaled_rope.ntk_by_parts",
        "keeps fast frequencies, divides slow ones by the factor, NTK-aware between",
    ),
    "yarn": Entry(
        "rope.scaled_rope.yarn",
        "keeps fast frequencies, divides slow ones by the factor, blends between; sharper attention",
    ),
    "yarn_revised": Entry(
        "rope.scaled_rope.yarn_revised", "YaRN that blends wavelengths, as in PoSE and CREAM"
    ),
    "longrope": Entry(
        "rope.scaled_rope.longrope",
        "divides each frequency by its own factor, found by search",
        by_input_length=True,
    ),
    "llama3": Entry(
        "rope.scaled_rope.llama3",
        "Llama 3.1: keeps fast frequencies, divides slow ones by the factor, blends between",
    ),
    "abf": Entry("rope.scaled_rope.abf", "a larger base, 500000"),
    "eabf": Entry(
        "rope.scaled_rope.eabf", "a larger base, 500000; scales queries by the log of their position"
    ),
    "clex": Entry(
        "rope.clex.clex",
        "frequencies from a learned differential equation in the length of the input",
        by_input_length=True,
        learned=True,
    ),
}

POSITION_SAMPLERS: dict[str, Entry] = {
    "random_positions": Entry(
        "samplers.random_positions",
        "a sorted random subset of the positions of the longer context",
    ),
    "pose": Entry("samplers.pose", "two chunks with a random gap between them"),
    "skip": Entry("samplers.skip", "random skips at random places, of a bounded size"),
    "cream": Entry("samplers.cream", "head, tail, and a chunk between them that favours the middle"),
    "clex_positions": Entry(
        "samplers.clex_positions",
        "random positions within a random extent, with both ends fixed",
    ),
}

ATTENTIONS: dict[str, Entry] = {
    "shifted_sparse": Entry(
        "attention.ShiftedSparse",
        "S2-Attn: attention within groups, which are shifted for half of the heads",
    ),
    "query_scale": Entry("attention.QueryScale", "queries times the log of their position (EABF)"),
}


def rope_method(name: str, options: Mapping[str, Any] | None = None) -> RopeMethod:
    """The rope method `name` of ROPE_METHODS with its options.

    Raises:
        UsageError: no such method, an option that it does not have, or an option that is wrong.
    """
    from lengthwise.positions.rope.plain_rope import RopeMethod

    method = RopeMethod(*_with_options("method", ROPE_METHODS, name, options))
    if name != "longrope":
        # Options that do not fit together are refused here. LongRoPE's depend on the model's number of frequencies.
        try:
            method.inverse_frequencies(10_000.0, 64, 4096, 1.0)
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"{name} with {method.options}: {error}") from error
    return method


def position_sampler(name: str, options: Mapping[str, Any] | None = None) -> PositionSampler:
    """The sampler of position ids `name` of POSITION_SAMPLERS with its options.

    Raises:
        UsageError: as `rope_method`.
    """
    from lengthwise.positions.samplers import PositionSampler

    return PositionSampler(*_with_options("position sampler", POSITION_SAMPLERS, name, options))


def attention_method(name: str, options: Mapping[str, Any] | None = None) -> ShiftedSparse | QueryScale:
    """The attention `name` of ATTENTIONS with its options.

    Raises:
        UsageError: as `rope_method`.
    """
    return checked(_found("attention", ATTENTIONS, name), options or {}, source=f"the attention {name}")


def _found(kind: str, table: Mapping[str, Entry], name: str) -> Any:
    if name not in table:
        raise UsageError(f"unknown {kind} {name!r}", expected=nearest(name, table))
    module, _, made = table[name].home.rpartition(".")
    return getattr(importlib.import_module(f"{__name__}.{module}"), made)


def _with_options(
    kind: str, table: Mapping[str, Entry], name: str, options: Mapping[str, Any] | None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a method, and its keywords: checked options, and defaults for the others."""
    formula = _found(kind, table, name)
    return formula, dict(checked(_options_of(formula), options or {}, source=f"the {kind} {name}"))


@functools.cache
def _options_of(formula: Callable[..., Any]) -> type[Settings]:
    """The keywords of a function as settings."""
    hints = get_type_hints(formula, include_extras=True)
    fields: dict[str, Any] = {
        each.name: (hints[each.name], each.default)
        for each in inspect.signature(formula).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    }
    return create_model(formula.__name__, __base__=Settings, **fields)
