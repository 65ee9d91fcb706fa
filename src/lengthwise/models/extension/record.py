"""What was done to a model's positions, as it stands in its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from lengthwise.config import validate
from lengthwise.positions import rope_method
from lengthwise.positions.rope.method import RopeMethod

RECORD = "lengthwise_extension"
"""Name of the record: a key of config.json; beside an adapter, which has no config.json, a file of this stem."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One extension of one model; plain values, so that it goes into JSON and comes back equal."""

    method: str
    """A name of ROPE_METHODS."""
    factor: float
    """s: the context becomes this many times longer."""
    original_length: int
    """L0: tokens of context that the model was trained for."""
    theta: float
    """The model's own base."""
    head_dim: int
    """Rotated dimensions of each head."""
    options: dict[str, Any] = field(default_factory=dict)
    """The method's options, all of them."""

    @property
    def extended_length(self) -> int:
        """s * L0 in whole tokens."""
        return int(self.factor * self.original_length)

    @property
    def rope_method(self) -> RopeMethod:
        """The method with its options."""
        return rope_method(self.method, self.options)

    @property
    def custom_rope_type(self) -> str:
        """The rope type in a configuration that transformers alone cannot express."""
        return f"lengthwise_{self.method}"

    def inverse_frequencies(self, length: int | None = None) -> tuple[Tensor, float]:
        """`RopeMethod.inverse_frequencies` of this model."""
        return self.rope_method.inverse_frequencies(*self._rope, length=length)

    def to_hf_config(self) -> dict[str, Any] | None:
        """`RopeMethod.to_hf_config` of this model."""
        return self.rope_method.to_hf_config(*self._rope)

    def to_dict(self) -> dict[str, Any]:
        """The record, as `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, source: str) -> Extension:
        """The extension that `to_dict` wrote.

        Raises:
            UsageError: something is missing, unknown or of the wrong type.
        """
        return validate(cls, value, source=source)

    @property
    def _rope(self) -> tuple[float, int, int, float]:
        return self.theta, self.head_dim, self.original_length, self.factor


def read_extension(config: Any) -> Extension | None:
    """The extension that a model's configuration records; None if it was not extended by lengthwise."""
    value = getattr(config.get_text_config(), RECORD, None)
    return None if value is None else Extension.from_dict(value, source=f"{RECORD} in the configuration")
