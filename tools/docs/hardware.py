"""Memory and operations by model, length, verb and training form, from shapes by the formulas of `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.measure.limit import MOST_REFERENCE
from lengthwise.measure.measurement import Item, Measurement
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.models.known_shapes import SHAPES
from lengthwise.models.plan import reading_bytes
from lengthwise.training.recipe import Adapter, Batch, Data, Optimizer, Parallel, Recipe
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import device_memory, training_operations
from lengthwise_studies.costs import attention_factors, items_read

LENGTHS = tuple(1024 * 2**k for k in range(2, 8))
"""4k to 128k tokens."""
DEVICES = 8
SIZES: dict[str, dict[str, Any]] = {
    "135M": SHAPES["smollm2-135m"],
    "1B": SHAPES["meta-llama/Llama-3.2-1B"],
    "8B": SHAPES["meta-llama/Llama-3.1-8B"],
    "70B": SHAPES["meta-llama/Llama-3.1-70B"],
}
"""SmolLM2-135M, Llama 3.2 1B, Llama 3.1 8B and 70B."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A verb at a length L, and how it reads one sample."""

    verb: str
    command: str
    settings: Callable[[int], dict[str, Any]]
    """Of its spec, at L."""
    split: Callable[[Any], tuple[int, int]] | None = None
    """Of the spec: how many of a sample's tokens are read in rows of L, and the row of the others. None: all."""

    def made(self, length: int) -> Any:
        """The spec at L; UsageError where it takes no such length."""
        return MEASUREMENTS[self.verb].measurement(**self.settings(length))

    def parts(self, length: int) -> list[tuple[int, int]] | None:
        """(tokens, tokens of a row) of one sample; None where the spec takes no such length."""
        try:
            spec = self.made(length)
        except UsageError:
            return None
        tokens = sum(item.tokens for item in one_sample(spec, length))
        whole, row = (tokens, length) if self.split is None else self.split(spec)
        return [(whole, length), (tokens - whole, row)]


@cache
def one_sample(spec: Measurement, length: int) -> list[Item]:
    """All that is read of one window: at every length, after each first passage."""
    items = items_read(spec, trained=length, texts=1)
    facts = items[0].facts
    return [item for item in items if all(item.facts[name] == facts[name] for name in ("document", "start"))]


