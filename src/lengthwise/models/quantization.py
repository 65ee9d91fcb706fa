"""NF4, the 4-bit weights of QLoRA (Dettmers et al. 2023), through bitsandbytes, on CPUs too."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import MissingError


def nf4_config(*, double: bool, compute_dtype: torch.dtype) -> Any:
    """The `quantization_config` with which transformers loads linear layers (not the head) in NF4.

    Args:
        double: quantise the scales of the blocks too.
        compute_dtype: of the products; weights are expanded to it.

    Raises:
        MissingError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingError(
            "4-bit weights need bitsandbytes, which is not installed", fix="pip install 'lengthwise[qlora]'"
        )
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def keep_layout(model: nn.Module) -> None:
    """Keep the 4-bit weights as they are on a CPU.

    bitsandbytes repacks them in the first forward pass in evaluation (where the processor has AVX512-BF16), for a
    faster product that has other rounding and no gradient, and would go on with them in training.
    """
    for _, layer in quantized_layers(model):
        layer.support_avx512bf16_for_cpu = False


def quantized_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """Name and module of every linear layer with 4-bit weights."""
    return [(name, m) for name, m in model.named_modules() if type(m).__name__ == "Linear4bit"]


@torch.no_grad()
def expand_into(target: nn.Module, quantized: nn.Module) -> None:
    """Give `target` the weights of `quantized`, the same model: of 4-bit ones what they stand for, in float32.

    A model that computes in bfloat16 rounds that again, in every product.
    """
    from bitsandbytes.functional import dequantize_4bit

    layers = dict(quantized_layers(quantized))
    for name, parameter in target.named_parameters():
        owner, _, last = name.rpartition(".")
        if owner in layers and last == "weight":
            weight = layers[owner].weight
            state = copy.copy(weight.quant_state)
            state.dtype = torch.float32
            value: Tensor = dequantize_4bit(weight.data, state)
        else:
            value = quantized.get_parameter(name)
        parameter.copy_(value)
