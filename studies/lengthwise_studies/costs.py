"""What a study would take: its grid, tokens, memory and time, before any weight is loaded (`reproduce --dry-run`)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.checkpoints.loading import model_skeleton
from lengthwise.checkpoints.resolve import read_config
from lengthwise.errors import MissingError
from lengthwise.files import cache_dir
from lengthwise.machine import product_rate, usable_device, warn_of_emulation
from lengthwise.measure.measurement import Item, Measurement
from lengthwise.report.tables import Cell, Table
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, TokenDocument, TokenDocuments, tokenize
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import BASIS, device_memory, run_operations, training_operations
from lengthwise_studies.arms import Arm, Measures, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.fan_out import processes_for
from lengthwise_studies.known_shapes import known_config
from lengthwise_studies.skeleton import Part, Study, chosen_scales
from lengthwise_studies.step_times import fast_dtype
from lengthwise_studies.store import MEASURES
from lengthwise_studies.tiny_models import Pretraining, TinyModel

H200 = 4e14
"""Operations a second of one NVIDIA H200 in bfloat16 at 40 % of its peak: our assumption for scales that name one."""
_FEW, _MORE = 2, 16
"""Steps, and samples of each test, of the cell that is timed: a step and a sample each have the difference."""


@dataclass(frozen=True, kw_only=True)
class StudyCost:
    """One experiment of a study at a scale, one pretraining, or the cells of a part.

    Args:
        what: the model, the recipes and the texts; or what is left out.
        trainings: arms times seeds; cells.
        measured: models that are measured, checkpoints on the way included.
        trained_tokens, read_tokens: over all of them; a view that an arm does not read has none.
        memory_bytes: of the largest training, whole on one device (`device_memory`).
        operations: floating-point operations of all matrix products.
        seconds: of them alone; of cells, from the time of one of them.
        basis: what the time is from.
        missing: why it is left out.
    """

    what: str
    trainings: int = 0
    measured: int = 0
    trained_tokens: int = 0
    read_tokens: int = 0
    memory_bytes: int = 0
    operations: int = 0
    seconds: float = 0.0
    basis: str = ""
    missing: str = ""


_MEMORY = f"Memory is that of the largest training, whole on one device: weights exactly; {BASIS}."
_Machine = tuple[torch.device, float, str]
"""A device, its operations a second, and what that rate is from."""


def study_costs(study: Study, scale: str, **given: int | str | None) -> list[StudyCost]:
    """The cost of every part of a study; what cannot be planned here for want of a package is named."""
    found: dict[str, StudyCost] = {}
    for part, size in zip(study.parts, chosen_scales(study, scale, **given), strict=True):
        if part.plan is None:
            found[part.heading] = _cells(part, size)
            continue
        for experiment, at in part.plan(size):
            machine = _machine(experiment, at, getattr(size, "cards", None))
            each = ((seed, arm) for arm in experiment.arms for seed in range(at.seeds) if arm.starts_at(seed))
            for start in dict.fromkeys(at.start(*one) for one in each):
                made = cache_dir() / "models" / str(getattr(start, "name", "")) / "config.json"
                if isinstance(start, TinyModel) and not made.is_file():
                    found[start.name] = _pretraining(start, machine)
            found[f"{len(found)}"] = _cost(experiment, at, machine)
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
            f"{float(f'{one.memory_bytes / 1e9:.2g}'):,g} GB" if one.memory_bytes else "",
            tqdm.format_interval(one.seconds),
        ]
        for one in costs
    ]
    bases = "; ".join(sorted({one.basis for one in costs} - {""}))
    return Table(
        columns=["what", "trainings", "measured", "tokens trained", "tokens read", "memory", "time at least"],
        rows=[*lines, ["all", *[""] * 5, tqdm.format_interval(sum(one.seconds for one in costs))]],
        caption=caption,
        notes=[
            *([f"Time is {bases}. Greedy replies (LongBench-E) are not counted."] if bases else []),
            *([_MEMORY] if any(one.memory_bytes for one in costs) else []),
            *dict.fromkeys(f"{one.what}: {one.missing}" for one in costs if one.missing),
        ],
    )


def _machine(experiment: Experiment, scale: Scale, cards: int | None) -> _Machine:
    """So many cards as the scale assumes, or this machine."""
    if cards is not None:
        name = f"{cards} NVIDIA H200 in bfloat16 at 40 % of the peak"
        basis = f"what this scale assumes, {name}: the products alone"
        return torch.device("cuda"), cards * H200, basis
    recipe = _recipe(experiment, scale, experiment.trained_arms[0]) if experiment.trained_arms else None
    dtype = fast_dtype() if experiment.dtype == "fast" else "float32"
    if recipe is not None and not experiment.fast_training:
        dtype = recipe.precision
    device = usable_device("auto")
    if device == "cpu":
        _warn(dtype, "this study", fix="another machine")
    basis = "that of the products alone, at the rate of this machine, measured just now (expect up to three times)"
    return torch.device(device), _rate(device, dtype), basis


_rate = cache(product_rate)
_warn = cache(warn_of_emulation)


def _cells(part: Part, size: Any) -> StudyCost:
    """Cells, from one that is trained for a few steps and tested; or a part that computes its numbers."""
    if part.cells is None:
        basis = "what two cores took" if part.seconds else "a minute at most for what is computed"
        return StudyCost(what=f"{part.heading}: computed", seconds=part.seconds, basis=basis)
    cells, work = part.cells(size)

    def seconds(steps: int, samples: int) -> float:
        started = time.perf_counter()
        work(cells[len(cells) // 2], scale=replace(size, steps=steps, samples=samples))
        return time.perf_counter() - started

    # The first call is slower.
    _, few = seconds(_FEW, _FEW), seconds(_FEW, _FEW)
    step, sample = ((more - few) / (_MORE - _FEW) for more in (seconds(_MORE, _FEW), seconds(_FEW, _MORE)))
    each = few + max(0.0, step) * (size.steps - _FEW) + max(0.0, sample) * (size.samples - _FEW)
    processes = processes_for(size.steps, len(cells))
    return StudyCost(
        what=f"{part.heading}: cells, {processes} at once",
        trainings=len(cells),
        measured=len(cells),
        seconds=max(few, each) * len(cells) / processes,
        basis=f"of cells that all take as long as one of them, from {_MORE} steps and {_MORE} samples of it just now",
    )


def _pretraining(start: TinyModel, machine: _Machine) -> StudyCost:
    tokens = start.steps * Pretraining.batch_size * start.length
    work = _work(_skeleton(start), tokens, start.length, passes=6)
    return StudyCost(
        what=f"pretraining {start.name}",
        trainings=1,
        trained_tokens=tokens,
        operations=work,
        seconds=work / machine[1],
        basis=machine[2],
    )


def _cost(experiment: Experiment, scale: Scale, machine: _Machine) -> StudyCost:
    recipes = [arm.recipe or experiment.recipe for arm in experiment.arms]
    texts = [arm.text or scale.text for arm in experiment.arms]
    what = ", ".join(filter(None, dict.fromkeys([scale.model, *recipes, *texts])))
    total: Counter[str] = Counter()
    (device, rate, basis), memory = machine, 0
    for arm in experiment.arms:
        start = scale.start(0, arm)
        try:
            model = _skeleton(start)
        except MissingError as error:
            return StudyCost(what=f"left out: {what}", missing="; ".join(str(error).splitlines()))
        seeds = scale.seeds if experiment.seeded else 1
        every = arm.own_start or scale.pretrained or arm.changes is not None
        models = sum(map(arm.starts_at, range(seeds))) if every else 1
        measures = [scale.measures_of(arm)]
        if arm.changes is not None:
            recipe = _recipe(experiment, scale, arm)
            trained = _trained(recipe, start)
            view = seeds * recipe.steps * recipe.batch.size * recipe.length
            attention = attention_factors(trained, recipe.length)
            total["trainings"] += seeds
            total["trained_tokens"] += view * sum(recipe.objective.reads)
            total["operations"] += seeds * run_operations(recipe, trained)
            total["operations"] += view * training_operations(recipe, attention, attention)
            micro, _ = recipe.batch.cut(1)
            most = device_memory(recipe, trained, micro=micro, devices=1, device=device)
            memory = max(memory, most["device"])
            measures += [scale.mark_measures] * len(scale.marks)
        total["measured"] += models * len(measures)
        for each in measures:
            for tokens, longest in _read(each, model):
                total["read_tokens"] += models * tokens
                total["operations"] += models * _work(model, tokens, longest, passes=2)
    seconds = total["operations"] / rate
    return StudyCost(what=what, memory_bytes=memory, seconds=seconds, basis=basis, missing="", **total)


def shape(name: str) -> Any:
    """The configuration of a model, from the table where the hub or its first use would be needed."""
    made = name in EMBEDDED and made_folder(name) is not None
    return (None if made else known_config(name)) or read_config(name)


def _config(start: TinyModel | str) -> Any:
    return shape(start) if isinstance(start, str) else start.make().config


@cache
def _skeleton(start: TinyModel | str) -> Any:
    return model_skeleton(_config(start))


def _recipe(experiment: Experiment, scale: Scale, arm: Arm) -> Recipe:
    """That of an arm, without pretraining what it starts from."""
    recipe = experiment.recipe_of(replace(scale, pretrained=None), replace(arm, own_start=None), 0)
    assert recipe is not None
    return recipe


def _trained(recipe: Recipe, start: TinyModel | str) -> Any:
    """What is trained, without weights. Arms of one setting, which differ in the objective alone, share it."""
    plain = recipe.to_dict()
    key = str([start, *(one for one in plain.items() if one[0] not in ("objective", "offsets", "seed"))])
    if key not in _TRAINED:
        _TRAINED[key] = recipe_skeleton(recipe, _config(start))
    return _TRAINED[key]


_TRAINED: dict[str, Any] = {}


def _work(model: Any, tokens: int, context: int, *, passes: int) -> int:
    """Operations of the weights and of causal attention over rows of `context` tokens; a forward pass counts 2."""
    return passes * tokens * (_parameters(model) + attention_factors(model, context))


@cache
def _parameters(model: Any) -> int:
    return model.num_parameters()


def _read(measures: Measures, model: Any) -> Iterator[tuple[int, int]]:
    """The tokens that the measures read of one model, by the longest rows that they are read in."""
    trained = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for name, settings in measures.items():
        yield from _tokens_read(name, json.dumps(dict(settings)), trained)


@cache
def _tokens_read(name: str, settings: str, trained: int | None) -> tuple[tuple[int, int], ...]:
    """The same of one measure: most arms of a study have the same."""
    kind, own, times = MEASURES[name], json.loads(settings), 1
    if kind.about.reads == "questions":
        if "lengths" not in own:
            # A data set: its files may not be here.
            return ()
        # All samples have the same number of tokens, but for a few.
        times, own = own["samples"], {**own, "samples": 1}
    found: Counter[int] = Counter()
    for item in items_read(kind(**own), trained=trained):
        found[item.longest] += times * item.tokens
    return tuple((tokens, longest) for longest, tokens in found.items())


def items_read(measurement: Measurement, *, trained: int | None) -> list[Item]:
    """The items of a measurement of a model that was trained for `trained` tokens, on as much text as it needs."""
    model: Any = SimpleNamespace(
        name="a model", tokenizer=tiny_tokenizer(), trained_length=trained, max_positions=None
    )
    resolved = measurement.resolved(model, model)
    plain = (one if isinstance(one, tuple) else (one,) for _, one in resolved)
    longest = max(each for several in plain for each in several if isinstance(each, int))
    if measurement.reads == "tokens":
        # Room for two of the longest windows, which are made of up to four times the largest setting.
        ids = np.zeros(8 * longest, dtype=np.int32)
        documents = tuple(TokenDocument(str(index), ids) for index in range(64))
        return resolved.items(model, TokenDocuments(documents, "zeros", "", ""), model)
    # A word has at least one token.
    corpus = dict.fromkeys(map(str, range(16)), tiny_text(longest + 1024))
    text = Corpus.of("words", corpus, split="all", split_rule="")
    read = text if measurement.reads == "questions" else (text, tokenize(text, model.tokenizer, cache=False))
    return resolved.items(model, read, model)


def attention_factors(model: Any, context: int) -> int:
    """Products of one token's causal attention, on average over a row of `context` tokens: layers * width * context.

    Queries meet half of the keys, and as many values.
    """
    config = model.config.get_text_config()
    return config.num_hidden_layers * config.hidden_size * context
