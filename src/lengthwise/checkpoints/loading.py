"""The weights of a causal LM with its tokenizer, and whether transformers made a model of all that its files say.

It leaves out much without an error. What is asked for beyond the files is in `variants`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import decoder_of, unwrap
from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import (
    ResolvedModel,
    checkpoint_file,
    quiet_transformers,
    read_config,
    read_tokenizer,
    resolve,
    unloadable,
)
from lengthwise.checkpoints.stored_numbers import check_finite, check_stored
from lengthwise.errors import MissingError, UsageError, reason, require_known, shown
from lengthwise.files import named_path
from lengthwise.machine import is_split, slowdown, usable_device
from lengthwise.settings import Dtype

logger = logging.getLogger(__name__)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype) if name != "auto"}

EMULATED = 4
"""How many times as long as float32 a dtype must take for `load` to warn of it."""

_WITHOUT_EFFECT = {"bias", "weights", "k_scale", "v_scale"}
"""Masks and sinusoids that older versions saved, and scales of caches in 8 bits: of modules without such a weight."""
_WHOLE = {"F64", "F32", "F16", "BF16"}
_COMPUTED = {
    "inv_freq", "masked_bias", "causal_mask", "position_ids", "token_type_ids", "_float_tensor", "_extra_state",
}  # fmt: skip
"""Buffers that older versions saved, and that the code of a model makes itself."""


def load_weights(
    name_or_path: str,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    adapter: str | None = None,
    revision: str | None = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
    device_map: Any = None,
    tp_plan: Literal["auto"] | None = None,
) -> tuple[Any, Any, str]:
    """The model in eval mode, its tokenizer, and where it came from; see `lengthwise.load`."""
    require_known(dtype, ["auto", *DTYPES], "unknown dtype")
    torch_dtype = DTYPES.get(dtype, "auto")
    placed = {"device": None if device == "auto" else device, "device_map": device_map, "tp_plan": tp_plan}
    placed = {name: where for name, where in placed.items() if where is not None}
    if len(placed) > 1:
        raise UsageError(f"{shown(placed)} each place the weights", expected="one of them")
    torch_device = torch.device(usable_device(device))
    if adapter is not None:
        named_path(adapter, what="the adapter")
    resolved = resolve(name_or_path, revision=revision)
    config = read_config(resolved)
    with quiet_transformers(bars=not resolved.local_files_only):
        given: dict[str, Any] = {"attn_implementation": attn_implementation, "device_map": device_map}
        if isinstance(quantization, str):
            products = torch_dtype if isinstance(torch_dtype, torch.dtype) else config.dtype or torch.float32
            from lengthwise.checkpoints.variants import quantization_config

            quantization = quantization_config(quantization, products)
        if quantization is not None:
            given |= {"quantization_config": quantization, "device_map": device_map or {"": torch_device}}
        if tp_plan is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            from lengthwise.checkpoints.variants import check_splits

            check_splits(config.get_text_config())
            given |= {"distributed_config": DistributedConfig(tp_plan=tp_plan)}
        model = _load_weights(resolved, config=config, dtype=torch_dtype, **given)
        for layer in model.modules():
            if is_4bit(layer):
                # On processors with AVX512-BF16, bitsandbytes repacks 4-bit weights in the first pass in evaluation
                # mode. The product is then faster, rounds differently and has no gradient, also in later training.
                layer.support_avx512bf16_for_cpu = False
        if getattr(model.config.get_text_config(), RECORD, None) is not None:
            # Few models are extended.
            from lengthwise.checkpoints.extending import restore_extension

            restore_extension(model, resolved)
            check_finite(model, resolved.name)
        tokenizer = read_tokenizer(resolved)
        _check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            from lengthwise.checkpoints.extending import extend_for_adapter
            from lengthwise.checkpoints.variants import add_saved_adapter

            extend_for_adapter(model, adapter)
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    if model.device.type == "cpu":
        _warn_of_emulation(str(model.dtype).removeprefix("torch."), name_or_path)
    model.eval()
    return model, tokenizer, resolved.source


def _warn_of_emulation(dtype: str, name: str) -> None:
    """Warn where the processor has no instructions for half precision, which then takes tens of times as long."""
    if dtype in ("bfloat16", "float16") and (times := slowdown(dtype)) > EMULATED:
        logger.warning(
            "%s is in %s, in which this processor takes %.0f times as long as in float32: use --dtype float32",
            name,
            dtype,
            times,
        )


def is_4bit(module: nn.Module) -> bool:
    """Whether it is a linear layer with 4-bit weights. bitsandbytes is not imported for it."""
    return type(module).__name__ == "Linear4bit"


def _load_weights(resolved: ResolvedModel, config: Any, **arguments: Any) -> Any:
    from transformers import AutoModelForCausalLM

    _check_files(resolved, getattr(arguments["config"], "quantization_config", None))
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location,
            output_loading_info=True,
            # What does not fit is named below: the error of transformers names nothing.
            ignore_mismatched_sizes=True,
            config=config,
            **resolved.arguments,
            **arguments,
        )
    except Exception as error:
        raise unloadable(resolved.name, resolved.location, error) from error
    model, info = loaded
    # First: nothing is equal to NaN.
    check_finite(model, resolved.name)
    _check_weights(model, resolved, info)
    check_stored(model, resolved, config)
    return model


def _check_files(resolved: ResolvedModel, quantization: Any) -> None:
    """Raise UsageError if transformers would choose between the files of a checkpoint: others choose otherwise.

    Or if config.json claims a `quantization`, and no tensor of the files has fewer than 16 bits.
    """

    def has(name: str) -> bool:
        return checkpoint_file(resolved.location, name, **resolved.where) is not None

    if has("adapter_config.json"):
        raise UsageError(
            f"{resolved.name} holds a model and an adapter of PEFT, which transformers would add to it",
            expected="a model alone, or a model and an adapter in a folder of its own",
            fix="remove adapter_config.json if it is merged; else name the base model, and this as its adapter",
        )
    index = checkpoint_file(resolved.location, "model.safetensors.index.json", **resolved.where)
    shards: set[str] = set()
    if index is not None:
        # A damaged index is named where the weights are loaded.
        with suppress(ValueError, AttributeError):
            shards = {*json.loads(index.read_bytes()).get("weight_map", {}).values()}
    # An index of shards that are gone is no second model: transformers leaves it when it saves fewer.
    if (
        shards
        and "model.safetensors" not in shards
        and has("model.safetensors")
        and any(map(has, sorted(shards)))
    ):
        raise UsageError(
            f"{resolved.name} has its weights twice: in model.safetensors, and in the files that its index names",
            fix="remove those that are not meant",
        )
    # Some are quantized while they are loaded (BitNet), and some only simulate fewer bits.
    claims = vars(quantization) if hasattr(quantization, "__dict__") else quantization or {}
    if not claims or claims.get("quantization_mode") == "online" or claims.get("format") == "dense":
        return
    files = (
        checkpoint_file(resolved.location, name, **resolved.where)
        for name in sorted(shards) or ["model.safetensors"]
    )
    if all(file is not None and _is_whole(file) for file in files):
        raise UsageError(
            f"config.json of {resolved.name} claims quantized weights, and its files have 16 bits or more",
            expected="quantized weights, or no quantization_config",
            fix="remove quantization_config from config.json; --quantize nf4 or int8 quantizes whole weights",
        )


def _is_whole(file: Path) -> bool:
    """Whether no tensor has fewer than 16 bits."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            return all(tensors.get_slice(name).get_dtype() in _WHOLE for name in tensors.keys())  # noqa: SIM118
    # It is named where the weights are loaded.
    except (SafetensorError, OSError):
        return False


