"""Whether transformers made a model of all that its files say: it leaves out much without an error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.checkpoints.hidden import decoder_of, unwrap
from lengthwise.checkpoints.position_limits import RECORD
from lengthwise.checkpoints.resolve import ResolvedModel, checkpoint_file
from lengthwise.errors import MissingError, UsageError, shown
from lengthwise.machine import is_split

_WITHOUT_EFFECT = {"bias", "weights", "k_scale", "v_scale"}
"""Masks and sinusoids that older versions saved, and scales of caches in 8 bits: of modules without such a weight."""
_COMPUTED = {
    "inv_freq", "masked_bias", "causal_mask", "position_ids", "token_type_ids", "_float_tensor", "_extra_state",
}  # fmt: skip
"""Buffers that older versions saved, and that the code of a model makes itself."""


def check_files(resolved: ResolvedModel) -> None:
    """Raise UsageError if transformers would choose between the files of a checkpoint: others choose otherwise."""

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


def check_weights(model: nn.Module, resolved: ResolvedModel, info: Mapping[str, Any]) -> None:
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
        # By name: bitsandbytes is not imported for it.
        if type(layer).__name__ == "Linear4bit" and getattr(layer.weight, "quant_state", None) is None:
            raise UsageError(
                f"{resolved.name} says that its weights have 4 bits, and {name} has none of their scales",
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
