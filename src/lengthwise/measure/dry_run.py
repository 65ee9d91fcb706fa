"""What is known before a run: what would be refused, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.measure import given
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.runner import Prepared
from lengthwise.settings import Subject
from lengthwise.text import Corpus, TokenDocuments

if TYPE_CHECKING:
    from lengthwise.subjects import ModelLike
    from lengthwise.text import TextLike


def check_run(
    measurement: Measurement, model: ModelLike, text: TextLike | TokenDocuments | None = None
) -> Corpus | TokenDocuments | None:
    """Refuse what `run` would refuse before it reads the first item; the text, in tokens where those are enough.

    UsageError, MissingError: as `run`.
    """
    from lengthwise.subjects import as_model

    spec = given.named_subject(measurement, model, text)
    given.check_second(measurement, spec, in_memory=True)
    corpus, first = given.text_of(measurement, spec, text), as_model(model)
    named = text is None or isinstance(text, str | Path)
    other = given.open_second(measurement, first, None)
    prepared = Prepared(measurement, spec, corpus, first, other, cache=named)
    prepared.check()
    return corpus if measurement.reads != "tokens" else prepared.documents


def plan_run(measurement: Measurement, spec: Subject) -> dict[str, Any]:
    """What `--dry-run` shows: settings, text, items, tokens, memory and time.

    Loads the tokenizer and the text, but no weights. What needs the model's configuration is None while an embedded
    model or a .gguf file is not converted yet, what needs its tokenizer where only its shape is known. An endpoint
    is asked what it can do, with a short prompt.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    from lengthwise.subjects.plan import cost_of_sides, outline, unknown_cost_of

    settings = {"kind": measurement.about.kind} | given.config_of(measurement, spec)
    given.check_second(measurement, spec)
    second = given.second_subject(measurement, spec)
    sides = [spec] if second in (None, spec) else [spec, second]
    unknown = unknown_cost_of(sides)
    content = given.text_of(measurement, spec, None)
    if unknown is not None:
        return {"settings": settings, **unknown}
    model = outline(spec)
    other = model if len(sides) == 1 else outline(sides[1], tokenizer=model.tokenizer)
    prepared = Prepared(measurement, spec, content, model, other, cache=True)
    facts: dict[str, Any] = {}
    if (read := prepared.documents) is not None:
        facts |= {"documents": len(read), "text_tokens": read.total_tokens, "longest_document": read.longest}
    facts |= prepared.measurement.plan(prepared.items)
    prepared.check()
    longest = prepared.longest
    cost = cost_of_sides(
        sides,
        tokens=facts["tokens_to_run"] // len(sides),
        at_once=measurement.batch_size * longest,
        longest=longest,
        cached=measurement.about.caches * longest,
        decoded=facts.get("decode_passes", 0),
    )
    return {"settings": settings, **facts, **cost}
