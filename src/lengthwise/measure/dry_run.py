"""What a measurement would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.machine import usable_device
from lengthwise.models.plan import Plan, check_dtype, reading_cost, unknown_cost
from lengthwise.models.position_limits import trained_length
from lengthwise.models.resolve import read_config, read_tokenizer, resolve
from lengthwise.spec import RunSpec, Spec
from lengthwise.text import load_corpus, sample_windows, tokenize


@dataclass(frozen=True, kw_only=True)
class MeasurementPlan(Plan):
    """A plan with what the text holds."""

    documents: int
    text_tokens: int | None = None
    longest_document: int | None = None
    samples: dict[str, str] | None = None
    """Of each kind of sample, how many of the wanted ones the text holds."""


def plan_measurement(run: RunSpec, spec: Spec) -> MeasurementPlan:
    """Settings, text, samples, tokens, memory and time. Loads the tokenizer and the text, but no weights.

    What needs the model's configuration is None while an embedded model or a .gguf file is not converted yet.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    check_dtype(run.dtype)
    usable_device(run.device)
    corpus = load_corpus(run.text, split=run.split)
    settings = {"kind": spec.kind, **spec.config(run)}
    cost = unknown_cost(run.model)
    if cost is not None:
        tokens = sum(kind.wanted * kind.tokens for kind in spec.samples())
        return MeasurementPlan(
            settings=settings, documents=len(corpus.documents), tokens_to_run=tokens, cost=cost
        )
    resolved = resolve(run.model)
    config = read_config(resolved)
    documents = tokenize(corpus, read_tokenizer(resolved))
    kinds = spec.for_model(trained_length(config)).samples()
    found = [
        len(sample_windows(documents, kind.stretch, count=kind.wanted, seed=spec.seed, allow_fewer=True))
        for kind in kinds
    ]
    tokens = sum(count * kind.tokens for count, kind in zip(found, kinds, strict=True))
    longest = max(kind.longest for kind in kinds)
    cost = reading_cost(
        config,
        tokens=tokens,
        at_once=spec.batch_size * longest,
        longest=longest,
        name=run.model,
        dtype=run.dtype,
        device=run.device,
    )
    return MeasurementPlan(
        settings=settings,
        documents=len(corpus.documents),
        text_tokens=documents.total_tokens,
        longest_document=documents.longest,
        samples={
            kind.what: f"{count} of {kind.wanted}, {kind.stretch} tokens of text each"
            for count, kind in zip(found, kinds, strict=True)
        },
        tokens_to_run=tokens,
        cost=cost,
    )
