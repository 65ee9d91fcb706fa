"""Hashes by which a resumed run knows its model again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lengthwise.machine import whole_tensor

SAMPLED = 1024
"""Elements of each tensor that a fingerprint reads."""


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
        # FSDP2 gathers for a forward pass, and here there is none.
        whole = whole_tensor(model, name, tensor).detach()
        flat = (whole.full_tensor() if isinstance(whole, DTensor) else whole).reshape(-1)
        if len(flat) > SAMPLED:
            flat = flat[torch.linspace(0, len(flat) - 1, SAMPLED, dtype=torch.float64).long().to(flat.device)]
        digest.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def config_fingerprint(config: Any) -> str:
    """The hash of a configuration, without the folder that it was read from and the version that wrote it."""
    plain = config.to_dict()
    for key in ("_name_or_path", "transformers_version", "_attn_implementation_autoset"):
        plain.pop(key, None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:32]
