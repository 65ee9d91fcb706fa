"""`load`: a causal LM with its tokenizer, its head and the facts that every result records."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.models.checks import check_architecture, check_loaded, check_vocabulary
from lengthwise.models.extension import Extension, read_extension, restore_extension
from lengthwise.models.extension.apply import extend_as_recorded
from lengthwise.models.extension.files import adapter_extension, read_tensors
from lengthwise.models.head import FullLogits, Head, find_head, hidden_states_for
from lengthwise.models.positions import max_positions, rope_parameters, trained_length
from lengthwise.models.quantization import keep_layout
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import ResolvedModel, looks_like_path, resolve

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass
class LoadedModel:
    """A causal LM in eval mode and what belongs to it.

    Attributes:
        model: the transformers model (a PeftModel if an adapter was given).
        tokenizer: its tokenizer.
        name: the model as the user wrote it.
        source: its folder, or hub id and commit.
        adapter: the adapter's folder or hub id, if one was given.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    adapter: str | None = None
    config: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.config = self.model.config.get_text_config()

    @cached_property
    def head(self) -> Head | FullLogits:
        """The output head, proven at the first use to give the model's own logits; see `find_head`."""
        return find_head(self.model)

    @property
    def device(self) -> torch.device:
        """Where the input embedding lives."""
        return self.model.get_input_embeddings().weight.device

    @property
    def vocab_size(self) -> int:
        """V, the number of logits (padding of the vocabulary included)."""
        return self.config.vocab_size

    @cached_property
    def max_positions(self) -> int | None:
        """Positions beyond this have no embedding; None where any position has (rope, ALiBi)."""
        return max_positions(self.model)

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not recorded."""
        return trained_length(self.config)

    @property
    def extension(self) -> Extension | None:
        """What `lengthwise.extend` did to the model, now or before it was saved; None if nothing."""
        return read_extension(self.config)

    @torch.no_grad()
    def hidden_states(
        self, input_ids: Tensor, *, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """What `self.head.logits` takes: final hidden states [B, T, d] (full logits for `FullLogits`).

        Without gradients. Position ids need not be consecutive: all tokens before are attended to.

        Raises:
            UsageError: more positions than a learned table has.
        """
        limit = self.max_positions
        if limit is not None:
            needed = input_ids.shape[1] if position_ids is None else int(position_ids.max()) + 1
            if needed > limit:
                raise UsageError(
                    f"{needed} positions are needed, but {self.name} has a table of {limit}",
                    expected=f"at most {limit} tokens (learned absolute positions cannot be exceeded)",
                    fix="use a shorter length, or a model with rotary positions",
                )
        device = self.device
        return hidden_states_for(
            self.model,
            self.head,
            input_ids.to(device),
            position_ids=None if position_ids is None else position_ids.to(device),
            attention_mask=None if attention_mask is None else attention_mask.to(device),
        )

    def describe(self) -> dict[str, Any]:
        """What a result must record about its model; JSON values only. Proves the head."""
        head = self.head
        extension = self.extension
        return {
            "name": self.name,
            "source": self.source,
            "adapter": self.adapter,
            "architecture": self.config.model_type,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.device),
            "vocab_size": self.vocab_size,
            "trained_length": self.trained_length,
            "max_positions": self.max_positions,
            "rope_parameters": rope_parameters(self.config),
            "extension": None if extension is None else extension.to_dict(),
            "attn_implementation": self.config._attn_implementation,
            "head": "proven" if isinstance(head, Head) else f"full logits: {head.reason}",
            "tokenizer": type(self.tokenizer).__name__,
        }


def load(
    name_or_path: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    adapter: str | None = None,
    revision: str | None = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
) -> LoadedModel:
    """Load a causal LM and its tokenizer.

    A model that was extended and saved by lengthwise comes back extended; a base model is extended as the
    adapter needs it.

    Args:
        name_or_path: a hub id, a folder, a .gguf file, or an embedded name (`smollm2-135m`, `tiny-books`).
        dtype: a key of DTYPES; "auto" takes the one it was saved in.
        device: a torch device; "auto" takes CUDA if there is one.
        adapter: a PEFT adapter (folder or hub id) put on top, after the extension that it was trained with.
        revision: branch, tag or commit of a hub model.
        attn_implementation: passed to transformers ("sdpa", "eager", ...); None takes its default.
        quantization: passed to transformers as `quantization_config` (`lengthwise.models.quantization.nf4_config`);
            the weights are then placed on `device` at once.

    Raises:
        MissingError: the model, part of it, its tokenizer or a package is not there.
        UsageError: not a causal LM, a tokenizer that does not fit, an unknown dtype or device.
    """
    torch_dtype = _dtype(dtype)
    torch_device = _device(device)
    resolved = resolve(name_or_path, revision=revision)
    with quiet_transformers(bars=resolved.kind == "hub"):
        others: dict[str, Any] = {"attn_implementation": attn_implementation}
        if quantization is not None:
            others |= {"quantization_config": quantization, "device_map": {"": torch_device}}
        model = _load_weights(resolved, torch_dtype, others)
        keep_layout(model)
        restore_extension(model, lambda names: read_tensors(resolved, names))
        tokenizer = _load_tokenizer(resolved)
        check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            extension = adapter_extension(adapter)
            if extension is not None:
                extend_as_recorded(model, extension, source=f"the adapter {adapter}")
            model = _add_adapter(model, adapter)
    model = model.to(torch_device)
    model.eval()
    return LoadedModel(model, tokenizer, name_or_path, resolved.source, adapter)


def _dtype(name: str) -> torch.dtype | str:
    if name == "auto":
        return name
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}", expected=nearest(name, ["auto", *DTYPES]))
    return DTYPES[name]


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"unknown device {name!r}", expected="auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise MissingError(f"device {name!r} is asked for, but torch sees no CUDA device", fix="use cpu")
    return device


def read_config(resolved: ResolvedModel) -> Any:
    """The configuration of a model, without its weights.

    Raises:
        UsageError: it is not that of a causal LM.
        MissingError: it is not there.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            resolved.location,
            revision=resolved.revision or "main",
            local_files_only=resolved.local_files_only,
        )
        check_architecture(config, resolved.name)
    except UsageError:
        raise
    except OSError as error:
        raise MissingError(f"{resolved.name} cannot be loaded: {error}") from error
    except (ValueError, KeyError) as error:
        raise UsageError(f"{resolved.name} cannot be loaded as a causal language model: {error}") from error
    return config


