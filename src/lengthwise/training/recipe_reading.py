"""Reading a recipe: one flat YAML, checked whole before anything is loaded. Torch loads only for the checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lengthwise.config import override, read_yaml, validate
from lengthwise.errors import UsageError, nearest, shown
from lengthwise.files import named_path
from lengthwise.training.recipe import Adapter, Attention, Extend, Optimizer, Recipe
from lengthwise.training.views import VIEWS, check_views, make_views

MOST_TOKENS = 10**8
"""Tokens that a window may have, and positions that it may cover."""
_MOST = 2**31 - 1


def read_recipe(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or one that comes with the package by its name.

    Args:
        path: a YAML file, or a name of `shipped_recipes()`. The `config.yaml` of a training run is one.
        overrides: `section.key=value` assignments that go on top.

    Raises:
        UsageError: no such file or name, or one that cannot be looked up; unknown keys, wrong or impossible values,
            all named at once.
    """
    shipped = shipped_recipes()
    file = shipped.get(str(path)) or named_path(path, what="the recipe")
    if not file.exists() and file.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"no recipe {str(path)!r}: it is no file and none of this name comes with lengthwise",
            expected=nearest(str(path), shipped),
            fix="lengthwise ls recipes",
        )
    settings = read_yaml(file)
    if settings.get("kind") == "train":
        del settings["kind"]
    return make_recipe(override(settings, overrides), source=str(path))


def make_recipe(settings: Mapping[str, Any], *, source: str = "recipe") -> Recipe:
    """A checked recipe from plain settings; `source` names them in errors.

    Raises:
        UsageError: as `read_recipe`.
    """
    recipe = validate(Recipe, settings, source=source)
    check_recipe(recipe, source=source)
    return recipe


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(__file__).parent.parent / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def check_recipe(recipe: Recipe, *, source: str = "recipe") -> None:
    """Refuse values that are each of the right type and cannot work.

    Raises:
        UsageError: every such value, at once.
    """
    mistakes = list(mistakes_in(recipe))
    if mistakes:
        count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError(f"{source} has {count}:\n  " + "\n  ".join(mistakes))


def mistakes_in(recipe: Recipe) -> Iterator[str]:
    """Every value of `recipe` that cannot work, alone or with the others, with the reason."""
    for name, value in (("model", recipe.model), ("data.corpus", recipe.data.corpus)):
        if not value.strip():
            yield f"{name} is empty: expected a name or path"
    out_of_range = [
        f"{name} = {shown(value)}: expected {least} " + ("or more" if value < least else f"to {most}")
        for name, value, least, most in (
            ("length", recipe.length, 2, MOST_TOKENS),
            ("steps", recipe.steps, 1, _MOST),
            ("seed", recipe.seed, 0, 2 * _MOST + 1),
            ("save_every", recipe.save_every, 1, _MOST),
            ("batch.size", recipe.batch.size, 1, _MOST),
            ("optimizer.warmup_steps", recipe.optimizer.warmup_steps, 0, _MOST),
            (
                "positions.target_length",
                recipe.positions.target_length if recipe.positions else 1,
                1,
                MOST_TOKENS,
            ),
        )
        if not least <= value <= most
    ]
    yield from out_of_range
    if any(problem.startswith(("length", "positions")) for problem in out_of_range):
        # What follows would draw positions and offsets within them.
        return
    if recipe.extend is not None:
        yield from _extend_mistakes(recipe.extend)
    if recipe.adapter is not None:
        yield from _adapter_mistakes(recipe.adapter)
    if recipe.peft is not None:
        yield from _peft_mistakes(recipe)
    if recipe.attention is not None:
        yield from _attention_mistakes(recipe.attention)
    if recipe.quantize is not None and recipe.adapter is None and recipe.peft is None:
        yield "quantize without adapter: weights of 4 bits are frozen, so nothing would be trained; add adapter"
    yield from _mistake("objective: ", recipe.objective.check)
    yield from _view_mistakes(recipe)
    yield from _optimizer_mistakes(recipe.optimizer)
    yield from _mistake("", lambda: recipe.batch.accumulation(1))
    if recipe.parallel is not None:
        yield from _parallel_mistakes(recipe)
    for step in recipe.checkpoints.save_at:
        if not 1 <= step <= recipe.steps:
            yield f"checkpoints.save_at names step {shown(step)}: expected 1 to steps = {recipe.steps}"


def _parallel_mistakes(recipe: Recipe) -> Iterator[str]:
    assert recipe.parallel is not None
    if recipe.parallel.context != 1:
        yield (
            f"parallel.context = {recipe.parallel.context}: expected 1. The objective compares row i + e of one view "
            "with row i of the other, which would lie on different devices, and sampled positions need an attention "
            "mask, which context parallel attention does not take; use sharding, offload and gradient_checkpointing"
        )
    if recipe.quantize is not None:
        yield "parallel with quantize: 4-bit weights are not sharded; expected whole copies, without parallel"


def _mistake(section: str, check: Callable[[], object]) -> Iterator[str]:
    """The error of `check` as one line, if it raises one."""
    try:
        check()
    except UsageError as error:
        expected = error.expected or ""
        expects = expected if expected.startswith("did you mean") else f"expected {expected}"
        yield f"{section}{error.problem}" + (f": {expects}" if expected else "")


