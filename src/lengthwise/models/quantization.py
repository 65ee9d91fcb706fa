"""Linear layers in 4 bits (NF4 of QLoRA, Dettmers et al. 2023) or 8 (LLM.int8): bitsandbytes, on CPUs as well."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import MissingError, UsageError


def quantization_config(method: str, compute_dtype: torch.dtype, *, double: bool = True) -> Any:
    """The `quantization_config` with which transformers loads linear layers (not the head) in 4 or 8 bits.

    Args:
        method: "nf4" or "int8" (LLM.int8).
        compute_dtype: of the matrix products of nf4; weights are expanded to it.
        double: quantise the scales of the blocks of nf4 as well.

    Raises:
        MissingError: bitsandbytes is not installed.
        UsageError: another method.
    """
    if method not in ("nf4", "int8"):
        raise UsageError(f"unknown quantization {method!r}", expected="nf4 or int8")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingError(
            "quantised weights need bitsandbytes, which is not installed",
            fix="pip install 'lengthwise[qlora]'",
        )
    from transformers import BitsAndBytesConfig

    if method == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def layers_to_quantize(model: Any) -> list[nn.Linear]:
    """The layers of an unquantised model whose weights would be kept in 4 or 8 bits: the linear ones but the head."""
    head = set(model.get_output_embeddings().modules())
    return [m for m in model.modules() if isinstance(m, nn.Linear) and m not in head]


def quantized_bytes(layers: Iterable[nn.Linear], method: str, *, double: bool = True) -> int:
    """Bytes of the weights of these layers with their scales.

    nf4: half a byte a weight, and for each 64 of them a scale of 4 bytes; with `double` of 1 byte, and 4 for each 256
    scales. int8: a byte a weight, and 4 for each row.
    """
    found = 0.0
    for layer in layers:
        weights = layer.in_features * layer.out_features
        if method == "nf4":
            found += weights * (1 / 2 + ((1 + 4 / 256) if double else 4) / 64)
        else:
            found += weights + 4 * layer.out_features
    return round(found)


def keep_layout(model: nn.Module) -> None:
    """Keep the layout of the 4-bit weights on a CPU.

    On processors with AVX512-BF16, bitsandbytes repacks them in the first forward pass in evaluation mode. The
    product is then faster, rounds differently and has no gradient, also in later training.
    """
    for _, layer in quantized_layers(model):
        layer.support_avx512bf16_for_cpu = False


def quantized_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """Name and module of every linear layer with 4-bit weights."""
    return [(name, m) for name, m in model.named_modules() if type(m).__name__ == "Linear4bit"]


@torch.no_grad()
def expand_into(target: nn.Module, quantized: nn.Module) -> None:
    """Copy the weights of `quantized` into `target`, the same model, with 4-bit weights dequantised to float32.

    A model that computes in bfloat16 rounds them again in every product.
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