def _check_weights(model: nn.Module, resolved: ResolvedModel, info: Mapping[str, Any]) -> None:
    """Raise unless each tensor of the model came from the files, and each tensor of the files has its place.

    `info` is what `from_pretrained` says of the loading. Parts of which the model has none, as a vision tower or a
    reward head, may be there.

    Raises:
        MissingError: the files lack tensors, or have them in another shape.
        UsageError: they have tensors without a place in the layers or the head, two heads, or other weights than the
            quantization that they claim.
    """
    without_place = _without_place(unwrap(model), info["unexpected_keys"])
    shapes = [
        f"{name} is {[*has]} in its files and {[*wants]} in the model"
        for name, has, wants in info["mismatched_keys"]
    ]
    missing = sorted(map(str, info["missing_keys"]))
    if missing or shapes:
        lacks = [f"there are no weights for {shown(', '.join(missing))}"] if missing else []
        other = (
            f"; without a place are {shown(', '.join(without_place))}" if missing and without_place else ""
        )
        raise MissingError(
            f"the checkpoint of {resolved.name} does not fit its config.json: "
            f"{'; '.join([*lacks, *shapes[:3]])}{other}",
            expected="every weight of the model (missing ones would be random)",
            fix="download the model again, or save it whole, with its output head",
        )
    if without_place:
        raise UsageError(
            f"the checkpoint of {resolved.name} has tensors that its config.json has no place for: "
            f"{shown(', '.join(without_place))}",
            expected="a configuration with all layers, biases and norms of the weights",
            fix="correct config.json, or remove what is not meant from the files",
        )
    base: Any = unwrap(model)
    head, table = base.get_output_embeddings(), base.get_input_embeddings()
    ties = getattr(base.config, "tie_word_embeddings", False) and base._tied_weights_keys
    tied = ties and hasattr(head, "weight")
    if (
        tied
        and _readable(head.weight)
        and _readable(table.weight)
        and not torch.equal(head.weight, table.weight)
    ):
        raise UsageError(
            f"config.json of {resolved.name} ties the head to the embedding, and its files have a head of their own",
            expected="one of both: programs do not agree on which they use",
            fix="write tie_word_embeddings: false, or remove the head from the files",
        )
    for name, layer in model.named_modules():
        if is_4bit(layer) and getattr(layer.weight, "quant_state", None) is None:
            raise UsageError(
                f"{resolved.name} says that its weights have 4 bits, and {name} has none of their scales",
                expected="every linear layer with its scales",
                fix="remove quantization_config from config.json if the weights are whole",
            )


