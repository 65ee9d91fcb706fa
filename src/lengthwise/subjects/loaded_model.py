"""A model whose weights are here (`LoadedModel`), as a `Predictor`; and any model opened by its name.

The modules that read branches, write replies and read again load only where a measurement asks for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.checkpoints.faults import remarks
from lengthwise.checkpoints.head import Head, locating_bad_logits
from lengthwise.checkpoints.hidden import parameter_counts, unwrap
from lengthwise.checkpoints.loading import load_weights
from lengthwise.checkpoints.position_limits import as_length
from lengthwise.checkpoints.probe import differs, probe_tokens
from lengthwise.checkpoints.written_settings import rounded_weights
from lengthwise.errors import UsageError, require_kind
from lengthwise.machine import warn_of_emulation, whole, whole_tensor
from lengthwise.settings import Dtype, Subject, path_text
from lengthwise.subjects.reading import Ends, Predictor, Read, Reading, Tokens, Want, reading_path
from lengthwise.subjects.rows import naming_bad_logits
from lengthwise.subjects.weights import Weights
from lengthwise.text import tokenizer_fingerprint

SIDE_BY_SIDE = "reading of several texts side by side"
IN_MEMORY = "memory"
"""The source of a model that was not loaded here."""
_ALIKE = 0.01
"""Nats by which logits differ at most that say nothing: after a soft cap of 0, a scale of 0."""
SAMPLED = 1024
"""Elements of each tensor that a fingerprint reads."""

ModelLike = Predictor | str | Path | tuple[Any, Any]
"""A loaded model, an endpoint, its URL, the name or path of a model, or a pair (model, tokenizer)."""


class LoadedModel(Weights):
    """A causal LM in eval mode with its tokenizer; see `Weights` for its attributes."""

    gives: ClassVar[frozenset[Want]] = frozenset(Want)
    _before: Tensor | None = None

    @cached_property
    def remarks(self) -> list[str]:
        """What a reader of its numbers has to know; UsageError for faults with which it has none."""
        source = None if self.source == IN_MEMORY else self.source
        return remarks(self.model, self.tokenizer, source=source, adapter=self.adapter)

    def check_ready(self, tokens: int) -> None:
        """See `Predictor.check_ready`; UsageError too for faults with which nothing can be measured."""
        super().check_ready(tokens)
        self.check_faults()
        self.look_before()

    @torch.no_grad()
    def look_before(self) -> None:
        """Read a few tokens, which `check_unchanged` reads again; no more after a run has begun."""
        if self._before is None:
            self._before = self._probe()
            lowest, highest = self.head.logits(self._before).aminmax(dim=-1)
            said = f"It predicts all tokens alike: its logits differ by {(highest - lowest).max():.1g}."
            if (highest - lowest).max() <= _ALIKE and said not in self.remarks:
                self.remarks.append(said)

    @torch.no_grad()
    def check_unchanged(self) -> None:
        """See `Predictor.check_unchanged`."""
        before, self._before = self._before, None
        if before is not None and differs(self._probe(), before) is not None:
            raise UsageError(
                f"{self.name} gives other numbers of the same tokens after these texts than before them",
                expected="a model that keeps nothing of what it read, and counts no calls",
                fix="load it again, if you have changed it since a run that failed",
            )

    def _probe(self) -> Tensor:
        return self.run(probe_tokens(self.model)[:1])[0]

    def check_faults(self) -> None:
        """Raise UsageError for faults of the model with which no number would mean anything."""
        # They are looked for once, and kept. No assert: `python -O` leaves those out.
        _ = self.remarks

    @torch.no_grad()
    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """See `Predictor.read`. Readings of one length without branches go through one forward pass."""
        found: list[Read] = []
        for alike, some in groupby(readings, key=lambda each: (len(each.tokens), bool(each.branches))):
            batch = list(some)
            if alike[1]:
                from lengthwise.subjects.branches import read_with_branches

                states = [read_with_branches(self, each) for each in batch]
            else:
                tokens = torch.from_numpy(np.stack([each.tokens for each in batch]).astype(np.int64))
                states = [(text, ()) for text in self._read_along(tokens)]
            for reading, (text, branches) in zip(batch, states, strict=True):
                with locating_bad_logits(view=len(found)):
                    found.append(self._answer(reading, text, branches))
        return found

    def _read_along(self, ids: Tensor) -> Tensor:
        """What `self.head.logits` takes for every token of `ids` [B, T], read along `self.path`.

        Texts of one length go side by side where that gives what each gives by itself. UsageError if the cache of
        the path cannot be made for this model, or cannot be continued.
        """
        read = self.hidden_states
        if not self.path.in_one_pass:
            from lengthwise.subjects.pieces import in_pieces

            read = partial(in_pieces, self)
        if len(ids) == 1:
            return read(ids)
        kept: list[Tensor] = []

        def fast() -> Tensor:
            kept.append(read(ids))
            return kept[0][-1]

        if self.proofs.take(SIDE_BY_SIDE, ids.numel(), fast, lambda: read(ids[-1:])[0], name=self.name):
            return kept[0]
        return torch.cat([read(row[None]) for row in ids])

    def _answer(self, reading: Reading, text: Tensor, branches: Sequence[Tensor]) -> Read:
        """What is wanted of a reading, from what the head takes for its tokens and for those of its branches."""
        if reading.want is Want.ROWS:
            return Read(rows=self.rows(text))
        if reading.want is Want.NEXT:
            return Read(rows=self.rows(text[-1:]))
        losses = self.rows(text).losses(reading.labels)
        if not branches:
            return Read(losses=losses)
        # All at once: one at a time, most of the work would be reading the head's weights.
        own = zip(branches, reading.branches, strict=True)
        ends = torch.cat([states[len(states) - len(each.labels) :] for states, each in own])
        labels = np.concatenate([each.labels for each in reading.branches])
        with locating_bad_logits(reading.branches[0].place):
            found = self.rows(ends).losses(labels)
        return Read(losses=losses, branches=found.split([len(each.labels) for each in reading.branches]))

    def write(self, prompts: Sequence[Tokens], *, at_once: int = 1, **ends: Unpack[Ends]) -> list[str]:
        """See `Predictor.write`, and `lengthwise.subjects.writing`."""
        from lengthwise.subjects.writing import unused_settings, write

        self.remarks.extend(each for each in unused_settings(self) if each not in self.remarks)
        with naming_bad_logits(self, "what follows a prompt"):
            return write(self, prompts, at_once=at_once, **ends)

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """See `Predictor.again`: weights are rounded otherwise (`lengthwise.subjects.rounding`)."""
        from lengthwise.subjects.rounding import read_otherwise

        return read_otherwise(self, reading, read, dtype or self.dtype, again=self.read)

    def fingerprint(self) -> dict[str, str]:
        """Hashes of the weights (adapter included), the configuration and the tokenizer."""
        return {
            "weights": weights_fingerprint(self.model),
            "config": config_fingerprint(self.config),
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
        }

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only. Proves the head."""
        head, extension, remarks = self.head, self.extension, list(self.remarks)
        if torch.is_autocast_enabled(self.device.type):
            cast = str(torch.get_autocast_dtype(self.device.type)).removeprefix("torch.")
            remarks.append(f"It is measured under autocast, in {cast}.")
        return {
            "name": self.name,
            "source": self.source,
            "adapter": self.adapter,
            "architecture": self.config.model_type,
            "parameters": parameter_counts(self.model)[0],
            "dtype": self.dtype,
            "device": str(self.device),
            "vocab_size": self.vocab_size,
            "trained_length": self.trained_length,
            "claimed_length": as_length(getattr(self.config, "max_position_embeddings", None)),
            "max_positions": self.max_positions,
            "rope_parameters": getattr(self.config, "rope_parameters", None) or None,
            "extension": None if extension is None else extension.to_dict(),
            "attn_implementation": self.config._attn_implementation,
            "head": "proven" if isinstance(head, Head) else f"full logits: {head.reason}",
            "tokenizer": type(self.tokenizer).__name__,
            "remarks": remarks,
        }


