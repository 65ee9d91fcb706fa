"""Whether a model has the weights that its files mean: all of them, each in its place, numbers, with their scales.

transformers leaves out much without an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import decoder_of, unwrap
from lengthwise.checkpoints.position_limits import RECORD, ropes
from lengthwise.checkpoints.resolve import ResolvedModel
from lengthwise.checkpoints.rope_check import alike_in_16_bits, plain_ways
from lengthwise.checkpoints.weight_files import NUMBERS, PLAIN, kinds_in, shards_of, tensors_in, weight_files
from lengthwise.errors import MissingError, UsageError, shown
from lengthwise.machine import is_split

_SCALE = re.compile("scale|absmax|SCB", re.IGNORECASE)
_WITHOUT_EFFECT = {"bias", "weights", "k_scale", "v_scale"}
"""Masks and sinusoids that older versions saved, and scales of caches in 8 bits: of modules without such a weight."""
_LAYER = re.compile(r"\blayers\.(\d+)\.(.+)")
_COMPUTED = {
    "inv_freq", "masked_bias", "causal_mask", "position_ids", "token_type_ids", "_float_tensor", "_extra_state",
}  # fmt: skip
"""Buffers that older versions saved, and that the code of a model makes itself."""


def stored_quantization(config: Any) -> Any:
    """How the weights of a checkpoint are quantized: its `quantization_config`, or None."""
    own = getattr(config, "quantization_config", None)
    return own or getattr(config.get_text_config(), "quantization_config", None)


def check_files(resolved: ResolvedModel, quantization: Any) -> None:
    """Raise UsageError if transformers would choose between the files of a checkpoint: others choose otherwise.

    Or if config.json claims a `quantization`, and no tensor of the files has fewer than 16 bits.
    """
    if resolved.file("adapter_config.json") is not None:
        raise UsageError(
            f"{resolved.name} holds a model and an adapter of PEFT, which transformers would add to it",
            expected="a model alone, or a model and an adapter in a folder of its own",
            fix="remove adapter_config.json if it is merged; else name the base model, and this as its adapter",
        )
    shards = shards_of(resolved, "model.safetensors")
    # An index of shards that are gone is no second model: transformers leaves it when it saves fewer.
    if (
        shards
        and "model.safetensors" not in shards
        and resolved.file("model.safetensors") is not None
        and any(map(resolved.file, shards))
    ):
        raise UsageError(
            f"{resolved.name} has its weights twice: in model.safetensors, and in the files that its index names",
            fix="remove those that are not meant",
        )
    # Some are quantized while they are loaded (BitNet), and some only simulate fewer bits.
    claims = vars(quantization) if hasattr(quantization, "__dict__") else quantization or {}
    if not claims or claims.get("quantization_mode") == "online" or claims.get("format") == "dense":
        return
    files = weight_files(resolved)
    if files and all(map(_is_whole, files)):
        raise UsageError(
            f"config.json of {resolved.name} claims quantized weights, and its files have 16 bits or more",
            expected="quantized weights, or no quantization_config",
            fix="remove quantization_config from config.json; --quantize nf4 or int8 quantizes whole weights",
        )


def _is_whole(file: Path) -> bool:
    """Whether no tensor of a file has fewer than 16 bits; a damaged one is named where the weights are loaded."""
    # Of pickles torch raises what it likes.
    with suppress(Exception):
        return all(kind in PLAIN for _, kind in kinds_in(file))
    return False


def check_weights(model: nn.Module, resolved: ResolvedModel, info: Mapping[str, Any]) -> None:
    """Raise unless each tensor of the model came from the files, and each tensor of the files has its place.

    `info` is what `from_pretrained` says of the loading. Parts of which the model has none, as a vision tower or a
    reward head, may be there.

    Raises:
        MissingError: the files lack tensors, or have them in another shape.
        UsageError: they have tensors without a place in the layers or the head, two heads, or other weights than the
            quantization that they claim.
    """
    stored = [name for file in weight_files(resolved) for name, _ in kinds_in(file)]
    without_place = _without_place(unwrap(model), info["unexpected_keys"], stored)
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


def _without_place(base: Any, names: Iterable[str], stored: Iterable[str]) -> list[str]:
    """The tensors of the files that belong to a layer or to the head, and that no module takes.

    `names` are those that transformers says it left out; of some that are `stored` it says nothing.
    """
    modules, text = dict(base.named_modules()), base.config.get_text_config()
    inside = {id(module): name for name, module in modules.items()}
    decoder, head = inside[id(decoder_of(base))], inside.get(id(base.get_output_embeddings()))
    extension, found = None, list[str]()
    if getattr(text, RECORD, None) is not None:
        # Few models are extended.
        from lengthwise.checkpoints.extension import read_extension

        extension = read_extension(text)
    layers, parts = text.num_hidden_layers, dict[int, set[str]]()
    ignored, left_out = _ignored(base), {*names}
    for name in stored:
        if place := _LAYER.search(name):
            parts.setdefault(int(place[1]), set()).add(place[2])
            if int(place[1]) >= layers and ignored.search(name):
                left_out.add(name)
    # Layers that predict further tokens stand behind the others, and have parts of their own.
    usual = set[str]().union(*(each for layer, each in parts.items() if layer < layers))
    further = range(layers, layers + (getattr(text, "num_nextn_predict_layers", None) or 0))
    beside = {str(layer) for layer in further if parts.get(layer, set()) - usual}
    for name in sorted(left_out):
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


def is_4bit(module: nn.Module) -> bool:
    """Whether it is a linear layer with 4-bit weights. bitsandbytes is not imported for it."""
    return type(module).__name__ == "Linear4bit"


def check_stored(model: Any, resolved: ResolvedModel, config: Any, left_out: Iterable[str]) -> None:
    """Raise UsageError for weights in 8 bits, or whole numbers, that have no scale beside them, or none that is read.

    transformers casts them: without their scales they are other weights. `config` is as config.json has it, and
    no module takes `left_out`. Also for a tensor in two files, and for rope frequencies that older versions read.
    """
    quantized = stored_quantization(config) is not None
    is_float = {name: tensor.is_floating_point() for name, tensor in model.state_dict().items()}
    base, left_out = unwrap(model), {*left_out}
    stored = [each for file in weight_files(resolved) for each in kinds_in(file)]
    kinds = dict(stored)
    if twice := [name for name, count in Counter(name for name, _ in stored).items() if count > 1]:
        raise UsageError(
            f"the files of {resolved.name} have {twice[0]} more than once",
            expected="each tensor in one file",
            fix="download the model again, into an empty folder",
        )
    _check_frequencies(base, resolved)
    scaled = {name.rpartition(".")[0] for name in kinds if _SCALE.search(name)} if quantized else set[str]()
    others = left_out | {name for name, floats in is_float.items() if not floats}
    ends = {tuple(name.split(".")[-2:]) for name in others}
    ignored, prefix = _ignored(base), base.base_model_prefix
    for name, kind in kinds.items():
        owner, _, leaf = name.rpartition(".")
        # Scales of 4 bits are beneath the weight.
        if kind in PLAIN or not scaled.isdisjoint((name, owner)):
            continue
        places = {name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")}
        if made := [is_float[place] for place in places if place in is_float]:
            # Whole numbers may be quantized again.
            sound = not any(made) and (quantized or leaf != "weight")
        else:
            # transformers leaves it out or renames it. A counter or a mask is no weight.
            other = leaf in _COMPUTED or (leaf != "weight" and tuple(name.split(".")[-2:]) in ends)
            sound = other or bool(places & left_out or ignored.search(name))
        if not sound:
            lacks = "scales of it" if quantized else "quantization_config"
            raise UsageError(
                f"{resolved.name} has {name} in {kind}, and no {lacks}",
                expected="weights in 16 or 32 bits, or quantization_config and the scales beside them",
                fix="download the model again, whole",
            )


def _ignored(base: Any) -> re.Pattern[str]:
    """The tensors of files of which transformers does not say that it left them out."""
    return re.compile("|".join(base._keys_to_ignore_on_load_unexpected or ()) or "(?!)")


def _check_frequencies(base: Any, resolved: ResolvedModel) -> None:
    made = [each for name, each in base.named_buffers() if name.endswith("inv_freq")]
    if not made:
        return
    decoder = next(name for name, module in base.named_modules() if module is decoder_of(base))
    # Of the text alone, under any path that it has had: towers have frequencies of their own.
    path = {*decoder.split("."), "model", "language_model", "text_model", "transformer"}
    named = re.compile(rf"(({'|'.join(path)})\.)*(\w+\.\d+\.\w+\.)?\w*rotary\w*\.inv_freq")
    ways = ropes(base.config.get_text_config()).values()
    thetas = [float(rope["rope_theta"]) for rope in ways if rope.get("rope_theta")]
    for name, own in (each for file in weight_files(resolved) for each in tensors_in(file, named)):
        # Linear scaling divided positions, and kept these.
        plain = [each for theta in thetas for each in plain_ways(theta, len(own))]
        known = (each.detach().cpu() for each in [*made, *plain])
        if not any(own.shape == each.shape and alike_in_16_bits(own, each) for each in known):
            raise UsageError(
                f"the files of {resolved.name} have frequencies that its config.json does not give: {name}",
                expected="one of both: older transformers read the files, and newer ones config.json",
                fix="write the rope_parameters that the model was trained with, and remove the tensor",
            )


def check_finite(model: nn.Module, name: str, *, besides: Collection[int] = ()) -> None:
    """Raise UsageError for weights that are NaN or infinite; `besides` has the `id` of those that are known."""
    weight: Any
    # The buffers that files keep, as the bias by which experts are chosen, are among them.
    for place, weight in model.state_dict(keep_vars=True).items():
        # Of a tensor that is split over processes, each looks at its own part.
        values = weight.to_local() if hasattr(weight, "to_local") else weight
        if (
            not isinstance(values, Tensor)
            or id(weight) in besides
            or values.is_meta
            or values.dtype not in NUMBERS
            or not values.numel()
        ):
            continue
        if not all(bool(end.isfinite()) for end in values.detach().aminmax()):
            raise UsageError(
                f"{name} has weights that are NaN or infinite: {place}",
                expected="finite weights",
                fix="save or download it again; --dtype bfloat16 or float32 where float16 is too narrow",
            )
