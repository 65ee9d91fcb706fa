"""What is asked for beyond the files of a model: weights in 4 or 8 bits, layers split over processes, an adapter."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import math
import re
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from lengthwise.checkpoints.damage import unloadable
from lengthwise.checkpoints.layer_settings import by_layer
from lengthwise.checkpoints.resolve import (
    checkpoint_file,
    looks_like_path,
    quiet_transformers,
    resolve_hub,
)
from lengthwise.checkpoints.stored_weights import check_finite, stored_quantization
from lengthwise.checkpoints.weight_files import PLAIN, kinds_in
from lengthwise.errors import MissingError, UsageError, reason, require_known, shown
from lengthwise.files import named_path
from lengthwise.machine import process_count
from lengthwise.versions import need, need_newer

# What torch says of an embedding or a head; PEFT saves those of a vocabulary that was resized.
_OTHER_ROWS = re.compile(
    r"size mismatch for \S*(?:embed|wte|lm_head)\S*: .*?\[(\d+),[^]]*\]\) from checkpoint, .*?\[(\d+),"
)
_COUNTS = {"I64", "I32", "int64", "int32"}
"""Which weights an adapter changes, and how many. What needs a scale has fewer bits."""
# Of vectors that many layers share, and of a prompt's encoder, the files have one or none.
_SHARED = ("vblora_vector_bank", "prompt_encoder", "tinylora_v", "unilora_theta_d")


def check_splits(config: Any) -> None:
    """Raise UsageError unless transformers splits the layers of this text model over the processes of torchrun."""
    need_newer("tp_plan")
    processes = process_count()
    if processes < 2:
        raise UsageError(
            "tp_plan spreads each layer over processes, and this is one",
            expected="torchrun --nproc-per-node N -m lengthwise ..., one process for each device",
        )
    plan = getattr(config, "base_model_tp_plan", None)
    if not plan:
        raise UsageError(
            f"transformers has no tensor parallel plan for {config.model_type}",
            fix="--device-map auto, or one process",
        )
    queries = by_layer(config, "num_attention_heads")
    own = by_layer(config, "num_key_value_heads")
    keys = [number or of for number, of in zip(own, queries, strict=True)]
    split = {name.rpartition(".")[2] for name, way in plan.items() if way == "colwise"}
    heads = math.gcd(*(queries if "q_proj" in split else []), *(keys if "k_proj" in split else []))
    if heads % processes:
        works = ", ".join(str(n) for n in range(2, heads + 1) if heads % n == 0) or "none but one"
        raise UsageError(
            f"{processes} processes cannot share {_numbers(queries)} heads of queries and {_numbers(keys)} of keys",
            expected=f"a number of processes that divides both: {works}",
        )


def _numbers(each: list[int]) -> str:
    return " or ".join(map(str, sorted({*each})))


def quantization_config(method: str, compute_dtype: torch.dtype) -> Any:
    """The `quantization_config` with which transformers loads linear layers (not the head) in 4 or 8 bits.

    "nf4" (QLoRA, Dettmers et al. 2023; its products are in `compute_dtype`) or "int8" (LLM.int8), by bitsandbytes.
    MissingError without bitsandbytes, UsageError for another method.
    """
    if method not in ("nf4", "int8"):
        raise UsageError(f"unknown quantization {method!r}", expected="nf4 or int8")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingError("quantised weights need bitsandbytes", fix="pip install 'lengthwise[qlora]'")
    from transformers import BitsAndBytesConfig

    if method == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def check_stored_quantization(config: Any, asked: Any, name: str) -> None:
    """Raise UsageError if the weights of a checkpoint are quantized already, and otherwise than asked.

    transformers keeps the settings of the checkpoint. `asked` is a method, which leaves the details open, or an
    object of settings. Classes with `get_loading_attributes` may name some of the settings alone.
    """
    if (stored := stored_quantization(config)) is None:
        return
    from transformers.quantizers.auto import AutoHfQuantizer

    wanted = quantization_config(asked, torch.float32) if isinstance(asked, str) else asked
    kept: Any = None
    # It raises for settings of another class, and for some that it does not know.
    with contextlib.suppress(Exception), quiet_transformers():
        kept = AutoHfQuantizer.merge_quantization_configs(copy.deepcopy(stored), wanted)
    if kept is None:
        has = dict(stored).get("quant_method", "by bitsandbytes")
        differ = f"{has}, not {getattr(wanted, 'quant_method', shown(wanted))}"
    elif isinstance(asked, str):
        has, wants = kept.quantization_method(), wanted.quantization_method()
        differ = f"{has}, not {asked}" if has != wants else ""
    else:
        some = hasattr(wanted, "get_loading_attributes")
        usual = inspect.signature(type(wanted)).parameters if some else {}
        differ = ", ".join(
            f"{key.strip('_')} is {vars(kept).get(key)}, not {value}"
            for key, value in vars(wanted).items()
            if value is not None and value != vars(kept).get(key)
            if key not in usual or value != usual[key].default
        )
    if differ:
        raise UsageError(
            f"the weights of {name} are quantized already, and otherwise than asked: {differ}",
            expected="a checkpoint that is not quantized, or its own settings",
            fix="leave the quantization out, or load the model that it was made from",
        )


def check_attention(name: str) -> None:
    """Raise UsageError unless transformers knows this implementation of attention, or it is a kernel of the hub."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    # Paged attention is for requests that a server joins: one text is read without it, as by "sdpa".
    known = ["eager", *(each for each in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in each)]
    if "/" not in name or "|" in name:
        require_known(name, known, "unknown attention")


