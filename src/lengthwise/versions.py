"""What older and newer versions of the dependencies do differently, and the packages that only an extra brings.

All differences stand here, each with the version that made it, except two: `checkpoints.hidden` asks a forward pass
what it takes and what it calls its cache (`past_key_values`, from transformers 5.24 on `cache`), and
`subjects.caches` passes a cache of transformers only what its class takes. Importing this loads none of the packages.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from packaging.version import Version

from lengthwise.errors import MissingError

EXTRAS = {
    "peft": ("train", "adapters"),
    "accelerate": ("train", "training, device_map, tp_plan and quantize"),
    "datasets": ("data", "data sets of the hub"),
    "pyarrow": ("data", "Parquet files"),
    "matplotlib": ("figures", "figures and pages"),
    "optimum": ("caches", "caches of optimum-quanto"),
    "pandas": ("data", "tables of pandas"),
}
"""Modules that `pip install lengthwise` does not bring: the extra that does, and what needs them."""


def need(*modules: str) -> None:
    """Call it before an import of modules of an extra; MissingError if one of them is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            extra, purpose = EXTRAS[module]
            raise MissingError(
                f"{purpose} need {module}, which is not installed", fix=f"pip install 'lengthwise[{extra}]'"
            )


def checkpointing() -> str:
    """transformers' word for recomputing activations: as an argument of training, and in `..._enable` of a model.

    5.23 renamed it, and warns of the older word.
    """
    from transformers import PreTrainedModel

    newer, older = "activation_checkpointing", "gradient_checkpointing"
    return newer if hasattr(PreTrainedModel, f"{newer}_enable") else older


def recomputes_hooks(layer: Any) -> bool:
    """Whether the backward pass runs a layer again with the hooks that it has then, not those of the forward pass.

    Before transformers 5.23 activation checkpointing lay around `__call__`, and so around the hooks.
    """
    return layer.training and getattr(layer, "gradient_checkpointing", False) and "__call__" in _own(layer)


def _own(layer: Any) -> set[str]:
    """What the classes between a layer and `torch.nn.Module` define."""
    from torch import nn

    return {name for kind in type(layer).__mro__ if not issubclass(nn.Module, kind) for name in vars(kind)}


def divides_by_micro_batches() -> bool:
    """Whether the Trainer divides a loss like ours by the micro-batches of a step: before transformers 5.19."""
    from transformers import Trainer

    return not hasattr(Trainer, "loss_is_scaled_for_ga")


def shows_the_gradient_norm() -> bool:
    """Whether the Trainer asks `_get_grad_norm` before the optimizer moves: from transformers 5.3 on."""
    from transformers import Trainer

    return hasattr(Trainer, "_get_grad_norm")


def before_each_step(look: Callable[[Any], None]) -> Any:
    """A callback of a Trainer that does not: `look` gets the norm of the gradients, after they are clipped."""
    import torch
    from transformers import TrainerCallback

    class _BeforeEachStep(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            given = [p.grad for p in kwargs["model"].parameters() if p.grad is not None]
            look(torch.nn.utils.get_total_norm(given))

    return _BeforeEachStep()


class _Since(NamedTuple):
    """The first version of a package with which something works, and what can be done without it."""

    package: str
    version: str
    way: str


NEWER = {
    # A saved model with it cannot be loaded before.
    "yarn in the layers of one type alone": _Since("transformers", "5.9", "another method"),
    # The first pass fails before.
    "longrope in the layers of one type alone": _Since("transformers", "5.21", "another method"),
    # 5.17 has a new reader for settings alone. Its old one, for tokenizers, fails on one without BOS, for example.
    "reading GGUF files": _Since("transformers", "5.18", "llama.cpp:FILE.gguf, which llama.cpp reads"),
    # Before, the state of the optimizer is asked for on "cpu:1", which torch has no place for.
    "resuming in several processes without GPUs": _Since("transformers", "5.18", "resume in one process"),
    # Before, it takes no plan by name.
    "tp_plan": _Since("transformers", "5.16", "device_map"),
    # Before, the plugin gets neither the layers to wrap nor the offloading of fsdp_config.
    "FSDP": _Since("transformers", "5.10", "train whole copies of the model"),
    # Before, a checkpoint holds the first process's share of an adapter alone. A resumed run silently starts again in
    # the other processes.
    "FSDP2": _Since("accelerate", "1.15", "train whole copies of the model"),
}
"""What older versions fail at or do wrongly, and what no other call of theirs does rightly."""


def need_newer(what: str) -> None:
    """Call it before something of `NEWER`; MissingError if the installed package is older."""
    since = NEWER[what]
    installed = importlib.metadata.version(since.package)
    if Version(installed) < Version(since.version):
        raise MissingError(
            f"{what} needs {since.package} {since.version} or newer; this is {installed}",
            fix=f"pip install '{since.package}>={since.version}', or {since.way}",
        )


def unpack_quanto() -> None:
    """Give optimum-quanto the unpacking of its 4 and 2 bits on a CPU.

    0.2.7 has it in C++ alone, and compiles it at first use: that takes half a minute and needs a compiler.
    """
    import torch
    from optimum.quanto.library.extensions import get_extension

    def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
        return torch.cat([packed >> shift & 2**bits - 1 for shift in range(0, 8, bits)])

    get_extension("quanto_cpp")._lib = SimpleNamespace(unpack=unpack)
