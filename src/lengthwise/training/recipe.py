"""A training run as data: one YAML, checked whole before anything is loaded. Torch loads only for the checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator

from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.settings import Finite, Seed, Settings, Whole, checked
from lengthwise.training.sections import Adapter, Batch, Data, Eval, Extend, Optimizer, Parallel, Steps
from lengthwise.training.views import Positions, Tokens, View, ViewName, last_offset, least_context
from lengthwise.yaml_text import override, read_yaml


class Recipe(Settings):
    """Everything that decides a training run."""

    model: str
    """What `lengthwise.load` takes: an embedded name, a hub id, a folder, a GGUF file."""
    data: Data
    length: Annotated[Tokens, Ge(2)]
    """L: tokens of each view. There is no default: a window cut short by surprise spoils the result."""
    steps: Steps
    """Optimizer steps."""
    optimizer: Optimizer
    extend: Extend | None = None
    """null leaves the model's positions as they are."""
    views: ViewName = "truncation"
    """How the two views of a sample differ: a name of `lengthwise ls methods`. With a detached long view, the first
    teaches the second."""
    view_options: dict[str, Any] = Field(default_factory=dict)
    """The options of `views`."""
    offsets: tuple[Whole, Whole] | None = None
    """First and last offset e in tokens, drawn uniformly at each step; null is 1 to the last that leaves a pair. Only
    truncated views have offsets."""
    min_context: Annotated[Whole, Ge(0)] | None = None
    """Least context of a paired token in the short view; null is length // 2 (Appendix D), or 0 for views that do not
    truncate: all tokens from where they differ. 0 is Sec. 4.2."""
    positions: Positions | None = None
    """null is 0 .. length - 1. Sampled positions are the short view's; with truncation both views have them."""
    adapter: Adapter | None = None
    """An adapter of PEFT; null trains all weights."""
    quantize: Literal["nf4"] | None = None
    """nf4: keep the frozen linear layers in 4-bit NormalFloat with quantised scales (QLoRA, Dettmers et al., NeurIPS
    2023), through bitsandbytes. null keeps them in the dtype of `precision`."""
    shifted_sparse: Finite | None = None
    """Train with LongLoRA's shifted sparse attention in groups of this size: below 1 a share of `length`, from 2 on
    tokens. Evaluation and the saved model use the model's own attention, as null does in training."""
    objective: Objective = Objective()
    batch: Batch = Batch()
    seed: Annotated[Seed, Le(2**32 - 1)] = 0
    """Of the windows, the offsets, the positions and the adapter's initial weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: mixed precision. Trained weights stay float32, frozen ones and products are bfloat16."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time, same result."""
    device: Literal["auto", "cpu"] = "auto"
    """auto: the accelerator if there is one."""
    save_every: Steps = 50
    """Steps between checkpoints; the last step always makes one. The last two are kept."""
    save_at: tuple[Steps, ...] = ()
    """Steps after which a checkpoint is saved and stays, whatever `save_every` says."""
    eval: Eval | None = None
    """null measures nothing while training."""
    parallel: Parallel | None = None
    """null keeps a whole copy of the model on every device."""
    report_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Trackers that also get every log, through transformers. Without one nothing leaves the machine."""

    def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
        """Plain values for YAML, which come back equal; without `defaults` those that differ from them."""
        return self.model_dump(mode="json", exclude_defaults=not defaults)

    @cached_property
    def view(self) -> View:
        """How the windows of a sample are made; the offsets are by default 1 to length - min_context - 1."""
        offsets = self.offsets
        if self.views == "truncation" and offsets is None:
            offsets = 1, last_offset(self.views, self.length, self.min_context)
        drawn = {"offsets": offsets, "positions": self.positions, "min_context": self.min_context}
        return View(self.length, self.views, self.view_options, **drawn)

    @property
    def on_cpu(self) -> bool:
        """Whether it is trained on the processor."""
        import torch

        return self.device == "cpu" or not torch.accelerator.is_available()

    @property
    def notes(self) -> list[str]:
        """Settings that work and are hardly meant, a sentence each."""
        warmup, peak = self.optimizer.warmup_steps, "the learning rate does not reach its peak."
        late = warmup > self.steps
        return [f"warmup_steps = {warmup} is more than steps = {self.steps}: {peak}"] if late else []

    @model_validator(mode="after")
    def _check(self) -> Self:
        if mistakes := "\n".join(self._mistakes()):
            raise UsageError(mistakes)
        if self.shifted_sparse is not None:
            from lengthwise.positions.attention_methods import group_size

            group_size(self.shifted_sparse, self.length)
        _ = self.view
        return self

    def _mistakes(self) -> Iterator[str]:
        """Sections that are each right and do not fit together."""
        if self.quantize is not None and self.adapter is None:
            yield "quantize without adapter: weights of 4 bits are frozen, so nothing would be trained; add adapter"
        start = None if self.adapter is None else (self.adapter.model_extra or {}).get("init_lora_weights")
        if self.quantize is not None and start in ("pissa", "olora"):
            yield f"quantize with init_lora_weights = {start}: it would change weights of 4 bits; expected true"
        if self.quantize is not None and self.parallel is not None:
            yield "parallel with quantize: 4-bit weights are not sharded; expected whole copies, without parallel"
        if self.eval is not None:
            yield from self.eval.mistakes(self.data, self.save_every, sharded=self.parallel is not None)
        if late := ", ".join(str(step) for step in self.save_at if step > self.steps):
            yield f"save_at names {late}: expected 1 to steps = {self.steps}"
        if self.positions is not None and (target := self.positions.target_length) <= self.length:
            yield f"positions.target_length = {target}: expected more than length = {self.length}"
        # At least one row has to be paired: 0 < length - offset - min_context.
        truncates = self.views == "truncation"
        least = least_context(self.views, self.length, self.min_context)
        most, last = self.length - (2 if truncates else 1), self.length - least - 1
        low, high = self.offsets or (1, last)
        if not 0 <= least <= most:
            yield f"min_context = {least}: expected 0 to {most} with length {self.length}"
        elif truncates and not 1 <= low <= high <= last:
            yield f"offsets = [{low}, {high}]: expected first <= last within 1 to {last}"


def read_recipe(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or one that comes with the package by its name.

    Args:
        path: a YAML file (the `config.yaml` of a training run is one), or a name of `shipped_recipes()`.
        overrides: `section.key=value` assignments that go on top.

    Raises:
        UsageError: no such file or name; unknown keys, wrong or impossible values, all named at once.
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
    return checked(Recipe, override(settings, overrides), source=str(path))


def shipped_recipes() -> dict[str, Path]:
    """Recipes that come with the package, by name."""
    folder = Path(__file__).parent.parent / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
