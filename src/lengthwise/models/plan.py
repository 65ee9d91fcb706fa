"""What a run would take, before any weight is loaded: parameters, memory and time (`--dry-run`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lengthwise.errors import UsageError, reason
from lengthwise.machine import usable_device
from lengthwise.models.embedded import EMBEDDED, made_folder

_UNKNOWN = "not known before the model has been made (at its first use)"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run takes of a machine; None where that is not known yet."""

    parameters: int | None = None
    trainable_parameters: int | None = None
    device: str | None = None
    dtype: str | None = None
    memory_bytes: int | None = None
    memory_basis: str = _UNKNOWN
    seconds_at_least: float | None = None
    seconds_basis: str = _UNKNOWN

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what only some runs have is left out where it is None."""
        optional = ("trainable_parameters", "device", "dtype")
        return {
            name: value for name, value in asdict(self).items() if value is not None or name not in optional
        }


SERVED_COST = Cost(memory_basis="the server's", seconds_basis="the server's, and that of as many requests")
"""What is known of a model that a server runs."""


def unknown_cost(model: str) -> Cost | None:
    """What is known of a model that is made or converted at its first use; None if its configuration is there."""
    if model in EMBEDDED and made_folder(model) is None:
        return Cost(parameters=EMBEDDED[model].parameters)
    return Cost() if model.lower().endswith(".gguf") else None


def model_skeleton(config: Any) -> Any:
    """The causal LM of a configuration, on the meta device: shapes without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from lengthwise.models.quiet import quiet_transformers

    try:
        with quiet_transformers(), torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    # An impossible value in config.json leads to errors of many types.
    except Exception as error:
        name = config.name_or_path or f"the {config.model_type} model"
        raise UsageError(f"{name} cannot be built from its config.json: {reason(error)}") from error


def reading_cost(
    config: Any,
    *,
    tokens: int,
    at_once: int,
    longest: int,
    name: str,
    dtype: str = "auto",
    device: str = "auto",
    quantize: str | None = None,
) -> Cost:
    """The cost of reading `tokens` tokens in all, `at_once` in one forward pass, without gradients.

    Args:
        config: of the model (`read_config`).
        tokens: in all passes.
        at_once: in the largest pass, all rows of the batch.
        longest: in the longest row.
        name: the model's, for errors.
        dtype, device: as `load`.
        quantize: "nf4" or "int8" keeps the linear layers in 4 or 8 bits.

    Raises:
        UsageError, MissingError: the device is not there, or the model has no positions for `longest` tokens.
    """
    import torch

    from lengthwise.models.position_limits import check_positions_fit, max_positions
    from lengthwise.models.quantization import layers_to_quantize, quantized_bytes

    model = model_skeleton(config)
    check_positions_fit(max_positions(model), longest, name=name)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if dtype == "auto":
        dtype = str(model.config.dtype or torch.float32).removeprefix("torch.")
    device = usable_device(device)
    itemsize = getattr(torch, dtype).itemsize
    memory = reading_bytes(config, parameters, at_once=at_once, itemsize=itemsize)
    if quantize is not None:
        layers = layers_to_quantize(model)
        memory += quantized_bytes(layers, quantize) - itemsize * sum(layer.weight.numel() for layer in layers)
    seconds, basis = seconds_at_least(2 * parameters * tokens, device=device, dtype=dtype)
    return Cost(
        parameters=parameters,
        device=device,
        dtype=dtype,
        memory_bytes=memory,
        memory_basis="weights exactly; activations of one layer by rule of thumb; a few chunks of logits; "
        "without the libraries' own few hundred MB",
        seconds_at_least=seconds,
        seconds_basis=basis,
    )


def reading_bytes(config: Any, parameters: int, *, at_once: int, itemsize: int) -> int:
    """Bytes of the weights, of one layer's activations for `at_once` tokens, and of a few chunks of logits."""
    from lengthwise.models.logits import CHUNK_BYTES

    text = config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    # Without gradients one layer lives at a time: about six tensors of the width, two of the MLP's inside.
    values = parameters + at_once * (6 * text.hidden_size + 2 * inner)
    return values * itemsize + 4 * CHUNK_BYTES


def seconds_at_least(operations: float, *, device: str, dtype: str) -> tuple[float, str]:
    """The time of the matrix products alone, and a sentence on where it comes from.

    Args:
        operations: floating-point operations of all matrix products.
        device: a torch device.
        dtype: of the products.
    """
    from lengthwise.machine import product_rate

    rate = product_rate(device, dtype)
    return round(operations / rate, 1), (
        f"{operations:.2g} floating-point operations of matrix products at {rate:.2g} a second, measured just now "
        "with one product; attention and all else come on top, so expect up to three times it"
    )
