"""Models whose weights lie on several devices: accelerate's hooks (`device_map`), tensor parallelism (`tp_plan`)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.processes import process_count


def check_splits(config: Any) -> None:
    """Raise UsageError unless transformers splits the layers of this text model over the processes of torchrun."""
    processes = process_count()
    if processes < 2:
        raise UsageError(
            "tp_plan spreads each layer over processes, and this is one",
            expected="torchrun --nproc-per-node N -m lengthwise ..., one process for each device",
        )
    plan = getattr(config, "base_model_tp_plan", None)
    if not plan:
        raise UsageError(
            f"transformers has no tensor parallel plan for {config.model_type}",
            fix="--device-map auto, or one process",
        )
    queries = config.num_attention_heads
    keys = getattr(config, "num_key_value_heads", None) or queries
    split = {name.rpartition(".")[2] for name, way in plan.items() if way == "colwise"}
    heads = math.gcd(*([queries] if "q_proj" in split else []), *([keys] if "k_proj" in split else []))
    if heads % processes:
        works = ", ".join(str(n) for n in range(2, heads + 1) if heads % n == 0) or "none but one"
        raise UsageError(
            f"{processes} processes cannot share {queries} heads of queries and {keys} of keys",
            expected=f"a number of processes that divides both: {works}",
        )


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes: accelerate's execution device if it is hooked, else the device of its weight."""
    hook: Any = getattr(module, "_hf_hook", None)
    for each in getattr(hook, "hooks", [hook]):
        if (device := getattr(each, "execution_device", None)) is not None:
            return torch.device(device)
    assert isinstance(module.weight, Tensor)
    return module.weight.device


def resident(linear: nn.Linear) -> nn.Linear:
    """The layer with its whole weight on the device where it computes.

    A copy if the weight is offloaded or split over processes, so that it is not fetched again for every few rows.
    """
    if not linear.weight.is_meta and not _split(linear.weight):
        return linear
    whole = nn.Linear(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
    for name, parameter in linear.named_parameters():
        value = whole_tensor(linear, name, parameter).detach().clone()
        setattr(whole, name, nn.Parameter(value, requires_grad=False))
    return whole


def whole_tensor(model: nn.Module, name: str, tensor: Any) -> Tensor:
    """A tensor of the model's `state_dict`, fetched where it is offloaded or split over processes."""
    if tensor.is_meta:
        from accelerate.utils import align_module_device

        owner, _, last = name.rpartition(".")
        module = model.get_submodule(owner)
        with align_module_device(module):
            return getattr(module, last).detach().clone()
    return tensor.full_tensor() if _split(tensor) else tensor


def _split(tensor: Any) -> bool:
    """Whether processes hold parts of it, by a tensor parallel plan (FSDP2 gathers what it needs itself)."""
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is not None and "tp" in (mesh.mesh_dim_names or ())