def _extend_mistakes(extend: Extend) -> Iterator[str]:
    # Imported here because it loads torch, as below.
    from lengthwise.positions import rope_method

    if not (math.isfinite(extend.factor) and extend.factor >= 1):
        yield f"extend.factor = {extend.factor}: expected 1 or more"
    yield from _mistake("extend: ", lambda: rope_method(extend.method, extend.options))


def _view_mistakes(recipe: Recipe) -> Iterator[str]:
    from lengthwise.training.views.pair import sampled_positions

    section, truncates = recipe.positions, VIEWS[recipe.views].truncates
    if section is not None and section.target_length <= recipe.length:
        yield (
            f"positions.target_length = {section.target_length}: expected more than length = {recipe.length}; "
            "there is nothing to sample within it"
        )
        return
    problems = [
        *_mistake("view_options: ", lambda: make_views(recipe.views, recipe.view_options)),
        *_mistake("positions: ", lambda: sampled_positions(section)),
        *_mistake(
            "",
            lambda: check_views(
                recipe.views, positions=section is not None, offsets=recipe.objective.offsets
            ),
        ),
    ]
    yield from problems
    least = recipe.objective.min_context or 0
    if truncates:
        yield from _offset_mistakes(recipe)
    elif not 0 <= least < recipe.length:
        yield f"objective.min_context = {least}: expected 0 to {recipe.length - 1} with length {recipe.length}"
    if not problems:
        yield from _mistake("positions: " if section else "views: ", lambda: _draw_views(recipe))


def _draw_views(recipe: Recipe) -> None:
    """Draw what a step shares once: options that do not fit the length are refused there."""
    from lengthwise.training.views.pair import Generators, sampled_positions

    make_views(recipe.views, recipe.view_options).draw(
        Generators(0, (0,)), recipe.length, offsets=None, positions=sampled_positions(recipe.positions)
    )


def _attention_mistakes(attention: Attention) -> Iterator[str]:
    from lengthwise.positions import ATTENTIONS, attention_method

    if attention.method == "query_scale":
        yield (
            "attention.method = query_scale: scaled queries have to be saved with the model; expected "
            "extend: {method: eabf}"
        )
        return
    if attention.method not in ATTENTIONS:
        yield f"attention.method = {attention.method}: expected {nearest(attention.method, ATTENTIONS)}"
        return
    yield from _mistake("attention: ", lambda: attention_method(attention.method, {"group": attention.group}))


def _peft_mistakes(recipe: Recipe) -> Iterator[str]:
    from lengthwise.training.trained_model import peft_config

    peft = recipe.peft
    assert peft is not None
    if recipe.adapter is not None:
        yield "adapter and peft are both given: expected one of them"
    # Their schedules run only through calls after each step that neither the Trainer nor we make.
    if peft.config == "AdaLoraConfig" or (peft.config == "AdamssConfig" and peft.options.get("use_asa")):
        yield (
            f"peft.config = {peft.config}: its schedule of ranks would never run; expected LoraConfig or another "
            "method without a schedule"
        )
        return
    yield from _mistake("peft: ", lambda: peft_config(peft))


def _adapter_mistakes(adapter: Adapter) -> Iterator[str]:
    if not 1 <= adapter.r <= _MOST:
        yield f"adapter.r = {shown(adapter.r)}: expected 1 or more, and no more than the layers are wide"
    if not (math.isfinite(adapter.alpha) and adapter.alpha > 0):
        yield f"adapter.alpha = {adapter.alpha}: expected a positive number"
    if not 0 <= adapter.dropout < 1:
        yield f"adapter.dropout = {adapter.dropout}: expected 0 or more, below 1"


def _offset_mistakes(recipe: Recipe) -> Iterator[str]:
    if recipe.length < 2:
        return
    if not 0 <= recipe.min_context < recipe.length:
        yield (
            f"objective.min_context = {recipe.min_context}: expected 0 to {recipe.length - 1} "
            f"with length {recipe.length}"
        )
        return
    # At least one row has to be paired: 0 < length - offset - min_context.
    last = recipe.length - recipe.min_context - 1
    low, high = recipe.offsets
    if last < 1:
        yield (
            f"objective.min_context = {recipe.min_context}: with length {recipe.length} no offset leaves "
            f"a paired position; expected at most {recipe.length - 2}"
        )
    elif not 1 <= low <= high <= last:
        yield (
            f"objective.offsets = [{low}, {high}]: expected first <= last within 1 to {last}, which leave a "
            f"paired position with length {recipe.length} and min_context {recipe.min_context}"
        )


def _optimizer_mistakes(optimizer: Optimizer) -> Iterator[str]:
    for name, value in (
        ("learning_rate", optimizer.learning_rate),
        ("max_grad_norm", optimizer.max_grad_norm),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            yield f"optimizer.{name} = {value}: expected a positive number"
    if not (math.isfinite(optimizer.weight_decay) and optimizer.weight_decay >= 0):
        yield f"optimizer.weight_decay = {optimizer.weight_decay}: expected 0 or more"
    if not all(0 <= beta < 1 for beta in optimizer.betas):
        yield f"optimizer.betas = {list(optimizer.betas)}: expected each 0 or more, below 1"
    if optimizer.schedule == "constant" and optimizer.final_share is not None:
        yield f"optimizer.final_share = {optimizer.final_share}: a constant schedule has none; leave it out"
    elif not 0 <= optimizer.last_share <= 1:
        yield f"optimizer.final_share = {optimizer.final_share}: expected 0 to 1"
