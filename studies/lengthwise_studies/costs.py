"""What a study would take: its grid, tokens, memory and time, before any weight is loaded (`reproduce --dry-run`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lengthwise.files import cache_dir
from lengthwise.machine import product_rate, usable_device
from lengthwise.models.embedded_models import EMBEDDED, made_folder
from lengthwise.models.plan import model_skeleton
from lengthwise.models.resolve import read_config
from lengthwise.report.tables import Cell, Table
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import (
    BASIS,
    device_memory,
    run_operations,
    training_operations,
)
from lengthwise_studies.arms import Arm, Measures, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.precision import fast_dtype
from lengthwise_studies.pretraining import Pretraining
from lengthwise_studies.reading import items_read
from lengthwise_studies.skeleton import Study, chosen_scales
from lengthwise_studies.store import measure_named
from lengthwise_studies.tiny_models import TinyModel

LLAMA = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}
SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": LLAMA
    | {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
    },
    "meta-llama/Llama-3.1-8B": LLAMA
    | {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "HuggingFaceTB/SmolLM2-1.7B": LLAMA
    | {
        "vocab_size": 49152,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 130000.0},
    },
    "smollm2-135m": LLAMA
    | {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
}
"""The shapes of models whose costs are told without the hub, and before the first use."""


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """One experiment of a study at a scale.

    Args:
        what: the model and the recipe.
        trainings: arms times seeds.
        measured: models that are measured, checkpoints on the way included.
        trained_tokens, read_tokens: over all of them; a view that an arm does not read has none.
        memory_bytes: of the largest training, whole on one device (`device_memory`).
        operations: floating-point operations of all matrix products.
        rate: operations a second.
    """

    what: str
    trainings: int
    measured: int
    trained_tokens: int
    read_tokens: int
    memory_bytes: int | None
    operations: float
    rate: float

    @property
    def seconds(self) -> float:
        """The matrix products alone."""
        return self.operations / self.rate


def study_costs(
    study: Study, scale: str, *, seeds: int | None = None, steps: int | None = None
) -> list[StudyCost]:
    """The cost of every experiment of a study; empty for a study of another kind.

    Raises:
        UsageError: as `chosen_scales`.
    """
    sizes = chosen_scales(study, scale, seeds=seeds, steps=steps)
    rates: dict[str, float] = {}
    found: list[StudyCost] = []
    planned: set[str] = set()
    for part, size in zip(study.parts, sizes, strict=True):
        hardware = getattr(size, "hours_on", None)
        for experiment, at in part.plan(size) if part.plan is not None else ():
            dtype = _dtype(experiment, at)
            if hardware is None and dtype not in rates:
                rates[dtype] = product_rate(usable_device("auto"), dtype)
            rate = hardware or rates[dtype]
            # The hardware that scales name are GPUs.
            device = torch.device("cuda" if hardware else usable_device("auto"))
            missing = [start for start in at.starts if isinstance(start, TinyModel) and not _is_made(start)]
            for start in missing:
                if start.name not in planned:
                    found.append(_pretraining(start, rate))
                    planned.add(start.name)
            found += _costs(experiment, at, rate, device)
    return found


def costs_table(costs: Sequence[StudyCost], *, caption: str) -> Table:
    """One line for each experiment, and their sum."""
    lines: list[list[Cell]] = [
        [
            one.what,
            one.trainings,
            one.measured,
            f"{one.trained_tokens:,}",
            f"{one.read_tokens:,}",
            "" if one.memory_bytes is None else f"{one.memory_bytes / 1e9:.2g} GB",
            _duration(one.seconds),
        ]
        for one in costs
    ]
    total = sum(one.seconds for one in costs)
    return Table(
        columns=["what", "trainings", "measured", "tokens trained", "tokens read", "memory", "time at least"],
        rows=[*lines, ["all", *[""] * 5, _duration(total)]],
        caption=caption,
        notes=[
            "Time is that of the matrix products alone, at the rate of this machine, measured just now, or that the "
            "scale names for its hardware; expect up to three times it. Greedy replies (LongBench-E) are not "
            f"counted. Memory is that of the largest training, whole on one device: {BASIS}."
        ],
    )


def _is_made(start: TinyModel) -> bool:
    return (cache_dir() / "models" / start.name / "config.json").is_file()


def _pretraining(start: TinyModel, rate: float) -> StudyCost:
    tokens = start.steps * Pretraining.batch_size * start.length
    return StudyCost(
        what=f"pretraining {start.name}",
        trainings=1,
        measured=0,
        trained_tokens=tokens,
        read_tokens=0,
        memory_bytes=None,
        operations=_work(model_skeleton(start.make().config), tokens, start.length, passes=6),
        rate=rate,
    )


def _costs(experiment: Experiment, scale: Scale, rate: float, device: torch.device) -> list[StudyCost]:
    """One for each recipe and text of the arms."""
    groups: dict[tuple[str | None, str], list[Arm]] = {}
    for arm in experiment.arms:
        groups.setdefault((arm.recipe or experiment.recipe, arm.text or scale.text), []).append(arm)
    return [
        _cost(replace(experiment, arms=tuple(arms)), scale, recipe, text, rate, device)
        for (recipe, text), arms in groups.items()
    ]


def _cost(
    experiment: Experiment,
    scale: Scale,
    recipe_name: str | None,
    text: str,
    rate: float,
    device: torch.device,
) -> StudyCost:
    start = scale.starts[0] if scale.starts else None
    config = start.make().config if isinstance(start, TinyModel) else shape(scale.model)
    seeds = scale.seeds if experiment.seeded else 1
    plain = model_skeleton(config)
    work, trained_tokens, read_tokens, memory = 0.0, 0, 0, None
    trainings = measured = 0
    for arm in experiment.arms:
        measures = [arm.measures or (scale.measures if arm.changes is None else scale.of_trained)]
        models = seeds if scale.starts or arm.changes is not None else 1
        if arm.changes is not None:
            recipe = experiment.recipe_of(replace(scale, starts=()), arm, 0)
            assert recipe is not None
            model = recipe_skeleton(recipe, config)
            view = seeds * recipe.steps * recipe.batch.size * recipe.length
            trained_tokens += view * sum(recipe.objective.reads)
            attention = attention_factors(model, recipe.length)
            work += seeds * run_operations(recipe, model)
            work += view * training_operations(recipe, attention, attention)
            most = device_memory(recipe, model, micro=recipe.batch.cut(1)[0], devices=1, device=device)
            memory = max(memory or 0, most["device"])
            trainings += seeds
            measures += [scale.mark_measures] * len(scale.marks)
        for each in measures:
            tokens, reading = _reading(each, plain)
            read_tokens += models * tokens
            work += models * reading
        measured += models * len(measures)
    return StudyCost(
        what=", ".join(filter(None, (scale.model, recipe_name, text))),
        trainings=trainings,
        measured=measured,
        trained_tokens=trained_tokens,
        read_tokens=read_tokens,
        memory_bytes=memory,
        operations=work,
        rate=rate,
    )


def shape(name: str) -> Any:
    """The configuration of a model, from the table where the hub or its first use would be needed."""
    from transformers import AutoConfig

    if name in SHAPES and (name not in EMBEDDED or made_folder(name) is None):
        shape = dict(SHAPES[name])
        return AutoConfig.for_model(shape.pop("model_type"), **shape)
    return read_config(name)


def _work(model: Any, tokens: int, context: int, *, passes: int) -> float:
    """Operations of the weights and of causal attention over rows of `context` tokens; a forward pass counts 2."""
    weights = sum(p.numel() for p in model.parameters())
    return float(passes) * tokens * (weights + attention_factors(model, context))


def _reading(measures: Measures, model: Any) -> tuple[int, float]:
    """Tokens that the measures read of one model, and their operations."""
    tokens, work = 0, 0.0
    for name, settings in measures.items():
        kind = measure_named(name)
        if kind.reads == "questions":
            made = settings.get("lengths", ())
            many = (
                len(settings["tasks"]) * len(settings.get("depths", (0,))) * (settings.get("samples") or 10)
            )
            parts = [(many * length, length) for length in made]
        else:
            trained = getattr(model.config.get_text_config(), "max_position_embeddings", None)
            parts = [(item.tokens, item.longest) for item in items_read(kind(**settings), trained=trained)]
        for count, longest in parts:
            tokens += count
            work += _work(model, count, longest, passes=2)
    return tokens, work


def _dtype(experiment: Experiment, scale: Scale) -> str:
    trained = next(iter(experiment.trained_arms), None)
    recipe = experiment.recipe_of(replace(scale, starts=()), trained)
    if recipe is None or experiment.fast_training:
        return fast_dtype() if experiment.dtype == "fast" else "float32"
    return recipe.precision


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def attention_factors(model: Any, context: int) -> int:
    """Products of one token's causal attention, on average over a row of `context` tokens: layers * width * context.

    Queries meet half of the keys, and as many values.
    """
    config = model.config.get_text_config()
    return config.num_hidden_layers * config.hidden_size * context
