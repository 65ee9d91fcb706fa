"""`load`: a causal LM with its tokenizer, its output head and the facts that every result records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, cast

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.files import is_url, named_path
from lengthwise.machine import usable_device
from lengthwise.models.extension import Extension, read_extension, restore_extension
from lengthwise.models.extension.extending import extend_as_recorded
from lengthwise.models.extension.extension_record import adapter_extension, read_tensors
from lengthwise.models.head import FullLogits, Head, find_head, hidden_states_for
from lengthwise.models.hidden import unwrap
from lengthwise.models.losses import NonFiniteLogits, target_losses
from lengthwise.models.placement import check_placement, check_splits, device_of
from lengthwise.models.plan import DTYPE_NAMES, check_dtype
from lengthwise.models.position_limits import (
    check_positions_fit,
    max_positions,
    rope_parameters,
    trained_length,
)
from lengthwise.models.quantization import keep_layout, quantization_config
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import ResolvedModel, check_served, read_config, read_tokenizer, resolve
from lengthwise.models.saved_weights import add_saved_adapter, check_vocabulary, load_weights
from lengthwise.settings import Dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models.predictor import Predictor

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPE_NAMES}


@dataclass
class LoadedModel:
    """A causal LM in eval mode with its tokenizer.

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
        """The output head, proven at its first use to give the model's own logits; see `find_head`."""
        return find_head(self.model)

    @property
    def device(self) -> torch.device:
        """The device of the input embedding."""
        return device_of(self.model.get_input_embeddings())

    @property
    def vocab_size(self) -> int:
        """V, the number of logits (padding of the vocabulary included)."""
        return self.config.vocab_size

    @property
    def max_positions(self) -> int | None:
        """The number of positions that have an embedding; None if every position has one (rope, ALiBi)."""
        return self._max_positions

    # Looked for once, not at every window. (A protocol's property cannot be a cached one.)
    @cached_property
    def _max_positions(self) -> int | None:
        return max_positions(self.model)

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not recorded."""
        return trained_length(self.config)

    @property
    def extension(self) -> Extension | None:
        """What `lengthwise.extend` did to the model, now or before it was saved; None if nothing."""
        return read_extension(self.config)

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if the model has no positions for `tokens` tokens, or is in training mode."""
        check_positions_fit(self.max_positions, tokens, name=self.name)
        if self.model.training:
            raise UsageError(f"{self.name} is in training mode", fix="call model.eval() before measuring")

    @torch.no_grad()
    def hidden_states(
        self, input_ids: Tensor, *, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """What `self.head.logits` takes: final hidden states [B, T, d] (full logits for `FullLogits`).

        Without gradients. Position ids need not be consecutive: every token attends to all tokens before it.

        Raises:
            UsageError: more positions than the model's table has.
        """
        if self.max_positions is not None:
            needed = input_ids.shape[1] if position_ids is None else int(position_ids.max()) + 1
            check_positions_fit(self.max_positions, needed, name=self.name)
        device = self.device
        hidden = hidden_states_for(
            self.model,
            self.head,
            input_ids.to(device),
            position_ids=None if position_ids is None else position_ids.to(device),
            attention_mask=None if attention_mask is None else attention_mask.to(device),
        )
        return self.at_head(hidden)

    def at_head(self, hidden: Tensor) -> Tensor:
        """Hidden states on the device of the output head, which may be another than that of the last layer."""
        return hidden.to(self.head.weight.device) if isinstance(self.head, Head) else hidden

    def token_losses(
        self, views: Sequence[NDArray[np.integer]], labels: Sequence[NDArray[np.integer]]
    ) -> list[Tensor]:
        """See `Predictor.token_losses`. Views of one length go through one forward pass, others one by one."""
        if len({(len(view), len(some)) for view, some in zip(views, labels, strict=True)}) > 1:
            return [self.token_losses([v], [some])[0] for v, some in zip(views, labels, strict=True)]
        length, scored = len(views[0]), len(labels[0])
        hidden = self.hidden_states(torch.from_numpy(np.stack(views)))[:, length - scored :]
        try:
            losses = target_losses(self, hidden.flatten(0, 1), np.concatenate(labels))
        except NonFiniteLogits as error:
            view, row = divmod(error.position, scored)
            raise NonFiniteLogits(length - scored + row, view=view) from error
        return list(losses.split(scored))

    def next_logits(self, view: NDArray[np.integer]) -> Tensor:
        """See `Predictor.next_logits`."""
        return self.head.logits(self.hidden_states(torch.from_numpy(view)[None])[0, -1:])

    def fingerprint(self) -> dict[str, str]:
        """See `lengthwise.models.fingerprint.model_fingerprint`."""
        from lengthwise.models.fingerprint import model_fingerprint

        return model_fingerprint(self)

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, revision: str | None = None) -> str:
        """Upload model (or adapter), tokenizer and model card to the hub, as `load` and transformers read them.

        An extension is kept: in the configuration, in the card, and beside an adapter in a file that the model's
        own `push_to_hub` does not write.

        Args:
            repo_id: "owner/name"; made if it is not there.
            private: of a new repository; None is the hub's default.
            revision: branch; made if it is not there. None is the main branch.

        Returns:
            The address of the commit.

        Raises:
            LengthwiseError: the hub cannot be reached or refuses.
        """
        from lengthwise.models.saving import push_to_hub

        return push_to_hub(self.model, self.tokenizer, repo_id, private=private, revision=revision)

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only. Proves the head."""
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


ModelLike = Union["Predictor", str, Path, tuple[Any, Any]]
"""A loaded model or an endpoint, a name, path or URL that `load` takes, or a pair (model, tokenizer)."""


def as_model(model: ModelLike) -> Predictor:
    """The model that is given by itself, by its name, path or URL, or as a pair (model, tokenizer).

    Raises:
        UsageError, MissingError: as `load`; or it is something else.
    """

    match model:
        case str() | Path():
            return load(str(model))
        case (nn.Module() as module, tokenizer) if hasattr(tokenizer, "decode"):
            name: str = unwrap(module).name_or_path or type(unwrap(module)).__name__
            return LoadedModel(module, tokenizer, name, "memory")
        case _ if hasattr(model, "token_losses"):
            return model
        case _:
            raise UsageError(
                f"a {type(model).__name__} is not a model",
                expected="a LoadedModel, a name or path, or a pair (model, tokenizer)",
            )


def weights_of(model: Predictor, *, needs: str, fix: str) -> LoadedModel:
    """The model, if its weights are here.

    Args:
        model: any.
        needs: what asks for them, and why, for the error.
        fix: what to do instead.

    Raises:
        UsageError: it is an endpoint.
    """
    if isinstance(model, LoadedModel):
        return model
    raise UsageError(
        f"{model.name} is an endpoint, and {needs}", expected="a model whose weights are loaded here", fix=fix
    )


def load(
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
    served_model: str | None = None,
    tokenizer: str | None = None,
) -> LoadedModel:
    """Load a causal LM and its tokenizer, or open an endpoint that serves one.

    A model that lengthwise extended and saved is extended again; a base model is extended as its adapter needs.

    Args:
        name_or_path: a hub id, a folder, a .gguf file, or an embedded name (`smollm2-135m`, `tiny-books`). For a
            URL, such as "http://127.0.0.1:8000/v1", the result is an `Endpoint`, which measurements take as well.
        dtype: of the weights; "auto" keeps the one they were saved in.
        device: a torch device; "auto" uses CUDA if there is one.
        adapter: a PEFT adapter (folder or hub id), added after the extension that it was trained with.
        revision: branch, tag or commit of a hub model.
        attn_implementation: passed to transformers ("sdpa", "eager", ...); None means its default.
        quantization: "nf4" or "int8"; or what is passed to transformers as `quantization_config`
            (`lengthwise.models.quantization.nf4_config`). The weights are then placed on `device` at once.
        device_map: spreads whole layers over the devices of this process, the processor and the disk: "auto",
            "balanced", "balanced_low_0", "sequential", or a dict of module names (accelerate's).
        tp_plan: "auto" splits every layer over the processes of torchrun, all of which then run the same inputs.
        served_model: of an endpoint: the name that it gives the model; None is the only one that it serves.
        tokenizer: of an endpoint: name or folder of the model's tokenizer; None is what the server says it loaded.

    Raises:
        MissingError: the model, part of it, its tokenizer or a package is missing; no server answers.
        UsageError: not a causal LM, a tokenizer that does not fit, an unknown dtype or device; an endpoint that gives
            no log-probabilities; a setting that it cannot honour.
    """
    if is_url(name_or_path):
        from lengthwise.models.served.endpoint import Endpoint

        check_served(
            name_or_path,
            {
                "adapter": adapter,
                "dtype": None if dtype == "auto" else dtype,
                "device": None if device == "auto" else device,
                "revision": revision,
                "attn_implementation": attn_implementation,
                "quantization": quantization,
                "device_map": device_map,
                "tp_plan": tp_plan,
            },
        )
        return cast(Any, Endpoint(name_or_path, served_model=served_model, tokenizer=tokenizer))
    check_served(name_or_path, {"served_model": served_model, "tokenizer": tokenizer})
    torch_dtype = _dtype(dtype)
    check_placement(device, device_map, tp_plan)
    torch_device = torch.device(usable_device(device))
    if adapter is not None:
        named_path(adapter, what="the adapter")
    resolved = resolve(name_or_path, revision=revision)
    with quiet_transformers(bars=resolved.kind == "hub"):
        others: dict[str, Any] = {"attn_implementation": attn_implementation}
        if quantization is not None:
            if isinstance(quantization, str):
                quantization = quantization_config(quantization, _compute_dtype(torch_dtype, resolved))
            others |= {"quantization_config": quantization, "device_map": {"": torch_device}}
        if device_map is not None:
            others |= {"device_map": device_map}
        if tp_plan is not None:
            from transformers.distributed.configuration_utils import DistributedConfig

            check_splits(read_config(resolved).get_text_config())
            others |= {"distributed_config": DistributedConfig(tp_plan=tp_plan)}
        model = load_weights(resolved, torch_dtype, others)
        keep_layout(model)
        restore_extension(model, lambda names: read_tensors(resolved, names))
        tokenizer = read_tokenizer(resolved)
        check_vocabulary(tokenizer, model.config.get_text_config().vocab_size, name_or_path)
        if adapter is not None:
            extension = adapter_extension(adapter)
            if extension is not None:
                extend_as_recorded(model, extension, source=f"the adapter {adapter}")
            model = add_saved_adapter(model, adapter)
    if device_map is None and tp_plan is None:
        model = model.to(torch_device)
    model.eval()
    return LoadedModel(model, tokenizer, name_or_path, resolved.source, adapter)


def _dtype(name: str) -> torch.dtype | str:
    check_dtype(name)
    return name if name == "auto" else DTYPES[name]


def _compute_dtype(dtype: torch.dtype | str, resolved: ResolvedModel) -> torch.dtype:
    """The dtype in which quantised weights are multiplied: the given one, or that of the configuration."""
    return dtype if isinstance(dtype, torch.dtype) else read_config(resolved).dtype or torch.float32
