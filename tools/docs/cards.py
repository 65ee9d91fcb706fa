"""The card that the README opens with, from kept results: `python -m tools.docs.doc_tables` writes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lengthwise.files import atomic_write_text
from lengthwise.report.card_drawing import Card, shapes, svg
from lengthwise.report.card_of_runs import card_of
from lengthwise.results import Results
from tools.docs.kept_results import kept_run

CARD = Path("docs", "figures", "card-smollm2.svg")
NAME = "SmolLM2-135M"


def readme_card(root: Path) -> Card:
    """How much of its context SmolLM2-135M uses, and what a cache in 4 and in 2 bits costs it."""
    limit = kept_run(root, "limit-smollm2")
    # The run did not record the claim. Its model is not extended: it claims what it was trained for.
    model = limit.provenance["model"]
    provenance = limit.provenance | {"model": {**model, "claimed_length": model["trained_length"]}}
    caches = [kept_run(root, f"cache-smollm2-135m-books-quanto-int{bits}") for bits in (4, 2)]
    return card_of([_named(replace(limit, provenance=provenance))], [_named(run) for run in caches])


def _named(run: Results) -> Results:
    config = run.config | {"model": NAME}
    if "side_b" in config:
        config["side_b"] = config["side_b"] | {"model": NAME}
    return replace(run, model_name=NAME, config=config)


def write_card(root: Path) -> Path:
    """Draw it."""
    card = readme_card(root)
    atomic_write_text(root / CARD, svg(shapes(card), card.sentence))
    return root / CARD
