"""A training run as data: one YAML, checked whole before anything is loaded. Torch loads only for the checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, Lt
from pydantic import Field, model_validator

from lengthwise.alignment.divergences import Objective
from lengthwise.config import override, read_yaml
from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.settings import Finite, Positive, Seed, Settings, Whole, checked
from lengthwise.training.adapters import Adapter
from lengthwise.training.views import Positions, Tokens, View, ViewName

_MOST = 2**31 - 1
Steps = Annotated[Whole, Ge(1), Le(_MOST)]
Fraction = Annotated[Finite, Ge(0), Lt(1)]


class Extend(Settings):
    """Extend the model's context before it is trained, as `lengthwise extend` does."""

    method: str
    """A rope method of `lengthwise ls methods`."""
    factor: Annotated[Finite, Ge(1)]
    """How many times longer the context becomes."""
    original_length: Tokens | None = None
    """Context in tokens that the model was trained for; null is what its configuration says."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The method's options."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        from lengthwise.positions import rope_method

        rope_method(self.method, self.options)
        return self


class Data(Settings):
    """The text that the windows are cut from."""

    corpus: str
    """What `lengthwise.text.load_corpus` takes: books, code, a file, a folder, hf://owner/name."""
    split: Literal["train", "test", "all"] = "train"
    """Documents of the text to train on. Measurements use test by default."""
    text_field: str = "text"
    """The column with the text, for tables and hub data sets."""
    packing: bool = False
    """Join all documents with EOS between them, so that windows cross documents."""
    bos: Literal["auto", "always", "never"] = "auto"
    """Whether the first token of each view is replaced by BOS; auto does as the tokenizer does."""


class RecipeObjective(Objective):
    """Eq. 4: cross entropy + alpha * divergence of the two views of the same tokens, and the offsets of the views."""

    offsets: tuple[Whole, Whole] | None = None
    """First and last offset e in tokens, drawn uniformly at each step; null is 1 to the last that leaves a pair. Only
    truncated views have offsets."""