def _readable(weight: Tensor) -> bool:
    return not weight.is_meta and not is_split(weight)


def _without_place(base: Any, names: Iterable[str]) -> list[str]:
    """The tensors of the files that belong to a layer or to the head, and that no module takes."""
    modules, text = dict(base.named_modules()), base.config.get_text_config()
    inside = {id(module): name for name, module in modules.items()}
    decoder, head = inside[id(decoder_of(base))], inside.get(id(base.get_output_embeddings()))
    extension, found = None, list[str]()
    if getattr(text, RECORD, None) is not None:
        # Few models are extended.
        from lengthwise.checkpoints.extension import read_extension

        extension = read_extension(text)
    layers = text.num_hidden_layers
    # Layers that predict further tokens stand behind the others.
    beside = {str(layers + more) for more in range(getattr(text, "num_nextn_predict_layers", None) or 0)}
    for name in sorted(names):
        path = name if name.split(".")[0] in modules else f"{base.base_model_prefix}.{name}"
        if extension is not None and extension.method == "clex" and ".frequencies." in path:
            continue
        owner, _, leaf = path.rpartition(".")
        if leaf in _COMPUTED:
            continue
        if leaf in _WITHOUT_EFFECT and owner in modules:
            own = {each for each, _ in modules[owner].named_parameters(recurse=False)}
            if "weight" not in own or leaf.endswith("_scale"):
                continue
        while owner not in modules:
            owner = owner.rpartition(".")[0]
        rest = path.removeprefix(f"{owner}.").split(".")
        # Directly in the decoder a table or a norm, but no tower or head of another kind.
        its_own = owner == decoder and name.startswith(f"{decoder}.") and len(rest) == 2
        if rest[0] not in beside and (its_own or owner == head or owner.startswith(f"{decoder}.")):
            found.append(name)
    return found


def _check_vocabulary(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UsageError if plain text can become ids that the model does not have.

    The vocabulary may be larger than the tokenizer's. Special tokens may lie beyond it: some text models come with
    the tokenizer of their multimodal relatives.
    """
    special = {index for index, added in tokenizer.added_tokens_decoder.items() if added.special}
    special.update(tokenizer.all_special_ids)
    largest = max(index for index in tokenizer.get_vocab().values() if index not in special)
    if largest >= vocab_size:
        raise UsageError(
            f"the tokenizer of {name} has ids up to {largest}, the model a vocabulary of {vocab_size}",
            expected="the tokenizer that the model was trained with",
            fix="put the right tokenizer files beside the weights",
        )


def model_skeleton(config: Any) -> Any:
    """The causal LM of a configuration, on the meta device: shapes without weights."""
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers(), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
            # Some older transformers tie weights that have data alone, and a shared table would count twice.
            model.tie_weights()
            return model
    # An impossible value in config.json leads to errors of many types.
    except Exception as error:
        name = config.name_or_path or f"the {config.model_type} model"
        raise UsageError(f"{name} cannot be built from its config.json: {reason(error)}") from error
