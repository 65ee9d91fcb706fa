"""What a measurement would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lengthwise.files import is_url
from lengthwise.machine import usable_device
from lengthwise.models.plan import SERVED_COST, Plan, check_dtype, reading_cost, unknown_cost
from lengthwise.models.position_limits import trained_length
from lengthwise.models.resolve import check_served, read_config, read_tokenizer, resolve
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

    What needs the model's configuration is None while an embedded model or a .gguf file is not converted yet. An
    endpoint is asked what it can do, with a short prompt.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    served = is_url(run.model)
    if not served:
        check_served(run.model, spec.served_settings(run))
        check_dtype(run.dtype)
        usable_device(run.device)
    corpus = load_corpus(run.text, split=run.split)
    plan = MeasurementPlan(
        settings={"kind": spec.kind, **spec.config(run)}, documents=len(corpus.documents), cost=SERVED_COST
    )
    if not served and (cost := unknown_cost(run.model)) is not None:
        tokens = sum(kind.wanted * kind.tokens for kind in spec.samples())
        return replace(plan, tokens_to_run=tokens, cost=cost)
    if served:
        config, model = None, spec.model(run)
        documents, trained = tokenize(corpus, model.tokenizer), model.trained_length
    else:
        model, resolved = None, resolve(run.model, weights=False)
        config = read_config(resolved)
        documents, trained = tokenize(corpus, read_tokenizer(resolved)), trained_length(config)
    kinds = spec.for_model(trained).samples()
    found = [
        len(sample_windows(documents, kind.stretch, count=kind.wanted, seed=spec.seed, allow_fewer=True))
        for kind in kinds
    ]
    tokens = sum(count * kind.tokens for count, kind in zip(found, kinds, strict=True))
    longest = max(kind.longest for kind in kinds)
    plan = replace(
        plan,
        text_tokens=documents.total_tokens,
        longest_document=documents.longest,
        samples={
            kind.what: f"{count} of {kind.wanted}, {kind.stretch} tokens of text each"
            for count, kind in zip(found, kinds, strict=True)
        },
        tokens_to_run=tokens,
    )
    if model is not None:
        model.check_ready(longest)
        return plan
    cost = reading_cost(
        config,
        tokens=tokens,
        at_once=spec.batch_size * longest,
        longest=longest,
        name=run.model,
        dtype=run.dtype,
        device=run.device,
        quantize=run.quantize,
    )
    return replace(plan, cost=cost)