@torch.no_grad()
def weights_fingerprint(model: nn.Module) -> str:
    """A hash of the name, shape, dtype and `SAMPLED` evenly spaced elements of every tensor, adapter included.

    It takes milliseconds at 135M parameters. Training or another checkpoint changes nearly every element, which it
    sees. It does not see a change of elements that are not sampled, such as one flipped bit.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, Tensor):
            continue
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        # FSDP2 gathers for a forward pass, and here there is none.
        flat = whole(whole_tensor(model, name, tensor).detach()).reshape(-1)
        if len(flat) > SAMPLED:
            flat = flat[torch.linspace(0, len(flat) - 1, SAMPLED, dtype=torch.float64).long().to(flat.device)]
        digest.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def config_fingerprint(config: Any) -> str:
    """The hash of a configuration, without the folder that it was read from and the version that wrote it."""
    plain = config.to_dict()
    for key in ("_name_or_path", "transformers_version", "_attn_implementation_autoset"):
        plain.pop(key, None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:32]


def as_model(model: ModelLike) -> Predictor:
    """The model that is given by itself, by its name, path or URL, or as a pair (model, tokenizer).

    Raises:
        UsageError, MissingError: as `open_model`; or it is something else.
    """
    match model:
        case str() | Path():
            return open_model(Subject(model=str(model)))
        case (nn.Module() as module, tokenizer) if hasattr(tokenizer, "decode"):
            name: str = unwrap(module).name_or_path or type(unwrap(module)).__name__
            return LoadedModel(module, tokenizer, name, IN_MEMORY)
        case _ if not isinstance(model, tuple) and hasattr(model, "read"):
            return model
        case _:
            raise UsageError(
                f"a {type(model).__name__} is not a model",
                expected="a LoadedModel, a name or path, or a pair (model, tokenizer)",
            )


def open_model(subject: Subject, *, tokenizer: Any = None) -> Predictor:
    """The model of a subject, loaded, or its endpoint or GGUF file, opened; `tokenizer` for these if they name none.

    Raises:
        UsageError, MissingError: as `load`, `Endpoint` or `LlamaCpp`.
    """
    require_kind(
        "the subject", subject, Subject, "Subject(model=NAME, ...); weights alone come from lengthwise.load"
    )
    if subject.kind == "llama.cpp":
        from lengthwise.subjects.llama_cpp import LlamaCpp

        return LlamaCpp(subject, tokenizer=tokenizer)
    path = reading_path(subject)
    model: Any
    if subject.kind == "endpoint":
        from lengthwise.subjects.endpoint import Endpoint

        model = Endpoint(
            subject.model,
            served_model=subject.served_model,
            tokenizer=subject.tokenizer or tokenizer,
            server=subject.of_server(),
        )
    else:
        same = subject.model_dump(include={"dtype", "device", "adapter", "device_map", "tp_plan"})
        how = {"quantization": subject.quantize, "attn_implementation": subject.attn}
        model = load(subject.model, **how, **same)
    model.path = path
    return model


def load(
    name_or_path: str | Path,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    adapter: str | Path | None = None,
    revision: str | None = None,
    attn_implementation: str | None = None,
    quantization: Any = None,
    device_map: Any = None,
    tp_plan: Literal["auto"] | None = None,
) -> LoadedModel:
    """Load a causal LM and its tokenizer. (A served model is opened with `lengthwise.subjects.Endpoint`.)

    A model that lengthwise extended and saved is extended again; a base model is extended as its adapter needs.

    Args:
        name_or_path: a hub id, a folder, a .gguf file, or an embedded name (`smollm2-135m`, `tiny-books`).
        dtype: of the weights; "auto" is that of config.json, or else the one they were saved in.
        device: a torch device; "auto" uses CUDA if there is one.
        adapter: a PEFT adapter (folder or hub id), added after the extension that it was trained with.
        revision: branch, tag or commit of a hub model.
        attn_implementation: passed to transformers ("sdpa", "eager", ...); None means its default.
        quantization: "nf4" or "int8", or a `quantization_config` of transformers. The weights go to `device` at once.
        device_map: spreads whole layers over the devices of this process, the processor and the disk: "auto",
            "balanced", "balanced_low_0", "sequential", or a dict of module names (accelerate's).
        tp_plan: "auto" splits every layer over the processes of torchrun, all of which then run the same inputs.

    Raises:
        MissingError: the model, part of it, its tokenizer or a package is missing.
        UsageError: not a causal LM, a tokenizer that does not fit, an unknown dtype or device, an endpoint; or a
            fault with which nothing can be measured (`lengthwise.checkpoints.faults.REFUSED`).
    """
    name_or_path, adapter = path_text(name_or_path), path_text(adapter)
    model, tokenizer, source = load_weights(**locals())
    loaded = LoadedModel(model, tokenizer, name_or_path, source, adapter)
    loaded.check_faults()
    if model.device.type == "cpu":
        warn_of_emulation(str(model.dtype).removeprefix("torch."), name_or_path, fix="--dtype float32")
    if dtype == "auto":
        loaded.remarks.extend(rounded_weights(model, source))
    return loaded
