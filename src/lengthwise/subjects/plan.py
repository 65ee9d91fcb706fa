"""What a run would take, before any weight is loaded: parameters, memory and time (`--dry-run`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.checkpoints.head import CHUNK_BYTES
from lengthwise.checkpoints.layer_settings import by_layer
from lengthwise.checkpoints.loading import model_skeleton
from lengthwise.checkpoints.position_limits import (
    check_positions_fit,
    max_positions,
    rope_by_input_length,
    trained_length,
)
from lengthwise.checkpoints.resolve import read_config, read_tokenizer, resolve
from lengthwise.checkpoints.stored_weights import stored_quantization
from lengthwise.checkpoints.variants import (
    check_adapter,
    check_attention,
    check_stored_quantization,
    quantization_config,
)
from lengthwise.checkpoints.weight_files import weight_files
from lengthwise.machine import product_rate, usable_device, warn_of_emulation
from lengthwise.settings import Subject, kind_of
from lengthwise.subjects.loaded_model import open_model
from lengthwise.subjects.reading import Want, reading_path

_UNKNOWN = "not known before the model has been made (at its first use)"


UNKNOWN: dict[str, Any] = {
    "parameters": None,
    "memory_bytes": None,
    "memory_basis": _UNKNOWN,
    "seconds_at_least": None,
    "seconds_basis": _UNKNOWN,
}
"""What a run takes of a machine, as a dry run shows it, before it is known."""
_COST_ELSEWHERE = {
    "endpoint": {
        "memory_basis": "the server's",
        "seconds_basis": "the server's, and that of as many requests",
    },
    "llama.cpp": {"memory_basis": "llama.cpp's: the file and its cache", "seconds_basis": "llama.cpp's"},
}
"""What is known of a model whose weights are not loaded here, by its kind."""


def unknown_cost(model: str) -> dict[str, Any] | None:
    """What is known of a model that is made or converted at its first use; None if its configuration is there."""
    if model in EMBEDDED and made_folder(model) is None:
        return UNKNOWN | {"parameters": EMBEDDED[model]["parameters"]}
    return UNKNOWN if model.lower().endswith(".gguf") and kind_of(model) == "weights" else None


def unknown_cost_of(sides: Sequence[Subject]) -> dict[str, Any] | None:
    """`unknown_cost` of the first of several subjects that has one; raises for what no run could load."""
    for side in sides:
        if side.kind == "weights":
            usable_device(side.device)
            if side.attn is not None:
                check_attention(side.attn)
            if side.adapter is not None:
                check_adapter(side.adapter)
            if side.quantize is not None:
                quantization_config(side.quantize, torch.float32)
    return next((cost for side in sides if (cost := unknown_cost(side.model))), None)


def reading_cost(
    subject: Subject, *, tokens: int, at_once: int, longest: int, cached: int = 0, decoded: int = 0
) -> dict[str, Any]:
    """The cost of reading `tokens` tokens in all, without gradients.

    Args:
        subject: the model, and how it is loaded.
        tokens: in all forward passes.
        at_once: in the largest pass, all rows of the batch.
        longest: in the longest row.
        cached: whose keys and values are kept, copies included; those of reading in pieces come on top.
        decoded: how many of the tokens are read one at a time, if the subject reads so.

    Raises:
        UsageError, MissingError: the device is not there, or the model has no positions for `longest` tokens.
    """
    config = read_config(subject.model)
    model = model_skeleton(config)
    check_positions_fit(max_positions(model), longest, name=subject.model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    dtype: str = subject.dtype
    if dtype == "auto":
        dtype = str(model.config.dtype or torch.float32).removeprefix("torch.")
    device = usable_device(subject.device)
    itemsize = getattr(torch, dtype).itemsize
    if not reading_path(subject).in_one_pass:
        cached += at_once
    memory = reading_bytes(config, parameters, at_once=at_once, itemsize=itemsize)
    memory += cache_bytes(config, cached, itemsize=itemsize)
    layers, whole = layers_to_quantize(model), parameters * itemsize
    saved, weights = saved_by_quantization(
        subject.model, config, layers, subject.quantize, whole=whole, itemsize=itemsize
    )
    memory -= saved
    decoded = decoded if reading_path(subject).decode else 0
    seconds, basis = seconds_at_least(
        2 * parameters * (tokens - decoded), device=device, dtype=dtype, fix="--dtype float32"
    )
    if decoded:
        one_by_one = 2 * parameters * decoded / product_rate(device, dtype, one_row=True)
        seconds = round(seconds + one_by_one, 1)
        basis += f"; {one_by_one:.2g} s of it for {decoded:,} passes of one token, at the rate of one row"
    return {
        "parameters": parameters,
        "device": device,
        "dtype": dtype,
        "memory_bytes": memory,
        "memory_basis": f"{weights}; activations of one layer by rule of thumb; a few chunks of logits; "
        f"{'keys and values that are kept; ' if cached else ''}without the libraries' own few hundred MB",
        "seconds_at_least": seconds,
        "seconds_basis": basis,
    }


def cost_of_sides(sides: Sequence[Subject], **read: int) -> dict[str, Any]:
    """The cost of reading the same tokens with one model, or with two that are loaded together; as `reading_cost`.

    What is known of two costs is added; of models whose weights are elsewhere nothing is.
    """
    here = [side for side in sides if side.kind == "weights"]
    local = [reading_cost(side, **read) for side in here]
    if not local:
        return UNKNOWN | _COST_ELSEWHERE[sides[0].kind]
    return local[0] | {
        "memory_bytes": sum(cost["memory_bytes"] for cost in local),
        "seconds_at_least": sum(cost["seconds_at_least"] for cost in local),
        # A side that decodes says more.
        "seconds_basis": local[-1 if reading_path(here[-1]).decode else 0]["seconds_basis"],
    }


def reading_bytes(config: Any, parameters: int, *, at_once: int, itemsize: int) -> int:
    """Bytes of the weights, of one layer's activations for `at_once` tokens, and of a few chunks of logits."""
    text = config.get_text_config()
    inner = max(size or 4 * text.hidden_size for size in by_layer(text, "intermediate_size"))
    # Without gradients one layer lives at a time: about six tensors of the width, two of the MLP's inside.
    values = parameters + at_once * (6 * text.hidden_size + 2 * inner)
    return values * itemsize + 4 * CHUNK_BYTES


