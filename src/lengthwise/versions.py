"""What older and newer versions of the dependencies do differently, and the packages that only an extra brings.

All differences stand here, each with the version that made it, except two: `checkpoints.hidden` asks a forward pass
what it takes and what it calls its cache (`past_key_values`, from transformers 5.24 on `cache`), and
`subjects.caches` passes a cache of transformers only what its class takes. Importing this loads none of the packages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from packaging.version import Version

from lengthwise.errors import MissingError

EXTRAS = {
    "peft": ("train", "adapters"),
    "accelerate": ("train", "training and device_map"),
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


LAYERED_ROPE = {"yarn": "5.9", "longrope": "5.21"}
"""Ropes that transformers cannot give to one type of layers (Gemma 3) before this version of it.

Before, a saved yarn cannot be loaded, and the first pass with longrope fails.
"""


def need_layered_rope(rope_type: str) -> None:
    """Call it before layers of one type are given this rope; MissingError if this transformers fails on it."""
    import transformers

    since = LAYERED_ROPE.get(rope_type, "0")
    if Version(transformers.__version__) < Version(since):
        raise MissingError(
            f"{rope_type} in the layers of one type alone needs transformers {since} or newer; this is "
            f"{transformers.__version__}",
            fix=f"pip install 'transformers>={since}', or another method",
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


def gguf_as_plain_weights() -> Any:
    """What `from_pretrained` of a GGUF file takes as `quantization_config` to give plain layers, which can be saved.

    MissingError if transformers is older than 5.17. Before, its reader fails on tokenizers without BOS, among others.
    """
    import transformers

    config = getattr(transformers, "GgufConfig", None)
    if config is None:
        raise MissingError(
            f"GGUF files are read with transformers 5.17 or newer; this is {transformers.__version__}",
            fix="pip install 'transformers>=5.17', or llama.cpp:FILE.gguf, which llama.cpp reads",
        )
    return config(dequantize=True)
