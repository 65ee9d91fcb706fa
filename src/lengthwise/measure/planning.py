"""What a measurement would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from lengthwise.machine import product_rate
from lengthwise.measure.job import Job
from lengthwise.measure.rows import CHUNK_BYTES
from lengthwise.models import EMBEDDED
from lengthwise.models.checks import check_architecture
from lengthwise.models.embedded import made_folder
from lengthwise.models.positions import trained_length
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import ResolvedModel, resolve
from lengthwise.text import Corpus, load_corpus, sample_windows, tokenize

_UNKNOWN = "not known before the model has been made (at its first use)"


def plan_job(job: Job) -> dict[str, Any]:
    """Settings, text, samples, tokens, memory and time of `job`. Plain values.

    Loads the tokenizer and the text but no weights. What needs the model's configuration is None while an
    embedded model or a .gguf file has not been converted yet.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    corpus = load_corpus(job.text, split=job.split)
    plan: dict[str, Any] = {
        "settings": {"kind": job.kind, **job.settings()},
        "documents": len(corpus.documents),
        "tokens_to_run": sum(part.samples * part.tokens for part in job.parts()),
        "parameters": None,
        "memory_bytes": None,
        "memory_basis": _UNKNOWN,
        "seconds_at_least": None,
        "seconds_basis": _UNKNOWN,
    }
    if job.model in EMBEDDED and made_folder(job.model) is None:
        return plan | {"parameters": EMBEDDED[job.model].parameters}
    if job.model.lower().endswith(".gguf"):
        return plan
    resolved = resolve(job.model)
    with quiet_transformers():
        job = job.with_trained_length(trained_length(_config(resolved)))
        text = _text(job, corpus, resolved)
    longest = job.batch_size * max(part.longest for part in job.parts())
    return plan | text | cost_of(job, resolved, tokens=text["tokens_to_run"], at_once=longest)


class Run(Protocol):
    """What of a job decides where and how precisely its model runs."""

    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102


def cost_of(job: Run, resolved: ResolvedModel, *, tokens: int, at_once: int) -> dict[str, Any]:
    """Parameters, memory and time of a model that reads `tokens` tokens in all, `at_once` in one pass."""
    with quiet_transformers():
        skeleton = _skeleton(resolved)
    device = _device(job)
    dtype = _dtype(job, skeleton)
    rate = product_rate(device, dtype)
    parameters = sum(p.numel() for p in skeleton.parameters())
    work = 2 * parameters * tokens
    return {
        "parameters": parameters,
        "device": device,
        "dtype": dtype,
        "memory_bytes": _memory(skeleton, parameters, dtype, at_once),
        "memory_basis": "weights exactly; activations of one layer by rule of thumb; a few chunks of logits; "
        "without the libraries' own few hundred MB",
        "seconds_at_least": round(work / rate, 1),
        "seconds_basis": f"2 x parameters x tokens = {work:.2g} floating-point operations at {rate:.2g} a "
        "second, measured just now with one matrix product; attention and the comparison of distributions "
        "come on top, so expect up to three times it",
    }


def _text(job: Job, corpus: Corpus, resolved: ResolvedModel) -> dict[str, Any]:
    """What of the wanted samples the text holds."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolved.location, **_where(resolved))
    documents = tokenize(corpus, tokenizer)
    parts = job.parts()
    found = {
        part.what: len(
            sample_windows(documents, part.stretch, count=part.samples, seed=job.seed, allow_fewer=True)
        )
        for part in parts
    }
    return {
        "text_tokens": documents.total_tokens,
        "longest_document": documents.longest,
        "samples": {
            part.what: f"{found[part.what]} of {part.samples}, {part.stretch} tokens of text each"
            for part in parts
        },
        "tokens_to_run": sum(found[part.what] * part.tokens for part in parts),
    }


def _skeleton(resolved: ResolvedModel) -> Any:
    """The model without weights."""
    from transformers import AutoModelForCausalLM

    config = _config(resolved)
    check_architecture(config, resolved.name)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _config(resolved: ResolvedModel) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(resolved.location, **_where(resolved))


def _where(resolved: ResolvedModel) -> dict[str, Any]:
    return {"revision": resolved.revision or "main", "local_files_only": resolved.local_files_only}


def _memory(skeleton: Any, parameters: int, dtype: str, tokens: int) -> int:
    config = skeleton.config.get_text_config()
    size = getattr(torch, dtype).itemsize
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    # Without gradients one layer lives at a time: about six tensors of the width, two of the MLP's inside.
    return parameters * size + tokens * (6 * config.hidden_size + 2 * inner) * size + 4 * CHUNK_BYTES


def _device(job: Run) -> str:
    if job.device != "auto":
        return job.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(job: Run, skeleton: Any) -> str:
    if job.dtype != "auto":
        return job.dtype
    return str(skeleton.config.dtype or torch.float32).removeprefix("torch.")
