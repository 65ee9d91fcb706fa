"""Tiny Llamas with each kind of rope."""

from typing import Any

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.testing import tiny_llama

L0 = 4096
LENGTH = {"original_max_position_embeddings": L0}
LISTS = {"short_factor": [1.0] * 32, "long_factor": [1.0 + k / 16 for k in range(32)]}
ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, **LENGTH},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTH},
    "longrope": {"factor": 4.0, **LISTS, **LENGTH},
    "proportional": {"partial_rotary_factor": 0.5},
}


def roped(kind: str = "default", /, **changed: Any) -> Any:
    """A tiny Llama with heads of 64, where methods differ as in a real model."""
    rope = {"rope_type": kind, "rope_theta": 10_000.0, **ROPES[kind], **changed}
    with quiet_transformers():
        return tiny_llama(head_dim=64, max_position_embeddings=4 * L0, rope_parameters=rope)
