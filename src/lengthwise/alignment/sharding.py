"""A head that is cut over ranks as a DTensor: made whole for the objective, its gradient cut up again."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether `tensor` is a DTensor, so that this rank may hold only a part of it."""
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(tensor, distributed.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """All of `tensor` on every rank; one that is whole already comes back as it is.

    A DTensor is gathered: a collective, which all ranks have to call. Its gradient is the mean over the ranks of
    its mesh, as FSDP2 and DDP reduce gradients, and arrives on the shards. (`DTensor.full_tensor()` by itself
    takes the gradients of all ranks for equal, which is wrong as soon as ranks see different data.)
    """
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Partial

    assert isinstance(tensor, DTensor)
    mesh = tensor.device_mesh
    view: Any = tensor.view_as(tensor)
    if view.requires_grad:
        # Not Partial("avg"), which gloo does not have; and here the gradient is cut up already.
        view.register_hook(lambda gradient: gradient / mesh.size())
    return view.full_tensor(grad_placements=[Partial()] * mesh.ndim)