READINGS = (
    Reading(verb="measure", command="measure --length L", settings=lambda n: {"lengths": (n,)}),
    Reading(verb="ppl", command="ppl --length L", settings=lambda n: {"lengths": (n,)}),
    Reading(verb="recall", command="recall --distance L-64", settings=lambda n: {"distances": (n - 64,)}),
    Reading(
        verb="limit",
        command="limit --max-length L",
        settings=lambda n: {"length": n},
        split=lambda spec: (2 * spec.length, MOST_REFERENCE),
    ),
    Reading(
        verb="longppl",
        command="longppl --max-length L",
        settings=lambda n: {"length": n},
        split=lambda spec: (spec.length, spec.short + spec.advance),
    ),
    Reading(
        verb="influence",
        command="influence --max-length L",
        settings=lambda n: {"length": n},
        # Once; and for each target once whole, once with gradients, and once without each candidate.
        split=lambda spec: (spec.length * (1 + spec.targets * (2 + spec.candidates)), spec.short),
    ),
)
EVAL = "eval needle_multi_key --length L --mode likelihood"
"""One sample is a context, which its five questions share."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """Which weights a training trains, and over how many devices it is spread."""

    name: str
    devices: int = 1
    lora: bool = False
    quantize: Literal["nf4"] | None = None
    parallel: Parallel | None = None


LORA = Adapter.model_validate(
    {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
)
WAYS = (
    Way(name="LoRA, 4 bits", lora=True, quantize="nf4"),
    Way(name="LoRA", lora=True),
    Way(name=f"LoRA, full_shard on {DEVICES}", lora=True, devices=DEVICES, parallel=Parallel()),
    Way(name="all weights"),
    Way(name=f"all weights, full_shard on {DEVICES}", devices=DEVICES, parallel=Parallel()),
)
FORMS: dict[str, dict[str, Any]] = {
    "CE on one view": {"alpha": 0.0, "ce_on": "short"},
    "gap with KL": {"alpha": 1.0, "divergence": "kl", "detach": "long", "ce_on": "short"},
    "truncation pair": {"alpha": 0.1, "divergence": "sce"},
}


@cache
def _model(size: str, lora: bool = False, layers: int = 1) -> Any:
    return recipe_skeleton(_recipe(Way(name="", lora=lora)), _config(size, layers))


def _config(size: str, layers: int) -> Any:
    from transformers import AutoConfig

    # Positions for every length of the tables.
    shape = SIZES[size] | {"num_hidden_layers": layers, "max_position_embeddings": LENGTHS[-1]}
    return AutoConfig.for_model(shape.pop("model_type"), **shape)


def _whole(size: str, of: Callable[[int], int]) -> int:
    """What `of` gives for all layers, from one and two of them: every formula here is affine in their number."""
    one, two = of(1), of(2)
    return one + (SIZES[size]["num_hidden_layers"] - 1) * (two - one)


def _recipe(way: Way, form: str = "CE on one view") -> Recipe:
    return Recipe(
        model="llama",
        data=Data(corpus="books"),
        length=LENGTHS[0],
        steps=1,
        optimizer=Optimizer(learning_rate=1e-4),
        batch=Batch(size=1),
        objective=Objective(**FORMS[form]),
        precision="bfloat16",
        gradient_checkpointing=True,
        adapter=LORA if way.lora else None,
        quantize=way.quantize,
        parallel=way.parallel,
    )


@cache
def _counts(size: str, lora: bool = False) -> tuple[int, int]:
    """Weights, and how many of them are trained."""

    def count(layers: int, trained: bool) -> int:
        parameters = _model(size, lora, layers).parameters()
        return sum(p.numel() for p in parameters if p.requires_grad or not trained)

    return _whole(size, lambda n: count(n, False)), _whole(size, lambda n: count(n, True))


def _attention(size: str, row: int) -> int:
    return _whole(size, lambda layers: attention_factors(_model(size, layers=layers), row))


def reading_operations(size: str, parts: list[tuple[int, int]]) -> int:
    """Of the products of weights and of causal attention; `parts` as `Reading.parts`."""
    weights, _ = _counts(size)
    return sum(2 * tokens * (weights + _attention(size, row)) for tokens, row in parts)


def reading_memory(size: str, at_once: int, *, kept: int = 0) -> int:
    """Bytes in bfloat16 with `at_once` tokens in a forward pass, and keys and values of `kept` tokens."""
    shape = SIZES[size]
    head = shape["hidden_size"] // shape["num_attention_heads"]
    keys_and_values = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head
    weights, _ = _counts(size)
    return reading_bytes(_config(size, 1), weights, at_once=at_once, itemsize=2) + 2 * keys_and_values * kept


@cache
def _one_view(size: str, way: Way) -> tuple[int, int]:
    """Bytes to train one view of one window of the shortest length; and those of its activations."""

    def need(layers: int) -> dict[str, int]:
        model, device = _model(size, way.lora, layers), torch.device("cuda")
        return device_memory(_recipe(way), model, micro=1, devices=way.devices, device=device)

    return _whole(size, lambda n: need(n)["device"]), _whole(size, lambda n: need(n)["activations"])


def training_memory(size: str, way: Way, *, views: int, length: int) -> int:
    """Bytes on a device to train `views` views of one window, with gradient checkpointing, in bfloat16."""
    whole, activations = _one_view(size, way)
    # Activations alone grow with views and length, in proportion to both.
    return whole + activations * (views * length // LENGTHS[0] - 1)


def window_operations(size: str, way: Way, form: str, length: int) -> int:
    """Of the products of weights and of causal attention, to train one window."""
    recipe, attention = _recipe(way, form), _attention(size, length)
    return length * (
        training_operations(recipe, *_counts(size, way.lora))
        + training_operations(recipe, attention, attention)
    )