def check_adapter(name: str) -> None:
    """Raise MissingError unless this adapter of PEFT is a folder of one, or the hub or its local cache has it."""
    folder = named_path(name, what="the adapter")
    if not folder.exists():
        if looks_like_path(name):
            raise MissingError(f"there is no adapter folder {name}", fix="check the path")
        resolve_hub(name, None, what="adapter", file="adapter_config.json")
        return
    missing = [file for file in ("adapter_config.json", "adapter_model.*") if not [*folder.glob(file)]]
    if missing:
        raise MissingError(
            f"the adapter {name} has no {missing[0].replace('*', 'safetensors')}",
            expected="a folder that PEFT's save_pretrained wrote",
            fix="save it again",
        )


def add_saved_adapter(model: Any, adapter: str) -> nn.Module:
    """The model with a saved PEFT adapter, of which `check_adapter` has looked for the files.

    MissingError if a file of it is damaged, or PEFT is missing; UsageError if it is of another model:
    it has tensors without a place, or too few.
    """
    need("peft")
    folder, base = Path(adapter).expanduser(), {*map(id, model.parameters())}
    try:
        with quiet_transformers():
            from peft import PeftModel, get_peft_model_state_dict

            adapted = PeftModel.from_pretrained(model, str(folder) if folder.exists() else adapter)
            # Again, for what it says of the tensors: the first time they are loaded it says nothing of most.
            found = adapted.load_adapter(str(folder) if folder.exists() else adapter, "default")
    # PEFT raises whatever a wrong value in adapter_config.json leads it to.
    except Exception as error:
        if (other := _OTHER_ROWS.search(str(error))) and other[1] != other[2]:
            raise UsageError(
                f"the adapter {adapter} has {other[1]} rows of the vocabulary, and the model {other[2]}",
                expected="the model that it was trained on, with its vocabulary",
                fix=f"resize the model as before the training: resize_token_embeddings({other[1]}), save_pretrained",
            ) from error
        misfit = UsageError if isinstance(error, RuntimeError) else MissingError
        raise unloadable(
            f"the adapter {adapter}",
            str(folder),
            error,
            otherwise=misfit,
            expected="an adapter of PEFT that was trained on this model",
        ) from error
    # As PEFT, which has them in its cache now.
    names = ("adapter_model.safetensors", "adapter_model.bin")
    files = (checkpoint_file(adapter, name, local_files_only=True) for name in names)
    kinds = dict(kinds_in(next(filter(None, files))))
    # PEFT names no bias that is missing, nor a module that is saved whole.
    own = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    lost = [name for name in own if name not in kinds and not any(each in name for each in _SHARED)]
    # Of a prompt, what its encoder made before it was saved.
    surplus = [name for name in found.unexpected_keys if name != "prompt_embeddings"]
    if lost or surplus:
        words = {"the model has no place for": surplus, "there are no weights for": lost}
        problem = "; ".join(f"{what} {shown(', '.join(names))}" for what, names in words.items() if names)
        raise UsageError(
            f"the adapter {adapter} does not fit: {problem}",
            expected="the model that it was trained on, and an adapter_config.json that names all that it changes",
            fix="load it with its own base model, or save it again",
        )
    start = getattr(adapted.peft_config["default"], "init_lora_weights", None)
    if isinstance(start, str) and start.startswith("pissa_niter"):
        raise UsageError(
            f"the adapter {adapter} has init_lora_weights={start}, so every load changes the model again",
            expected="an adapter that says all that it changes",
            fix="save it as a plain LoRA: save_pretrained(..., path_initial_model_for_weight_conversion=...)",
        )
    check_finite(adapted, f"the adapter {adapter}", besides=base)
    check_reads_scales(adapted, f"the adapter {adapter}")
    if coarse := [name for name, kind in kinds.items() if kind not in PLAIN.keys() | _COUNTS]:
        raise UsageError(
            f"the adapter {adapter} has whole numbers, or numbers in 8 bits: {coarse[0]}",
            expected="weights in 16 or 32 bits: nothing reads scales of an adapter",
            fix="save it again",
        )
    return adapted


@torch.no_grad()
def check_reads_scales(adapted: nn.Module, name: str) -> None:
    """Raise UsageError if an adapter computes with the stored numbers of quantized weights, and not with their layer.

    Methods of PEFT that are not made for such weights take 127 for 0.1 and say nothing: HRA moved logits by 8 before
    it had learned anything.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    of_each_kind = {
        (type(layer), type(base)): (layer, base)
        for layer in adapted.modules()
        if isinstance(layer, BaseTunerLayer)
        and isinstance(base := layer.get_base_layer(), nn.Linear)
        and not base.weight.is_floating_point()
    }
    for layer, base in of_each_kind.values():
        try:
            # No hook: SHiRA warns of them.
            with mock.patch.object(base, "forward", wraps=base.forward) as product:
                layer(torch.zeros(1, 1, base.in_features, device=base.weight.device))
            why = "" if product.called else ": it reads their numbers without their scales"
        # Of the shape of numbers that are packed, or of scales that are elsewhere.
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            why = f": {reason(error)}"
        if why:
            raise UsageError(
                f"{name}: {type(layer).__module__.split('.')[-2]} does not work on quantized weights{why}",
                expected="whole weights, or a method that PEFT has for quantized ones: LoRA without DoRA, IA3, VeRA",
            )
