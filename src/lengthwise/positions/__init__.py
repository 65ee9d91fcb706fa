"""Context extension methods, one file each. They need torch only, and import it at the first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError, nearest
from lengthwise.settings import checked

if TYPE_CHECKING:
    from lengthwise.positions.attention.query_scale import QueryScale
    from lengthwise.positions.attention.shifted_sparse import ShiftedSparse
    from lengthwise.positions.rope.plain_rope import RopeMethod
    from lengthwise.positions.sampling.sampler import PositionSampler


@dataclass(frozen=True)
class Entry:
    """Where a method lives (`file.Class` beside this one), and what it does."""

    home: str
    what: str


@dataclass(frozen=True)
class RopeEntry(Entry):
    """A rope method, with what others must know of it without importing it."""

    by_input_length: bool = False
    """Whether its frequencies depend on how many tokens are read in one pass."""
    rope_type: str | None = None
    """transformers' name for it, where that is another one and its frequencies depend on the input."""
    learned: bool = False
    """Whether it has weights of its own, which are trained and saved with the model's."""


ROPE_METHODS: dict[str, RopeEntry] = {
    "pi": RopeEntry(
        "rope.pi.PositionInterpolation", "position interpolation: divides every frequency by the factor"
    ),
    "ntk": RopeEntry(
        "rope.ntk.Ntk", "NTK-aware scaling: a larger base; only the last frequency is divided by the factor"
    ),
    "dynamic_ntk": RopeEntry(
        "rope.dynamic_ntk.DynamicNtk",
        "NTK-aware scaling whose base grows with the input",
        by_input_length=True,
        rope_type="dynamic",
    ),
    "ntk_by_parts": RopeEntry(
        "rope.ntk_by_parts.NtkByParts",
        "keeps fast frequencies, divides slow ones by the factor, NTK-aware between",
    ),
    "yarn": RopeEntry(
        "rope.yarn.Yarn",
        "keeps fast frequencies, divides slow ones by the factor, blends between; sharper attention",
    ),
    "yarn_revised": RopeEntry(
        "rope.yarn_revised.RevisedYarn", "YaRN that blends wavelengths, as in PoSE and CREAM"
    ),
    "longrope": RopeEntry(
        "rope.longrope.LongRope",
        "divides each frequency by its own factor, found by search",
        by_input_length=True,
    ),
    "llama3": RopeEntry(
        "rope.llama3.Llama3",
        "Llama 3.1: keeps fast frequencies, divides slow ones by the factor, blends between",
    ),
    "abf": RopeEntry("rope.abf.AdjustedBase", "a larger base, 500000"),
    "eabf": RopeEntry(
        "rope.eabf.EntropyAwareBase", "a larger base, 500000; scales queries by the log of their position"
    ),
    "clex": RopeEntry(
        "rope.clex.Clex",
        "frequencies from a learned differential equation in the length of the input",
        by_input_length=True,
        learned=True,
    ),
}

POSITION_SAMPLERS: dict[str, Entry] = {
    "random_positions": Entry(
        "sampling.random_positions.RandomPositions",
        "a sorted random subset of the positions of the longer context",
    ),
    "pose": Entry("sampling.pose.Pose", "two chunks with a random gap between them"),
    "skip": Entry("sampling.skip.Skip", "random skips at random places, of a bounded size"),
    "cream": Entry("sampling.cream.Cream", "head, tail, and a chunk between them that favours the middle"),
    "clex_positions": Entry(
        "sampling.clex_positions.ClexPositions",
        "random positions within a random extent, with both ends fixed",
    ),
}

ATTENTIONS: dict[str, Entry] = {
    "shifted_sparse": Entry(
        "attention.shifted_sparse.ShiftedSparse",
        "S2-Attn: attention within groups, which are shifted for half of the heads",
    ),
    "query_scale": Entry(
        "attention.query_scale.QueryScale", "queries times the log of their position (EABF)"
    ),
}


def rope_method(name: str, options: Mapping[str, Any] | None = None) -> RopeMethod:
    """The rope method `name` of ROPE_METHODS with its options.

    Raises:
        UsageError: no such method, an option that it does not have, or an option of the wrong type.
    """
    return _make("method", ROPE_METHODS, name, options)


def position_sampler(name: str, options: Mapping[str, Any] | None = None) -> PositionSampler:
    """The sampler of position ids `name` of POSITION_SAMPLERS with its options.

    Raises:
        UsageError: as `rope_method`.
    """
    return _make("position sampler", POSITION_SAMPLERS, name, options)


def attention_method(name: str, options: Mapping[str, Any] | None = None) -> ShiftedSparse | QueryScale:
    """The attention `name` of ATTENTIONS with its options.

    Raises:
        UsageError: as `rope_method`.
    """
    return _make("attention", ATTENTIONS, name, options)


def _make(kind: str, table: Mapping[str, Entry], name: str, options: Mapping[str, Any] | None) -> Any:
    if name not in table:
        raise UsageError(f"unknown {kind} {name!r}", expected=nearest(name, table))
    module, _, made = table[name].home.rpartition(".")
    maker = getattr(importlib.import_module(f"{__name__}.{module}"), made)
    return checked(maker, options or {}, source=f"the {kind} {name}")
