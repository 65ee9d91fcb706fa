"""What a measurement would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from typing import Any

import torch

from lengthwise.machine import product_rate
from lengthwise.measure.job import Job
from lengthwise.measure.rows import CHUNK_BYTES
from lengthwise.models import EMBEDDED
from lengthwise.models.checks import check_architecture
from lengthwise.models.embedded import made_folder
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
        skeleton = _skeleton(resolved)
        text = _text(job, corpus, resolved)
    device = _device(job)
    dtype = _dtype(job, skeleton)
    rate = product_rate(device, dtype)
    parameters = sum(p.numel() for p in skeleton.parameters())
    work = 2 * parameters * text["tokens_to_run"]
    return (
        plan
        | text
        | {
            "parameters": parameters,
            "device": device,
            "dtype": dtype,
            "memory_bytes": _memory(job, skeleton, parameters, dtype),
            "memory_basis": "weights exactly; activations of one layer by rule of thumb; a few chunks of logits; "
            "without the libraries' own few hundred MB",
            "seconds_at_least": round(work / rate, 1),
            "seconds_basis": f"2 x parameters x tokens = {work:.2g} floating-point operations at {rate:.2g} a "
            "second, measured just now with one matrix product; attention and the comparison of distributions "
            "come on top, so expect up to three times it",
        }
    )


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
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(resolved.location, **_where(resolved))
    check_architecture(config, resolved.name)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _where(resolved: ResolvedModel) -> dict[str, Any]:
    return {"revision": resolved.revision or "main", "local_files_only": resolved.local_files_only}


def _memory(job: Job, skeleton: Any, parameters: int, dtype: str) -> int:
    config = skeleton.config.get_text_config()
    size = getattr(torch, dtype).itemsize
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    # Without gradients one layer lives at a time: about six tensors of the width, two of the MLP's inside.
    tokens = job.batch_size * max(part.longest for part in job.parts())
    return parameters * size + tokens * (6 * config.hidden_size + 2 * inner) * size + 4 * CHUNK_BYTES


def _device(job: Job) -> str:
    if job.device != "auto":
        return job.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _dtype(job: Job, skeleton: Any) -> str:
    if job.dtype != "auto":
        return job.dtype
    return str(skeleton.config.dtype or torch.float32).removeprefix("torch.")
