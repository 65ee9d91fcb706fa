"""Context extension methods. They need torch and pydantic only, and import torch at the first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError, require_known
from lengthwise.settings import checked, options_of

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.positions.rope import Rope, ScaledRope


@dataclass(frozen=True)
class MethodEntry:
    """Where a method lives (`file.name` beside this one), and what others must know of it without importing it."""

    home: str
    what: str
    by_input_length: bool = False
    """Of a rope method: whether its frequencies depend on how many tokens are read in one pass."""
    rope_type: str | None = None
    """transformers' name for it, where that is another one and its frequencies depend on the input."""
    learned: bool = False
    """Of a rope method: whether it has weights of its own, which are trained and saved with the model's."""


ROPE_METHODS: dict[str, MethodEntry] = {
    "pi": MethodEntry(
        "rope.position_interpolation", "position interpolation: divides every frequency by the factor"
    ),
    "ntk": MethodEntry(
        "rope.ntk", "NTK-aware scaling: a larger base; only the last frequency is divided by the factor"
    ),
    "dynamic_ntk": MethodEntry(
        "rope.dynamic_ntk",
        "NTK-aware scaling whose base grows with the input",
        by_input_length=True,
        rope_type="dynamic",
    ),
    "ntk_by_parts": MethodEntry(
        "rope.ntk_by_parts", "keeps fast frequencies, divides slow ones by the factor, NTK-aware between"
    ),
    "yarn": MethodEntry(
        "rope.yarn",
        "keeps fast frequencies, divides slow ones by the factor, blends between; sharper attention",
    ),
    "yarn_revised": MethodEntry("rope.yarn_revised", "YaRN that blends wavelengths, as in PoSE and CREAM"),
    "longrope": MethodEntry(
        "rope.longrope",
        "divides each frequency by its own factor, found by search",
        by_input_length=True,
    ),
    "llama3": MethodEntry(
        "rope.llama3", "Llama 3.1: keeps fast frequencies, divides slow ones by the factor, blends between"
    ),
    "abf": MethodEntry("rope.abf", "a larger base, 500000"),
    "eabf": MethodEntry("rope.eabf", "a larger base, 500000; scales queries by the log of their position"),
    "clex": MethodEntry(
        "clex.clex",
        "frequencies from a learned differential equation in the length of the input",
        by_input_length=True,
        learned=True,
    ),
}

POSITION_SAMPLERS: dict[str, MethodEntry] = {
    "random_positions": MethodEntry(
        "samplers.random_positions", "a sorted random subset of the positions of the longer context"
    ),
    "pose": MethodEntry("samplers.pose", "two chunks with a random gap between them"),
    "skip": MethodEntry("samplers.skip", "random skips at random places, of a bounded size"),
    "cream": MethodEntry("samplers.cream", "head, tail, and a chunk between them that favours the middle"),
    "clex_positions": MethodEntry(
        "samplers.clex_positions", "random positions within a random extent, with both ends fixed"
    ),
}


def rope_method(name: str, options: Mapping[str, Any] | None = None) -> partial[ScaledRope]:
    """The rope method `name` of ROPE_METHODS: a function of a `Rope`, whose `keywords` are all of its options.

    UsageError for an unknown method, an option that it does not have, or an option that is wrong.
    """
    from lengthwise.positions.rope import Rope

    formula, given = _chosen("method", ROPE_METHODS, name, options)
    method = partial(_scaled, formula, **given)
    if name != "longrope":
        # Options that do not fit together are refused here. LongRoPE's depend on the model's number of frequencies.
        method(Rope(10_000.0, 64, 4096, 1.0))
    return method


def position_sampler(name: str, options: Mapping[str, Any] | None = None) -> partial[Tensor]:
    """The sampler `name` of POSITION_SAMPLERS: `samplers.draw` with its formula and its options; as `rope_method`."""
    from lengthwise.positions.samplers import draw

    formula, given = _chosen("position sampler", POSITION_SAMPLERS, name, options)
    return partial(draw, formula, **given)


def _scaled(formula: Callable[..., ScaledRope], rope: Rope, **options: Any) -> ScaledRope:
    try:
        return formula(rope, **options)
    except UsageError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise UsageError(
            f"factor = {rope.factor:g} with {formula.__name__} and {options} overflows ({error})",
            expected="frequencies that are positive and finite",
            fix="use a smaller factor, or other options",
        ) from error


def _chosen(
    kind: str, table: Mapping[str, MethodEntry], name: str, options: Mapping[str, Any] | None
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of an entry, and its options: those given, checked, and defaults for the others."""
    require_known(name, table, f"unknown {kind}")
    module, _, made = table[name].home.rpartition(".")
    formula = getattr(importlib.import_module(f"{__name__}.{module}"), made)
    return formula, dict(checked(options_of(formula), options or {}, source=f"the {kind} {name}"))
