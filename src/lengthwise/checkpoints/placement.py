"""Where the parts of a model are: on which device, offloaded, or split over processes."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes: accelerate's execution device if it is hooked, else the device of its weight."""
    hook: Any = getattr(module, "_hf_hook", None)
    for each in getattr(hook, "hooks", [hook]):
        if (device := getattr(each, "execution_device", None)) is not None:
            return torch.device(device)
    assert isinstance(module.weight, Tensor)
    return module.weight.device


def whole_tensor(model: nn.Module, name: str, tensor: Any) -> Tensor:
    """A tensor of the model's `state_dict`, fetched where it is offloaded or split over processes."""
    if tensor.is_meta:
        from accelerate.utils import align_module_device

        owner, _, last = name.rpartition(".")
        module = model.get_submodule(owner)
        with align_module_device(module):
            return getattr(module, last).detach().clone()
    return tensor.full_tensor() if is_split(tensor) else tensor


def is_split(tensor: Any) -> bool:
    """Whether processes hold parts of it, by a tensor parallel plan (FSDP2 gathers what it needs itself)."""
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is not None and "tp" in (mesh.mesh_dim_names or ())


def is_fsdp2(module: nn.Module) -> bool:
    """Whether FSDP2 (`fully_shard`) manages the parameters of this module."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def over_processes(model: nn.Module) -> bool:
    """Whether processes hold parts of its weights, so that all of them have to run it: DTensors, FSDP, ZeRO-3."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    kinds = FSDPModule, FullyShardedDataParallel, DTensor
    return any(
        isinstance(each, kinds) or hasattr(each, "ds_id") for each in (*model.modules(), *model.parameters())
    )
