"""What a recipe would do, before any weight is loaded: `lengthwise train --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from lengthwise.alignment.chunked import default_chunk_size
from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError
from lengthwise.models.embedded import EMBEDDED, made_folder
from lengthwise.models.extension import plan_extension, write_extension
from lengthwise.models.plan import Cost, model_skeleton, seconds_at_least, unknown_cost
from lengthwise.models.resolve import read_config, read_tokenizer
from lengthwise.text import load_corpus
from lengthwise.text.corpus import Document
from lengthwise.training.far_text import most_tokens_read
from lengthwise.training.initial_model import obstacle_in_structure
from lengthwise.training.processes import process_count
from lengthwise.training.recipe import Recipe
from lengthwise.training.recipe_reading import check_recipe
from lengthwise.training.trained_model import add_adapter, check_positions, check_teacher


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A recipe with its defaults filled in, and what it takes. The cost is unknown until the model has been made."""

    recipe: dict[str, Any]
    min_context: int
    offsets: list[int]
    steps: int
    processes: int
    samples_per_step: int
    micro_batch: int
    """Samples at a time on one device."""
    accumulation: int
    """Micro-batches of one optimizer step on one device."""
    tokens_per_step: int
    tokens: int
    ranking_tokens: int = 0
    """Tokens that `data.select: far` reads before the first step, at most; forward passes alone."""
    cost: Cost = field(default_factory=Cost)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the cost's are at the same level."""
        plain = asdict(self)
        cost = plain.pop("cost")
        return plain | {name: value for name, value in cost.items() if name not in ("device", "dtype")}


def plan(recipe: Recipe) -> TrainingPlan:
    """The plan of `recipe`.

    Raises:
        UsageError, MissingError: the recipe cannot work, or there is no such model.
    """
    check_recipe(recipe)
    able = _check_text(recipe)
    count = process_count()
    accumulation = recipe.batch.accumulation(count)
    tokens = recipe.batch.size * 2 * recipe.length
    found = TrainingPlan(
        recipe=recipe.to_dict(),
        min_context=recipe.min_context,
        offsets=list(recipe.offsets),
        steps=recipe.steps,
        processes=count,
        samples_per_step=recipe.batch.size,
        micro_batch=recipe.batch.size // count // accumulation,
        accumulation=accumulation,
        tokens_per_step=tokens,
        tokens=recipe.steps * tokens,
        ranking_tokens=most_tokens_read(recipe, able),
    )
    return replace(found, cost=unknown_cost(recipe.model) or _cost(recipe, found))


def _check_text(recipe: Recipe) -> int:
    """Documents of as many bytes as a stretch of a step has tokens; UsageError if the text holds no such stretch.

    As few documents as possible are tokenised. A token is a byte at least, so a text of fewer bytes is refused at
    once. The tokenizer of an embedded model that has not been built is not known.
    """
    corpus = load_corpus(recipe.data.corpus, split=recipe.data.split, text_field=recipe.data.text_field)
    needed = recipe.length + recipe.offsets[1]
    longest = sorted(corpus.documents, key=lambda document: len(document.text), reverse=True)
    able = sum(_bytes([document]) > recipe.length for document in longest)
    held = _bytes(longest) if recipe.data.packing else max(_bytes([document]) for document in longest)
    if held >= needed and recipe.model in EMBEDDED and made_folder(recipe.model) is None:
        return able
    # The text of fewer bytes is not tokenised: its bytes are what it could hold at most.
    found = held
    if held >= needed:
        tokenizer = read_tokenizer(recipe.model)
        found = 0
        for document in longest:
            if found >= needed or (not recipe.data.packing and _bytes([document]) < needed):
                break
            tokens = tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"]
            found = found + len(tokens) + 1 if recipe.data.packing else max(found, len(tokens))
    if found < needed:
        raise UsageError(
            f"{corpus.name} holds no {needed} tokens in one document"
            if not recipe.data.packing
            else f"{corpus.name} holds fewer than {needed} tokens",
            expected=f"a stretch of length + the last offset = {recipe.length} + {recipe.offsets[1]} tokens",
            fix="a smaller length, longer documents, or data.packing: true",
        )
    return able


def _bytes(documents: Sequence[Document]) -> int:
    return sum(len(document.text.encode()) + 1 for document in documents)


