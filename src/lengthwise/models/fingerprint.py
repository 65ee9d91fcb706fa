"""Fingerprints of what a run reads, so that a resumed run refuses other weights under the same name."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.models.placement import whole_tensor

SAMPLED = 1024
"""Elements of each tensor that are read. Smaller tensors are read whole."""


@torch.no_grad()
def weights_fingerprint(model: nn.Module) -> str:
    """A hash of the name, shape, dtype and `SAMPLED` evenly spaced elements of every tensor, adapter included.

    It takes milliseconds at 135M parameters. Training or another checkpoint changes nearly every element, which it
    sees. It does not see a change of elements that are not sampled, such as one flipped bit.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, Tensor):
            continue
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(_sampled(whole_tensor(model, name, tensor)))
    return digest.hexdigest()[:32]


def config_fingerprint(config: Any) -> str:
    """The hash of a configuration, without the folder that it was read from and the version that wrote it."""
    plain = config.to_dict()
    for key in ("_name_or_path", "transformers_version", "_attn_implementation_autoset"):
        plain.pop(key, None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _sampled(tensor: Tensor) -> bytes:
    flat = tensor.detach().reshape(-1)
    if len(flat) > SAMPLED:
        flat = flat[torch.linspace(0, len(flat) - 1, SAMPLED, dtype=torch.float64).long().to(flat.device)]
    return flat.contiguous().cpu().view(torch.uint8).numpy().tobytes()