def _load_weights(resolved: ResolvedModel, dtype: torch.dtype | str, others: dict[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    where: dict[str, Any] = {
        "revision": resolved.revision or "main",
        "local_files_only": resolved.local_files_only,
    }
    try:
        config = read_config(resolved)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.location,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            **where,
            **others,
        )
    except (UsageError, MissingError):
        raise
    except ImportError as error:
        raise MissingError(f"{resolved.name} needs a package that is missing: {error}") from error
    except OSError as error:
        raise MissingError(f"{resolved.name} cannot be loaded: {error}") from error
    except (ValueError, KeyError, RuntimeError) as error:
        raise UsageError(f"{resolved.name} cannot be loaded as a causal language model: {error}") from error
    model, info = loaded
    check_loaded(info, resolved.name)
    return model


def _load_tokenizer(resolved: ResolvedModel) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            resolved.location,
            revision=resolved.revision or "main",
            local_files_only=resolved.local_files_only,
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise MissingError(
            f"{resolved.name} has no tokenizer that can be loaded: {str(error).splitlines()[0]}",
            expected="tokenizer.json (or the files of a slow tokenizer) beside the weights",
            fix="save the model's tokenizer into the same folder",
        ) from error


def _add_adapter(model: Any, adapter: str) -> nn.Module:
    from peft import PeftModel

    folder = Path(adapter).expanduser()
    if not folder.exists() and looks_like_path(adapter):
        raise MissingError(f"there is no adapter folder {adapter}", fix="check the path")
    if folder.exists() and not (folder / "adapter_config.json").is_file():
        raise MissingError(
            f"{adapter} has no adapter_config.json", expected="a folder saved by PEFT's save_pretrained"
        )
    try:
        return PeftModel.from_pretrained(model, str(folder) if folder.exists() else adapter)
    except (OSError, ValueError) as error:
        raise MissingError(f"the adapter {adapter} cannot be loaded: {str(error).splitlines()[0]}") from error
    except RuntimeError as error:
        raise UsageError(
            f"the adapter {adapter} does not fit the model: {str(error).splitlines()[0]}",
            fix="load the model that it was trained on",
        ) from error
