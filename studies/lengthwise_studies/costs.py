"""What a study would take: its grid, tokens, memory and time, before any weight is loaded (`reproduce --dry-run`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from lengthwise.errors import MissingError
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
from lengthwise_studies.reading import items_read
from lengthwise_studies.side_by_side import processes_for
from lengthwise_studies.skeleton import Part, Study, chosen_scales
from lengthwise_studies.store import measure_named
from lengthwise_studies.tiny_models import Pretraining, TinyModel


def llama(vocabulary: int, width: int, inner: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    """The configuration of a Llama of this shape; `more` replaces or adds fields."""
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": 8192,
        **more,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": llama(32000, 4096, 11008, 32, 32, max_position_embeddings=4096),
    "meta-llama/Llama-3.1-8B": llama(
        128256, 4096, 14336, 32, 32, num_key_value_heads=8, max_position_embeddings=131072
    ),
    "HuggingFaceTB/SmolLM2-1.7B": llama(49152, 2048, 8192, 24, 32, tie_word_embeddings=True),
    "smollm2-135m": llama(49152, 576, 1536, 30, 9, num_key_value_heads=3, tie_word_embeddings=True),
}
"""The shapes of models that can be planned without the hub, and before their first use."""


H200 = 4e14
"""Operations a second of one NVIDIA H200 in bfloat16 at 40 % of its peak: our assumption for scales that name one."""
_FEW, _MORE = 5, 25
"""Steps that one cell of a study is trained for, to tell the time of a step from that of its tests."""


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """One experiment of a study at a scale, one pretraining, or the cells of a part.

    Args:
        what: the model and the recipe; or what is left out, and why.
        trainings: arms times seeds; cells.
        measured: models that are measured, checkpoints on the way included.
        trained_tokens, read_tokens: over all of them; a view that an arm does not read has none.
        memory_bytes: of the largest training, whole on one device (`device_memory`).
        operations: floating-point operations of all matrix products.
        seconds: of them alone; of cells, from the time of one of them.
        basis: what the time is from, if not from the rate of this machine.
    """

    what: str
    trainings: int = 0
    measured: int = 0
    trained_tokens: int = 0
    read_tokens: int = 0
    memory_bytes: int | None = None
    operations: float = 0.0
    seconds: float = 0.0
    basis: str = ""


def study_costs(
    study: Study, scale: str, *, seeds: int | None = None, steps: int | None = None
) -> list[StudyCost]:
    """The cost of every part of a study; what cannot be planned here for want of a package is named.

    Raises:
        UsageError: as `chosen_scales`.
    """
    found: dict[str, StudyCost] = {}
    for part, size in zip(study.parts, chosen_scales(study, scale, seeds=seeds, steps=steps), strict=True):
        if part.plan is None:
            found[part.heading] = _cells(part, size)
            continue
        for experiment, at in part.plan(size):
            device = _Device.of(experiment, at, getattr(size, "hours_on", None))
            missing = [start for start in at.starts if isinstance(start, TinyModel) and not _is_made(start)]
            found |= {start.name: _pretraining(start, device) for start in missing}
            for one in _by_recipe_and_text(experiment, at):
                cost = _cost(one, at, device)
                found[f"{len(found)}"] = cost
    return list(found.values())


def costs_table(costs: Sequence[StudyCost], *, caption: str) -> Table:
    """One line for each of them, and their sum."""
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
    bases = sorted({one.basis for one in costs} - {""}) or [
        "that of the matrix products alone, at the rate of this machine, measured just now (expect up to three times)"
    ]
    return Table(
        columns=["what", "trainings", "measured", "tokens trained", "tokens read", "memory", "time at least"],
        rows=[*lines, ["all", *[""] * 5, _duration(sum(one.seconds for one in costs))]],
        caption=caption,
        notes=[
            f"Time is {'; '.join(bases)}. Greedy replies (LongBench-E) are not counted. Memory is that of the "
            f"largest training, whole on one device: {BASIS}."
        ],
    )


@dataclass(frozen=True)
class _Device:
    kind: torch.device
    rate: float
    """Operations a second."""
    name: str
    """Of the hardware that the scale assumes; "" for this machine."""

    @classmethod
    def of(cls, experiment: Experiment, scale: Scale, assumed: float | None) -> _Device:
        if assumed is not None:
            name = f"{assumed / H200:g} NVIDIA H200 in bfloat16 at 40 % of the peak"
            return cls(torch.device("cuda"), assumed, f"what this scale assumes, {name}: the products alone")
        device = usable_device("auto")
        return cls(torch.device(device), _rate(device, _dtype(experiment, scale)), "")


@cache
def _rate(device: str, dtype: str) -> float:
    return product_rate(device, dtype)


def _cells(part: Part, size: Any) -> StudyCost:
    """Cells, from one that is trained for a few steps and tested; or a part that computes its numbers."""
    if part.cells is None:
        return StudyCost(what=f"{part.heading}: computed", basis="a minute at most for what is computed")
    cells, work = part.cells(size)
    middle = cells[len(cells) // 2]

    def seconds(steps: int) -> float:
        started = time.perf_counter()
        work(middle, scale=replace(size, steps=steps))
        return time.perf_counter() - started

    seconds(_FEW)
    few = seconds(_FEW)
    a_step = max(0.0, seconds(_MORE) - few) / (_MORE - _FEW)
    each = few + a_step * max(0, size.steps - _FEW)
    processes = processes_for(size.steps, len(cells))
    return StudyCost(
        what=f"{part.heading}: cells, {processes} at once",
        trainings=len(cells),
        measured=len(cells),
        seconds=each * len(cells) / processes,
        basis=f"of cells that all take as long as one of them did just now, {_MORE} steps long",
    )


def _is_made(start: TinyModel) -> bool:
    return (cache_dir() / "models" / start.name / "config.json").is_file()


def _pretraining(start: TinyModel, device: _Device) -> StudyCost:
    tokens = start.steps * Pretraining.batch_size * start.length
    work = _work(model_skeleton(start.make().config), tokens, start.length, passes=6)
    return StudyCost(
        what=f"pretraining {start.name}",
        trainings=1,
        trained_tokens=tokens,
        operations=work,
        seconds=work / device.rate,
        basis=device.name,
    )


def _by_recipe_and_text(experiment: Experiment, scale: Scale) -> list[Experiment]:
    groups: dict[tuple[str | None, str], list[Arm]] = {}
    for arm in experiment.arms:
        groups.setdefault((arm.recipe or experiment.recipe, arm.text or scale.text), []).append(arm)
    return [replace(experiment, arms=tuple(arms)) for arms in groups.values()]


def _cost(experiment: Experiment, scale: Scale, device: _Device) -> StudyCost:
    """Of arms with one recipe and one text."""
    first = experiment.arms[0]
    what = ", ".join(filter(None, (scale.model, first.recipe or experiment.recipe, first.text or scale.text)))
    start = scale.starts[0] if scale.starts else None
    try:
        config = start.make().config if isinstance(start, TinyModel) else shape(scale.model)
    except MissingError as error:
        return StudyCost(what=f"left out: {what} ({error})")
    seeds = scale.seeds if experiment.seeded else 1
    plain = model_skeleton(config)
    work, trained_tokens, read_tokens, memory = 0.0, 0, 0, None
    trainings = measured = 0
    for arm in experiment.arms:
        measures = [scale.measures_of(arm)]
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
            most = device_memory(recipe, model, micro=recipe.batch.cut(1)[0], devices=1, device=device.kind)
            memory = max(memory or 0, most["device"])
            trainings += seeds
            measures += [scale.mark_measures] * len(scale.marks)
        for each in measures:
            tokens, reading = _reading(each, plain)
            read_tokens += models * tokens
            work += models * reading
        measured += models * len(measures)
    return StudyCost(
        what=what,
        trainings=trainings,
        measured=measured,
        trained_tokens=trained_tokens,
        read_tokens=read_tokens,
        memory_bytes=memory,
        operations=work,
        seconds=work / device.rate,
        basis=device.name,
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
