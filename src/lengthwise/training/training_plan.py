"""What a recipe would do and take, from shapes alone: `lengthwise train --dry-run`."""

from __future__ import annotations

from typing import Any

import torch

from lengthwise.alignment.chunked import default_chunk_size
from lengthwise.checkpoints.hidden import parameter_counts, unwrap
from lengthwise.checkpoints.layer_settings import by_layer
from lengthwise.checkpoints.resolve import read_config, read_tokenizer, resolve
from lengthwise.errors import MissingError, require, require_kind
from lengthwise.machine import process_count
from lengthwise.measure.runner import plan_run
from lengthwise.settings import Subject
from lengthwise.subjects.plan import (
    layers_to_quantize,
    saved_by_quantization,
    seconds_at_least,
    unknown_cost,
)
from lengthwise.text import WindowSampler
from lengthwise.text.corpus import HUB_PREFIX
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import (
    FULL_PRECISION,
    held_out_text,
    recipe_skeleton,
    training_documents,
)
from lengthwise.training.views import least_context

BASIS = (
    "gradients and AdamW's moments exactly; what sharded training gathers by unit; what the blocks keep for "
    "the backward pass as counted for a Llama; one chunk of logits. On a CPU about 1 GB more was resident with a "
    "model of 135M parameters (libraries, weight file, working memory)"
)


def plan(recipe: Recipe, *, devices: int | None = None) -> dict[str, Any]:
    """What `recipe` would do and take: plain values, as `lengthwise train --dry-run --json` prints them.

    Needs the configuration of the model alone. The text is checked where it and the tokenizer are at hand. `devices`
    is torchrun's number by default; memory and time are those of each.

    Returns:
        `settings`, `min_context` and `offsets` with their defaults filled in; `micro_batch` samples at a time on one
        of `processes` devices, and `accumulation` of them a step; the tokens that are read (`tokens_per_step`,
        `tokens_to_run`); the cost, unknown until the model has been made. Only where there is something to tell:
        `text_not_checked`, `notes`, `host_memory_bytes` (for each device, with offload).

    Raises:
        UsageError, MissingError: the recipe cannot work, or there is no such model.
    """
    require_kind("the recipe", recipe, Recipe, "a Recipe, or read_recipe(PATH)")
    count = process_count() if devices is None else devices
    require(count >= 1, f"devices is {count}", "1 or more")
    tokens = recipe.batch.size * sum(recipe.objective.reads) * recipe.length
    micro, accumulation = recipe.batch.cut(count)
    found = {
        "settings": recipe.to_dict(),
        "tokens_to_run": recipe.steps * tokens,
        "min_context": least_context(recipe.views, recipe.length, recipe.min_context),
        "offsets": recipe.view.offsets,
        "processes": count,
        "micro_batch": micro,
        "accumulation": accumulation,
        "tokens_per_step": tokens,
        "text_not_checked": "the tokenizer is not known before the model has been made",
        "notes": recipe.notes or None,
    }
    cost = unknown_cost(recipe.model)
    if cost is None:
        found["text_not_checked"] = _check_text(recipe)
        cost, host = _cost(recipe, micro, count)
        found["host_memory_bytes"] = host or None
    return {name: value for name, value in found.items() if value is not None} | cost


def _check_text(recipe: Recipe) -> str | None:
    """Check that the texts are long enough, also for what `eval` measures.

    Why that was not checked, if the tokenizer or a data set on the hub is missing.
    """
    try:
        tokenizer = read_tokenizer(resolve(recipe.model))
    except MissingError as error:
        return error.problem
    held, size = recipe.eval, recipe.view.longest_stretch
    try:
        WindowSampler(training_documents(recipe, tokenizer)[0]).window(0, size)
        if held is not None:
            WindowSampler(held_out_text(recipe, tokenizer)[1]).window(0, size)
    except MissingError as error:
        if not any(
            text and text.startswith(HUB_PREFIX) for text in (recipe.data.corpus, held and held.corpus)
        ):
            raise
        return error.problem
    # How far an extended model reads is not known without it.
    if held is not None and recipe.extend is None:
        text: dict[str, Any] = recipe.data.of_text()
        text |= {"text": held.corpus or recipe.data.corpus, "split": held.split}
        for measurement in held.measured():
            plan_run(measurement, Subject(model=recipe.model, **(text if measurement.reads else {})))
    return None


def _cost(recipe: Recipe, micro: int, devices: int) -> tuple[dict[str, Any], int]:
    """The cost on each device, and the bytes of main memory for it."""
    model = recipe_skeleton(recipe, read_config(recipe.model))
    device = (not recipe.on_cpu and torch.accelerator.current_accelerator()) or torch.device("cpu")
    memory = device_memory(recipe, model, micro=micro, devices=devices, device=device)
    work = run_operations(recipe, model) // devices
    seconds, basis = seconds_at_least(work, device=str(device), dtype=recipe.precision, fix=FULL_PRECISION)
    parameters, trained = parameter_counts(model)
    cost = {
        "parameters": parameters,
        "trainable_parameters": trained,
        "memory_bytes": memory["device"],
        "memory_basis": f"{_quantized(recipe, model)[1]}; {BASIS}",
        "seconds_at_least": seconds,
        "seconds_basis": basis,
    }
    return cost, memory["host"]