def cache_bytes(config: Any, tokens: int, *, itemsize: int) -> int:
    """Bytes of the keys and values of `tokens` tokens: 2 x layers x key heads x head_dim a token.

    As if every layer kept all of them: an upper bound for layers with a sliding window. 0 for a model without heads
    of attention, whose state does not grow.
    """
    text = config.get_text_config()
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    values = sum(
        (keys or heads) * (width or text.hidden_size // heads)
        for heads, keys, width in zip(*(by_layer(text, name) for name in names), strict=True)
        if heads
    )
    return 2 * values * tokens * itemsize


def layers_to_quantize(model: Any) -> list[nn.Linear]:
    """The layers of an unquantised model whose weights would be kept in 4 or 8 bits: the linear ones but the head."""
    head = set(model.get_output_embeddings().modules())
    return [m for m in model.modules() if isinstance(m, nn.Linear) and m not in head]


def saved_by_quantization(
    name: str, config: Any, layers: Iterable[nn.Linear], method: str | None, *, whole: int, itemsize: int
) -> tuple[int, str]:
    """Of `whole` bytes of weights those that quantization saves, and a clause on where it is known from.

    A checkpoint that is quantized already has its files to say it, whatever its method is. UsageError if it is
    quantized otherwise than by `method`.
    """
    if stored_quantization(config) is None:
        saved = 0 if method is None else bytes_saved(layers, method, itemsize=itemsize)
        return saved, "weights exactly"
    if method is not None:
        check_stored_quantization(config, method, name)
    resolved = resolve(name)
    # Of a model of the hub that is not here yet, to look for the files is to fetch them.
    files = weight_files(resolved) if resolved.local_files_only else []
    if not files:
        return 0, "weights as if they were not quantized, which is too many"
    return whole - sum(
        file.stat().st_size for file in files
    ), "weights as their files keep them, if transformers does not unpack them"


def bytes_saved(layers: Iterable[nn.Linear], method: str, *, itemsize: int) -> int:
    """Bytes that quantising these layers saves, of weights of `itemsize` bytes.

    nf4 keeps half a byte a weight, for each 64 of them a scale of 1 byte, and 4 bytes for each 256 scales. int8 keeps
    a byte a weight, and 4 for each row.
    """
    kept = before = 0.0
    for layer in layers:
        weights = layer.in_features * layer.out_features
        before += itemsize * weights
        kept += (
            weights * (1 / 2 + (1 + 4 / 256) / 64) if method == "nf4" else weights + 4 * layer.out_features
        )
    return round(before - kept)


def seconds_at_least(operations: float, *, device: str, dtype: str, fix: str) -> tuple[float, str]:
    """The time of the matrix products alone, and a sentence on where it comes from.

    Warns of a dtype that the processor has to emulate; `fix` is the option that leaves it.
    """
    if device == "cpu":
        warn_of_emulation(dtype, "this plan", fix=fix)
    rate = product_rate(device, dtype)
    return round(operations / rate, 1), (
        f"{operations:.2g} floating-point operations of matrix products at {rate:.2g} a second, measured just now "
        "with one product; attention and all else come on top, so expect up to three times it"
    )


def outline(subject: Subject, *, tokenizer: Any = None) -> Any:
    """A subject without its weights: a `Reader`, and what checks need. An endpoint is opened.

    Raises as `open_model`, for what does not need the weights.
    """
    if subject.kind != "weights":
        return open_model(subject, tokenizer=tokenizer)
    path, resolved = reading_path(subject), resolve(subject.model)
    config = read_config(resolved)
    tokenizer, limit = read_tokenizer(resolved), max_positions(model_skeleton(config))
    return SimpleNamespace(
        name=subject.model,
        path=path,
        tokenizer=tokenizer,
        gives=frozenset(Want),
        ids_of=lambda text: list(tokenizer(text, add_special_tokens=False).input_ids),
        check_ready=lambda tokens: check_positions_fit(limit, tokens, name=subject.model),
        trained_length=trained_length(config),
        rope_by_length=rope_by_input_length(config.get_text_config()),
        max_positions=limit,
    )
