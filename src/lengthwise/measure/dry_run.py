"""What a run would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lengthwise.files import is_url
from lengthwise.machine import usable_device
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.runner import as_given, tokens_of
from lengthwise.models import open_model
from lengthwise.models.plan import SERVED_COST, model_skeleton, reading_cost, unknown_cost
from lengthwise.models.position_limits import max_positions, trained_length
from lengthwise.models.resolve import check_served, read_config, read_tokenizer, resolve
from lengthwise.settings import Subject


def plan_run(measurement: Measurement, spec: Subject) -> dict[str, Any]:
    """Settings, text, items, tokens, memory and time. Loads the tokenizer and the text, but no weights.

    What needs the model's configuration is None while an embedded model or a .gguf file is not converted yet. An
    endpoint is asked what it can do, with a short prompt.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    settings = {"kind": measurement.kind, **measurement.config(spec)}
    subject = measurement.check_subject(spec)
    served = is_url(subject.model)
    check_served(subject)
    if not served:
        usable_device(subject.device)
    given = as_given(None, spec) if measurement.needs_text else None
    second = measurement.second or subject.model
    for name in {subject.model, second}:
        if (cost := unknown_cost(name)) is not None:
            return {"settings": settings, **cost.to_dict()}
    endpoint = open_model(subject) if served else None
    model = endpoint or _outline(subject.model)
    other = model if second == subject.model else _outline(second)
    measurement = measurement.resolved(model, other)
    documents = tokens_of(measurement, given, other)
    items = measurement.items(model, documents if measurement.reads == "tokens" else given, other)
    facts = (
        {}
        if documents is None
        else {
            "documents": len(documents),
            "text_tokens": documents.total_tokens,
            "longest_document": documents.longest,
        }
    )
    facts |= measurement.plan(items)
    longest = max(item.longest for item in items)
    if endpoint is not None:
        endpoint.check_ready(longest)
        measurement.check_models(endpoint, endpoint, items)
        cost = SERVED_COST
    else:
        cost = reading_cost(
            read_config(resolve(subject.model)),
            tokens=facts["tokens_to_run"],
            at_once=measurement.batch_size * longest,
            longest=longest,
            name=subject.model,
            dtype=subject.dtype,
            device=subject.device,
            quantize=subject.quantize,
        )
    return {"settings": settings, **facts, **cost.to_dict()}


def _outline(name: str) -> Any:
    """What is known of a model before its weights are loaded: a `Reader`."""
    resolved = resolve(name)
    config = read_config(resolved)
    return SimpleNamespace(
        name=name,
        tokenizer=read_tokenizer(resolved),
        trained_length=trained_length(config),
        max_positions=max_positions(model_skeleton(config)),
    )
