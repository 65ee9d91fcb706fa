"""What a run would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lengthwise.files import is_url
from lengthwise.machine import usable_device
from lengthwise.measure.measurement import Measurement, Reader
from lengthwise.measure.runner import as_given
from lengthwise.models import open_model
from lengthwise.models.plan import SERVED_COST, model_skeleton, reading_cost, unknown_cost
from lengthwise.models.position_limits import max_positions, trained_length
from lengthwise.models.resolve import check_served, read_config, read_tokenizer, resolve
from lengthwise.settings import Subject
from lengthwise.text import TokenDocuments, tokenize


@dataclass(frozen=True)
class _Outline:
    """What is known of a model before its weights are loaded."""

    name: str
    tokenizer: Any
    trained_length: int | None
    max_positions: int | None


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
    model: Reader = open_model(subject) if served else _outline(subject.model)
    other = model if second == subject.model else _outline(second)
    measurement = measurement.resolved(model, other)
    text, facts = given, {}
    if given is not None and measurement.reads != "questions":
        documents = given if isinstance(given, TokenDocuments) else tokenize(given, other.tokenizer)
        text = documents if measurement.reads == "tokens" else given
        facts = {
            "documents": len(documents),
            "text_tokens": documents.total_tokens,
            "longest_document": documents.longest,
        }
    items = measurement.items(model, text, other)
    facts |= measurement.plan(items)
    longest = max(item.longest for item in items)
    if served:
        model.check_ready(longest)
        measurement.check_models(model, other, items)
        subject_cost = SERVED_COST
    else:
        subject_cost = reading_cost(
            read_config(resolve(subject.model, weights=False)),
            tokens=facts["tokens_to_run"],
            at_once=measurement.batch_size * longest,
            longest=longest,
            name=subject.model,
            dtype=subject.dtype,
            device=subject.device,
            quantize=subject.quantize,
        )
    return {"settings": settings, **facts, **subject_cost.to_dict()}


def _outline(name: str) -> _Outline:
    resolved = resolve(name, weights=False)
    config = read_config(resolved)
    return _Outline(
        name, read_tokenizer(resolved), trained_length(config), max_positions(model_skeleton(config))
    )