class Batch(Settings):
    """How many samples (pairs of windows) make one optimizer step, and how they are cut up."""

    size: Steps = 8
    """Samples per optimizer step, over all devices."""
    micro: Steps | None = None
    """Samples at a time on one device; null is all of its share of the step. Does not change the result."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.cut(1)
        return self

    def cut(self, processes: int) -> tuple[int, int]:
        """Samples that each of `processes` devices reads at a time, and how many times for one optimizer step.

        Raises:
            UsageError: the step cannot be cut up so.
        """
        share, rest = divmod(self.size, processes)
        if rest:
            raise UsageError(
                f"batch.size = {self.size}", expected=f"a multiple of {processes}, the number of processes"
            )
        micro = share if self.micro is None else self.micro
        if share % micro:
            works = ", ".join(str(n) for n in range(1, min(share, 1000) + 1) if share % n == 0)
            raise UsageError(
                f"batch.micro = {micro} does not divide the {share} samples of a step on {processes} processes",
                expected=f"one of: {works}",
            )
        return micro, share // micro


class Optimizer(Settings):
    """AdamW (Loshchilov & Hutter, ICLR 2019) and its learning rate over the steps."""

    learning_rate: Positive
    """The peak."""
    weight_decay: Annotated[Finite, Ge(0)] = 0.0
    """On weight matrices; biases and norms are not decayed."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """Decay of the running means of gradient and squared gradient."""
    warmup_steps: Annotated[Whole, Ge(0), Le(_MOST)] = 0
    """Steps in which the learning rate rises linearly to its peak; the first is not zero."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warmup."""
    final_share: Annotated[Finite, Ge(0), Le(1)] | None = None
    """Share of the peak that the last step has; null is 0.1 for cosine, 0 for linear."""
    max_grad_norm: Positive | None = 1.0
    """Gradients are scaled down to this norm; null leaves them as they are."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.schedule == "constant" and self.final_share is not None:
            raise UsageError(f"final_share = {self.final_share}: a constant schedule has none; leave it out")
        return self

    def share_of_peak(self, step: int, steps: int) -> float:
        """The share of the peak with which update `step` (0-based) of `steps` is made.

        Warm-up rises linearly, (step + 1) / warmup_steps, so the first update is not wasted on a rate of zero.
        After it, with u = (step + 1 - warmup_steps) / (steps - warmup_steps) in (0, 1] and f = `final_share`:

            cosine    f + (1 - f) * (1 + cos(pi * u)) / 2
            linear    f + (1 - f) * (1 - u)
            constant  1

        so the last update has exactly f. cosine equals transformers' `cosine_warmup_with_min_lr` with
        `min_lr_rate = f`.
        """
        done = step + 1
        if done <= self.warmup_steps:
            return done / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        # The scheduler also asks for the step after the last one; it keeps the last one's rate.
        progress = min(1.0, (done - self.warmup_steps) / max(1, steps - self.warmup_steps))
        if self.schedule == "cosine":
            last, falling = 0.1, (1 + math.cos(math.pi * progress)) / 2
        else:
            last, falling = 0.0, 1 - progress
        last = last if self.final_share is None else self.final_share
        return last + (1 - last) * falling


Sharding = Literal["full_shard", "shard_grad_op"]


class Parallel(Settings):
    """Spread the training state over the processes of torchrun (FSDP2, through accelerate).

    Products are in the dtype of `precision`; gradients are summed in float32.
    """

    sharding: Sharding = "full_shard"
    """full_shard: each device keeps its share of weights, gradients and optimizer state, and gathers one block at a
    time. shard_grad_op: gathered weights stay on every device until the backward pass ends."""
    offload: bool = False
    """Keep the shares in main memory, where the optimizer then runs."""


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
    objective: RecipeObjective = RecipeObjective()
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
    parallel: Parallel | None = None
    """null keeps a whole copy of the model on every device."""
    report_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Trackers that also get every log, through transformers. Without one nothing leaves the machine."""

    def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
        """Plain values, as they go into YAML and come back equal; without `defaults` those that differ from them."""
        return self.model_dump(mode="json", exclude_defaults=not defaults)

    @property
    def min_context(self) -> int:
        """`objective.min_context` with its default filled in."""
        default = self.length // 2 if self.views == "truncation" else 0
        return default if self.objective.min_context is None else self.objective.min_context

    @property
    def offsets(self) -> tuple[int, int]:
        """`objective.offsets` with its default filled in: 1 to length - min_context - 1; 0 without truncation."""
        whole = (1, self.length - self.min_context - 1) if self.views == "truncation" else (0, 0)
        return self.objective.offsets or whole

    @cached_property
    def view(self) -> View:
        """How the windows of a sample are made."""
        offsets = self.objective.offsets or (self.offsets if self.views == "truncation" else None)
        return View(self.length, self.views, self.view_options, offsets=offsets, positions=self.positions)

    @property
    def notes(self) -> list[str]:
        """What to know of settings that work and are hardly meant."""
        if (warmup := self.optimizer.warmup_steps) <= self.steps:
            return []
        return [
            f"warmup_steps = {warmup} is more than steps = {self.steps}: the learning rate does not reach its peak."
        ]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if mistakes := [*self._mistakes()]:
            raise UsageError("\n".join(mistakes))
        if self.shifted_sparse is not None:
            from lengthwise.positions import attention_method

            attention_method("shifted_sparse", {"group": self.shifted_sparse})
        _ = self.view
        return self

    def _mistakes(self) -> Iterator[str]:
        """Sections that are each right and do not fit together."""
        if self.quantize is not None and self.adapter is None:
            yield "quantize without adapter: weights of 4 bits are frozen, so nothing would be trained; add adapter"
        if self.quantize is not None and self.parallel is not None:
            yield "parallel with quantize: 4-bit weights are not sharded; expected whole copies, without parallel"
        for step in self.save_at:
            if step > self.steps:
                yield f"save_at names step {step}: expected 1 to steps = {self.steps}"
        if self.positions is not None and (target := self.positions.target_length) <= self.length:
            yield f"positions.target_length = {target}: expected more than length = {self.length}"
        # At least one row has to be paired: 0 < length - offset - min_context.
        least, (low, high) = self.min_context, self.offsets
        truncates = self.views == "truncation"
        most, last = self.length - (2 if truncates else 1), self.length - least - 1
        if not 0 <= least <= most:
            yield f"objective.min_context = {least}: expected 0 to {most} with length {self.length}"
        elif truncates and not 1 <= low <= high <= last:
            yield f"objective.offsets = [{low}, {high}]: expected first <= last within 1 to {last}"


def read_recipe(path: Path | str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a YAML file, or one that comes with the package by its name.

    Args:
        path: a YAML file, or a name of `shipped_recipes()`. The `config.yaml` of a training run is one.
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
