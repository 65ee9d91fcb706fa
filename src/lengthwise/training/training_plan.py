"""What a recipe would do, before any weight is loaded: `lengthwise train --dry-run`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lengthwise.errors import MissingError, UsageError
from lengthwise.models.embedded import EMBEDDED, made_folder
from lengthwise.models.plan import Cost, Plan, seconds_at_least, unknown_cost
from lengthwise.models.resolve import read_config, read_tokenizer, resolve
from lengthwise.processes import process_count
from lengthwise.text import load_corpus
from lengthwise.text.corpus_sources import HUB_PREFIX
from lengthwise.training.cost import BASIS, MARGIN, device_memory, run_operations, ways
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import recipe_skeleton


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """A recipe with its defaults filled in, and what it takes. The cost is unknown until the model has been made."""

    min_context: int
    offsets: tuple[int, int]
    processes: int
    micro_batch: int
    """Samples at a time on one device."""
    accumulation: int
    """Micro-batches of one optimizer step on one device."""
    tokens_per_step: int
    """That are read: a view that the objective does not use is not."""
    text_not_checked: str | None = None
    """Why the length of the text is not known to suffice, if so."""
    memory_by_sharding: dict[str, int] | None = None
    """Bytes on each of several devices, by the way the run is spread over them."""
    host_memory_bytes: int | None = None
    """In main memory for each device, where the recipe offloads to it."""
    notes: list[str] | None = None
    """`Recipe.notes`, if there are any."""
    fits: str | None = None
    """The fastest way of `memory_by_sharding` that fits the card that was asked for."""


def plan(recipe: Recipe, *, devices: int | None = None, memory: int | None = None) -> TrainingPlan:
    """The plan of `recipe`.

    Needs the configuration of the model alone. The text is checked where it and the tokenizer are at hand.

    Args:
        recipe: what would be run.
        devices: how many would run it; None is torchrun's number.
        memory: bytes of one device, to name the way of sharding that fits.

    Raises:
        UsageError, MissingError: the recipe cannot work, or there is no such model.
    """
    count = process_count() if devices is None else devices
    tokens = recipe.batch.size * sum(recipe.objective.reads) * recipe.length
    found = TrainingPlan(
        settings=recipe.to_dict(),
        tokens_to_run=recipe.steps * tokens,
        min_context=recipe.min_context,
        offsets=recipe.offsets,
        processes=count,
        micro_batch=recipe.batch.micro_batch(count),
        accumulation=recipe.batch.accumulation(count),
        tokens_per_step=tokens,
        text_not_checked=_check_text(recipe),
        notes=recipe.notes or None,
    )
    unknown = unknown_cost(recipe.model)
    return replace(found, cost=unknown) if unknown is not None else _with_cost(recipe, found, memory)


def _check_text(recipe: Recipe) -> str | None:
    """Why the text was not checked, if so: a data set on the hub or the tokenizer is not at hand.

    As few documents as possible are tokenised: the longest ones, and without packing those alone that have as many
    bytes as a stretch has tokens.

    Raises:
        UsageError: the text holds no stretch of a step.
    """
    data, needed, found = recipe.data, recipe.length + recipe.offsets[1], 0
    try:
        corpus = load_corpus(data.corpus, split=data.split, text_field=data.text_field)
    except MissingError as error:
        if not data.corpus.startswith(HUB_PREFIX):
            raise
        return error.problem
    if recipe.model in EMBEDDED and made_folder(recipe.model) is None:
        return "the tokenizer is not known before the model has been made"
    try:
        tokenizer = read_tokenizer(resolve(recipe.model, weights=False))
    except MissingError as error:
        return error.problem
    for text in sorted((document.text for document in corpus.documents), key=len, reverse=True):
        if found >= needed or (not data.packing and len(text.encode()) < needed):
            break
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        found = found + len(tokens) + 1 if data.packing else max(found, len(tokens))
    if found < needed:
        raise UsageError(
            f"{corpus.name} holds fewer than {needed} tokens{'' if data.packing else ' in each document'}",
            expected=f"a stretch of length + the last offset = {recipe.length} + {recipe.offsets[1]} tokens",
            fix="a smaller length, longer documents, or data.packing: true",
        )
    return None


def _with_cost(recipe: Recipe, plan: TrainingPlan, card: int | None) -> TrainingPlan:
    model = recipe_skeleton(recipe, read_config(resolve(recipe.model, weights=False)))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    size = {"micro": plan.micro_batch, "devices": plan.processes, "device": _device(recipe)}
    memory = device_memory(recipe, model, **size)
    spread = {name: device_memory(way, model, **size).device for name, way in ways(recipe)}
    if plan.processes == 1:
        spread = {"whole copies": spread["whole copies"]}
    work = run_operations(recipe, model) // plan.processes
    seconds, basis = seconds_at_least(work, device=str(_device(recipe)), dtype=recipe.precision)
    return replace(
        plan,
        memory_by_sharding=spread if plan.processes > 1 else None,
        host_memory_bytes=memory.host or None,
        fits=None if card is None else _fitting(spread, card),
        cost=Cost(
            parameters=total,
            trainable_parameters=trainable,
            memory_bytes=memory.device,
            memory_basis=BASIS,
            seconds_at_least=seconds,
            seconds_basis=basis,
        ),
    )


def _fitting(spread: dict[str, int], card: int) -> str:
    """The first way that fills at most `MARGIN` of the card."""
    for name, need in spread.items():
        if need <= MARGIN * card:
            return name
    name, least = min(spread.items(), key=lambda way: way[1])
    return (
        f"nothing: {name} needs {least / 1e9:.0f} GB of {card / 1e9:.0f}; take more devices, or a smaller length or "
        "batch.micro"
    )


def _device(recipe: Recipe) -> torch.device:
    if recipe.device == "auto" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    return torch.device("cpu")
