"""Models whose weights lie on several devices: accelerate's hooks (`device_map`), tensor parallelism (`tp_plan`)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.processes import process_count


def check_placement(device: str, device_map: Any, tp_plan: str | None) -> None:
    """Raise UsageError unless at most one of the three says where the weights go."""
    if tp_plan is not None and process_count() < 2:
        raise UsageError(
            "tp_plan spreads each layer over processes, and this is one",
            expected="torchrun --nproc-per-node N -m lengthwise ..., one process for each device",
        )
    given = [
        f"{name} {value!r}"
        for name, value in (("device_map", device_map), ("tp_plan", tp_plan))
        if value is not None
    ]
    if given and device != "auto":
        given.append(f"device {device!r}")
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} both place the weights", expected="one of them")


def check_splits(config: Any) -> None:
    """Raise UsageError unless transformers splits this model's layers over as many processes as there are.

    Args:
        config: of the text model.
    """
    processes = process_count()
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
    hooks = getattr(hook, "hooks", [hook])
    for each in hooks:
        device = getattr(each, "execution_device", None)
        if device is not None:
            return torch.device(device)
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.device


def resident(linear: nn.Linear) -> nn.Linear:
    """The layer with its whole weight on the device where it computes.

    A copy if the weight is offloaded or split over processes, so that it is not fetched again for every few rows.
    """
    weight = linear.weight
    if weight.is_meta:
        from accelerate.utils import align_module_device

        with align_module_device(linear):
            return _copied(linear, linear.weight, linear.bias)
    if _split(weight):
        bias = linear.bias
        return _copied(linear, _whole(weight), None if bias is None else _whole(bias))
    return linear


def whole_tensor(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of the model's `state_dict`, fetched where it is offloaded or split over processes."""
    if tensor.is_meta:
        from accelerate.utils import align_module_device

        owner, _, last = name.rpartition(".")
        module = model.get_submodule(owner)
        with align_module_device(module):
            return getattr(module, last).detach().clone()
    return _whole(tensor)


def _whole(tensor: Any) -> Tensor:
    return tensor.full_tensor() if _split(tensor) else tensor


def _split(tensor: Any) -> bool:
    """Whether processes hold parts of it, by a tensor parallel plan (FSDP2 gathers what it needs itself)."""
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is not None and "tp" in (mesh.mesh_dim_names or ())


def _copied(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> nn.Linear:
    whole = nn.Linear(linear.in_features, linear.out_features, bias=bias is not None, device="meta")
    whole.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        whole.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return whole