def _cost(recipe: Recipe, plan: TrainingPlan) -> Cost:
    model = _skeleton(recipe)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    memory, memory_basis = _memory(recipe, model, total, trainable, plan.micro_batch)
    # Forward 2, gradient of activations 2, gradient of weights 2 for each trained weight and token of a trained view.
    recomputed = 2 if recipe.gradient_checkpointing else 0
    read, trained = _passes(recipe.objective)
    view = plan.tokens // plan.processes // 2
    work = view * (trained * ((2 + recomputed) * total + 2 * trainable) + read * 2 * total)
    work += plan.ranking_tokens * 2 * total
    seconds, basis = seconds_at_least(work, device=str(_device(recipe)), dtype=recipe.precision)
    return Cost(
        parameters=total,
        trainable_parameters=trainable,
        memory_bytes=memory,
        memory_basis=memory_basis,
        seconds_at_least=seconds,
        seconds_basis=basis,
    )


def _skeleton(recipe: Recipe) -> Any:
    """The model with its adapter, without weights."""
    config = read_config(recipe.model)
    if (section := recipe.extend) is not None:
        extension = plan_extension(
            config,
            section.method,
            factor=section.factor,
            original_length=section.original_length,
            options=section.options,
            name=recipe.model,
        )
        write_extension(config, extension)
    model = model_skeleton(config)
    check_positions(recipe, model)
    check_teacher(recipe, model)
    with torch.device("meta"):
        return add_adapter(model, recipe.adapter or recipe.peft)


def _passes(objective: Objective) -> tuple[int, int]:
    """How many forward passes each window takes, and how many of them have gradients."""
    if objective.budget is not None:
        # It finds an alpha above 0; the initial model reads the long view.
        objective = replace(objective, alpha=1.0, budget=None)
        return sum(objective.reads) + 1, sum(objective.trains)
    return sum(objective.reads), sum(objective.trains)


def _memory(recipe: Recipe, model: Any, total: int, trainable: int, micro: int) -> tuple[int, str]:
    mixed = recipe.precision == "bfloat16"
    frozen_bytes = 2 if mixed else 4
    small = _quantized_weights(recipe, model)
    # 4 bits, and for each 64 weights a scale of 4 bytes, or of 1 byte with 4 for each 256 of those.
    small_bytes = 0.5 + (1 / 64 + 4 / (64 * 256) if recipe.quantize and recipe.quantize.double else 4 / 64)
    weights = round((total - trainable - small) * frozen_bytes + small * small_bytes) + 4 * trainable
    # Gradient and AdamW's two moments, all float32; mixed precision adds a bfloat16 copy of what is trained.
    state = weights + trainable * (12 + (2 if mixed else 0))
    objective = recipe.objective
    keeps_initial = objective.teacher == "initial" or objective.budget is not None
    if keeps_initial and obstacle_in_structure(model) is not None:
        state += weights + sum(buffer.nbytes for buffer in model.buffers())
    config = model.config.get_text_config()
    width, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * width
    # Bytes that a Llama block keeps for each token's backward pass, counted with saved-tensor hooks.
    block = 4 * (9 * width + 2.4 * inner) if mixed else 4 * (10 * width + 4 * inner)
    # With checkpointing, the inputs of all blocks and the inside of the one that is recomputed.
    kept = layers * 4 * width + block if recipe.gradient_checkpointing else layers * block
    _, views = _passes(objective)
    activations = round(views * micro * recipe.length * kept)
    basis = (
        "weights (of a copy of the initial model too), gradients and AdamW's moments exactly; what the blocks keep "
        "for the backward pass as counted for a Llama; one chunk of logits. On a CPU about 1 GB more was resident "
        "with a model of 135M parameters (libraries, weight file, working memory)"
    )
    dtype = torch.bfloat16 if mixed else torch.float32
    pairs = default_chunk_size(config.vocab_size, dtype, _device(recipe))
    return state + activations + 2 * pairs * config.vocab_size * dtype.itemsize, basis


def _quantized_weights(recipe: Recipe, model: Any) -> int:
    """Weights that will be kept in 4 bits: the frozen ones of linear layers, but for the head."""
    if recipe.quantize is None:
        return 0
    head = set(model.get_output_embeddings().modules())
    return sum(
        m.weight.numel()
        for m in model.modules()
        if isinstance(m, torch.nn.Linear) and m not in head and not m.weight.requires_grad
    )


def _device(recipe: Recipe) -> torch.device:
    if recipe.device == "auto" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    return torch.device("cpu")
