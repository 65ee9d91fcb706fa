"""This machine: its versions, which results record, its devices and their speed, the processes of torchrun on it;
where on it the parts of a model are.

Importing it loads no torch.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import MissingError, UsageError, require_kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

logger = logging.getLogger(__name__)

EMULATED = 4
"""How many times as long as float32 a dtype must take to be warned of."""
_SLOW = 5e9
"""Operations a second, below which a product of 1,024 rows takes half a second."""
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PACKAGES = ("lengthwise", "torch", "transformers", "tokenizers", "numpy")
_OPTIONAL = ("peft", "accelerate", "datasets", "lm_eval", "bitsandbytes", "triton")


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that affect results; None for a missing one, but optional ones are left out."""
    installed = importlib.metadata.distributions
    found = {name: next((one.version for one in installed(name=name)), None) for name in PACKAGES + _OPTIONAL}
    return {name: version for name, version in found.items() if version is not None or name in PACKAGES}


def environment() -> dict[str, Any]:
    """What `env.json` holds: packages, the code's commit, Python, machine, command line, time of start (UTC).

    Threads and devices are those of torch, if it is loaded.
    """
    torch = sys.modules.get("torch")
    return {
        "packages": package_versions(),
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_count": os.cpu_count(),
        "threads": torch and torch.get_num_threads(),
        "devices": torch and [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def processor() -> str:
    """The name of the processor, or else its architecture."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text(encoding="utf-8")) if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit that last changed this code, with a `+` if it was changed since; None outside of a git checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, changes = (
            subprocess.run(
                [*git, *words, "--", "."], capture_output=True, encoding="utf-8", check=True
            ).stdout
            for words in (("log", "-1", "--format=%H"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + "+" * bool(changes) if commit else None


def usable_device(name: str | torch.device) -> str:
    """A device that this machine can compute on; "auto" is CUDA if there is one, each process of torchrun its own.

    UsageError if the name is not that of a device to compute on, MissingError if this machine has no such device.
    """
    import torch

    if isinstance(name, torch.device):
        name = str(name)
    # torch takes a number for a GPU, where it was built for one.
    require_kind("device", name, str, "auto, cpu, cuda or cuda:0")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and (rank := os.environ.get("LOCAL_RANK")) is not None:
        name = f"cuda:{rank}"
    here = torch.accelerator.current_accelerator()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name[:80]!r}", expected="auto, cpu, cuda or cuda:0") from error
    if device.type not in ("cpu", "cuda") and (here is None or device.type != here.type):
        raise UsageError(f"device is {name!r}", expected="auto, cpu, cuda or cuda:0")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= count:
        raise MissingError(f"torch sees {count} {device.type} devices, so not {name!r}", fix="use cpu")
    return name


def product_rate(device: str, dtype: str, *, one_row: bool = False, size: int | None = None) -> float:
    """Floating-point operations per second of a matrix product, measured now (best of three).

    Of two square matrices; or of `one_row` with one that no cache holds, as when a model reads a single token.
    """
    import torch

    if size is None and device == "cpu" and not one_row:
        # An emulated dtype takes seconds for a large product, and a small one tells its rate as well.
        rate = product_rate(device, dtype, size=256)
        return rate if rate < _SLOW else product_rate(device, dtype, size=1024)
    size = size or (4096 if device == "cpu" else 8192)
    rows = 1 if one_row else size
    a, b = (torch.ones(n, size, dtype=getattr(torch, dtype), device=device) for n in (rows, size))
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        # Reading one number waits for an accelerator to finish.
        (a @ b)[0, 0].item()
        best = min(best, time.perf_counter() - started)
    return 2 * rows * size**2 / best


def warn_of_emulation(dtype: str, name: str, *, fix: str) -> None:
    """Warn if this processor has no instructions for a half precision in which `name` is read or trained on it."""
    if dtype in ("bfloat16", "float16") and (times := slowdown(dtype)) > EMULATED:
        logger.warning(
            "%s is in %s, in which this processor takes %.0f times as long as in float32: use %s",
            name,
            dtype,
            times,
            fix,
        )


def slowdown(dtype: str) -> float:
    """How many times as long as in float32 a small matrix product takes on the processor, measured now."""
    emulated, usual = (product_rate("cpu", one, size=256) for one in (dtype, "float32"))
    return usual / emulated


def process_count() -> int:
    """How many processes work together: torchrun's number, 1 without it; UsageError for a part of its variables."""
    return _rank_and_count()[1]


def process_rank() -> int:
    """The number of this process among them, from 0; UsageError as `process_count`."""
    return _rank_and_count()[0]


def _rank_and_count() -> tuple[int, int]:
    found = {name: os.environ.get(name) for name in _OF_TORCHRUN}
    rank, count = found["RANK"] or "0", found["WORLD_SIZE"] or "1"
    if (rank, count) == ("0", "1"):
        return 0, 1
    missing = [name for name, value in found.items() if not value]
    if missing or not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
        given = ", ".join(f"{name} is {found[name]}" for name in ("RANK", "WORLD_SIZE") if found[name])
        raise UsageError(
            f"{given} in the environment" + (f", and {', '.join(missing)} missing" if missing else ""),
            expected="what torchrun sets for each process: a RANK below WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
            fix="torchrun --nproc-per-node N -m lengthwise ..., or unset RANK and WORLD_SIZE for one process",
        )
    return int(rank), int(count)


def is_main_process() -> bool:
    """Whether this process writes the run folder and reports: torchrun's rank 0, or the only one."""
    return process_rank() == 0


def whole(tensor: Tensor) -> Tensor:
    """All of `tensor` on every rank; one that is whole already comes back as it is.

    A DTensor is gathered: a collective, which all ranks have to call. Its gradient is the mean over the ranks of
    its mesh, as FSDP2 and DDP reduce gradients, and arrives on the shards. (`DTensor.full_tensor()` by itself
    takes the gradients of all ranks for equal, which is wrong as soon as ranks see different data.)
    """
    # Importing it takes long, and a DTensor can only be there where it was imported.
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return tensor
    view: Any = tensor.view_as(tensor)
    mesh = view.device_mesh
    if view.requires_grad:
        # Not Partial("avg"), which gloo does not have; and here the gradient is cut up already.
        view.register_hook(lambda gradient: gradient / mesh.size())
    return view.full_tensor(grad_placements=[distributed.Partial()] * mesh.ndim)


def device_of(module: nn.Module) -> torch.device:
    """Where a module computes: accelerate's execution device if it is hooked, else the device of its weight."""
    import torch

    hook: Any = getattr(module, "_hf_hook", None)
    for each in getattr(hook, "hooks", [hook]):
        if (device := getattr(each, "execution_device", None)) is not None:
            return torch.device(device)
    assert isinstance(module.weight, torch.Tensor)
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