def device_memory(
    recipe: Recipe, model: Any, *, micro: int, devices: int, device: torch.device
) -> dict[str, int]:
    """Bytes that each of `devices` devices needs to train `recipe` as its `parallel` says; one of them has all of it.

    `model` has its adapter, and may be on the meta device; `micro` are the samples at a time on a device, and
    `device` is the kind of device whose chunk of logits is meant.

    Returns:
        `device`, the sum on a device, and `host`, in main memory for it; and their parts: `state` (weights, gradients
        and optimizer state that the device keeps; in main memory with offload), `gathered` (weights and gradients of
        other devices' shares, while they are used), `activations`, `logits`.
    """
    if devices == 1:
        recipe = recipe.model_copy(update={"parallel": None})
    config = model.config.get_text_config()
    dtype = torch.bfloat16 if recipe.precision == "bfloat16" else torch.float32
    state, gathered = _state(recipe, model, devices)
    chunk = default_chunk_size(config.vocab_size, dtype, device)
    passing = {
        "gathered": gathered,
        "activations": _activations(recipe, config, micro),
        "logits": 2 * chunk * config.vocab_size * dtype.itemsize,
    }
    host = state if recipe.parallel is not None and recipe.parallel.offload else 0
    return {"device": sum(passing.values()) + state - host, "host": host, "state": state, **passing}


def training_operations(recipe: Recipe, factors: int, trained: int) -> int:
    """Floating-point operations for each token of one view: `(T (2 + R) + 2 V) factors + 2 T trained`.

    V views are read and T of them trained; R is 2 where the forward pass is recomputed. A product takes 2
    operations forward, 2 for the gradient of its input, and 2 for that of its other factor where it is trained.

    `factors` are products of one token: weights, or those of attention. Of them `trained` are those whose other
    factor gets a gradient.
    """
    read, graded = sum(recipe.objective.reads), sum(recipe.objective.trains)
    recomputed = 2 if recipe.gradient_checkpointing else 0
    return graded * ((2 + recomputed) * factors + 2 * trained) + read * 2 * factors


def run_operations(recipe: Recipe, model: Any) -> int:
    """Floating-point operations of all steps, over all devices, for products with weights of a `recipe_skeleton`."""
    tokens = recipe.steps * recipe.batch.size * recipe.length
    return tokens * training_operations(recipe, *parameter_counts(model))


def _quantized(recipe: Recipe, model: Any) -> tuple[int, str]:
    """What quantization saves of the frozen weights: see `saved_by_quantization`."""
    itemsize = 2 if recipe.precision == "bfloat16" else 4
    layers = [layer for layer in layers_to_quantize(model) if not layer.weight.requires_grad]
    every, trainable = parameter_counts(model)
    whole, config = (every - trainable) * itemsize, unwrap(model).config
    return saved_by_quantization(
        recipe.model, config, layers, recipe.quantize, whole=whole, itemsize=itemsize
    )


def _state(recipe: Recipe, model: Any, devices: int) -> tuple[int, int]:
    """Bytes that a device keeps, and bytes that it gathers besides."""
    itemsize = 2 if recipe.precision == "bfloat16" else 4
    every, trainable = parameter_counts(model)
    weights = (every - trainable) * itemsize + 4 * trainable
    weights -= _quantized(recipe, model)[0]
    # Gradient and AdamW's two moments, all float32.
    state = weights + 12 * trainable
    if recipe.parallel is None:
        # Autocast's copies; and the buckets in which gradients are summed over devices.
        return round(state + trainable * ((2 if itemsize == 2 else 0) + (4 if devices > 1 else 0))), 0
    # The units that accelerate shards: blocks, the head with the final norm, the embedding (one with a tied head).
    base = unwrap(model)
    kinds = base._no_split_modules or ()
    blocks = [parameter_counts(each)[0] for each in base.modules() if type(each).__name__ in kinds]
    head, embeddings = base.get_output_embeddings(), base.get_input_embeddings()
    assert head is not None
    tail = parameter_counts(head)[0]
    embedding = 0 if head.weight is embeddings.weight else parameter_counts(embeddings)[0]
    block = max(blocks, default=0)
    used = 2 * block + tail if recipe.parallel.sharding == "full_shard" else every
    # Whole gradients of one unit, and their float32 copy on the way to the shares.
    gradients = trainable // max(1, len(blocks))
    if trainable > every - trainable:
        gradients = max(tail, embedding, block)
    return round(state / devices), itemsize * used + (itemsize + 4) * gradients


def _activations(recipe: Recipe, config: Any, micro: int) -> int:
    width, layers = config.hidden_size, config.num_hidden_layers
    inner = max(size or 4 * width for size in by_layer(config, "intermediate_size"))
    # Bytes that a Llama block keeps for each token's backward pass, counted with saved-tensor hooks.
    block = 4 * (9 * width + 2.4 * inner) if recipe.precision == "bfloat16" else 4 * (10 * width + 4 * inner)
    # With checkpointing, the inputs of all blocks and the inside of the one that is recomputed.
    kept = layers * 4 * width + block if recipe.gradient_checkpointing else layers * block
    return round(sum(recipe.objective.trains) * micro * recipe.length * kept)
