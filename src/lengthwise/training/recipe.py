"""A training run as data: one YAML, checked whole before anything is loaded. Torch loads only for the checks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from annotated_types import Ge, Le, Lt
from pydantic import ConfigDict, Field, model_validator

from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError, nearest, reason
from lengthwise.files import named_path
from lengthwise.positions import attention_method, rope_method
from lengthwise.settings import (
    Finite,
    Positive,
    Seed,
    Settings,
    TextOptions,
    Whole,
    checked,
)
from lengthwise.training.held_out import Eval
from lengthwise.training.views import Positions, Tokens, View, ViewName, least_context
from lengthwise.versions import need
from lengthwise.yaml_text import override, read_yaml

if TYPE_CHECKING:
    from peft import PeftConfig

PEFT_FAILURES = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""PEFT takes options of any type, and fails with whatever they lead to."""

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
        rope_method(self.method, self.options)
        return self


class Data(TextOptions):
    """The text that the windows are cut from."""

    corpus: str
    """What `lengthwise.text.load_corpus` takes: books, code, a file, a folder, hf://owner/name."""
    split: Literal["test", "train", "all"] | None = "train"
    """Documents of the text to train on; measure with --split test. null: all of a file or folder, else test."""
    packing: bool = False
    """Join all documents with EOS between them, so that windows cross documents."""
    bos: Literal["auto", "always", "never"] = "auto"
    """Whether the first token of each view is replaced by BOS; auto does as the tokenizer does."""


class Adapter(Settings):
    """Train an adapter of PEFT instead of the weights. The other keys are fields of its configuration class.

    Of LoRA (Hu et al., ICLR 2022) these are `r` (default 8), `lora_alpha` (16; the update is scaled by lora_alpha /
    r), `lora_dropout` (0; it is drawn for each view separately, which adds to their disagreement), `target_modules`
    (all-linear: every linear layer but the head), `use_dora` and so on. In `modules_to_save`, the names of modules
    that are trained whole, "embeddings" and "norms" are all of the model's token embeddings (with a head that is
    tied to them) and norms.
    """

    model_config = ConfigDict(extra="allow")

    config: str = "LoraConfig"
    """The class: LoraConfig, IA3Config, AdaptionPromptConfig, ..."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.peft_config()
        return self

    def peft_config(self) -> PeftConfig:
        """The configuration. MissingError if PEFT is not installed.

        UsageError if PEFT has no such class, refuses the options, or its schedule would never run.
        """
        from lengthwise.checkpoints.resolve import quiet_transformers

        need("peft")
        with quiet_transformers():
            import peft
        kind = getattr(peft, self.config, None)
        if not (inspect.isclass(kind) and issubclass(kind, peft.PeftConfig)):
            names = [name for name in vars(peft) if name.endswith("Config")]
            raise UsageError(f"peft has no {self.config}", expected=nearest(self.config, names))
        options = self.model_extra or {}
        # Their schedules run only through calls after each step that neither the Trainer nor we make.
        if self.config == "AdaLoraConfig" or (self.config == "AdamssConfig" and options.get("use_asa")):
            raise UsageError(
                f"config = {self.config}: its schedule of ranks would never run",
                expected="LoraConfig or another method without a schedule",
            )
        for name, value in options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} = {value}", expected="a finite number")
        options = {"task_type": "CAUSAL_LM", **options}
        if self.config == "LoraConfig":
            # PEFT's own defaults depend on the model's architecture, or are lower.
            options = {"lora_alpha": 16, "target_modules": "all-linear", **options}
        try:
            return kind(**options)
        except PEFT_FAILURES as error:
            raise UsageError(f"{self.config} refuses its options: {reason(error)}") from error


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

        UsageError if the step cannot be cut up so.
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
        last, falling = 0.0, 1 - progress
        if self.schedule == "cosine":
            last, falling = 0.1, (1 + math.cos(math.pi * progress)) / 2
        last = last if self.final_share is None else self.final_share
        return last + (1 - last) * falling


class Parallel(Settings):
    """Spread the training state over the processes of torchrun (FSDP2, through accelerate).

    Products are in the dtype of `precision`; gradients are summed in float32.
    """

    sharding: Literal["full_shard", "shard_grad_op"] = "full_shard"
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
            offsets = 1, self.length - least_context(self.views, self.length, self.min_context) - 1
        drawn = {"offsets": offsets, "positions": self.positions, "min_context": self.min_context}
        return View(self.length, self.views, self.view_options, **drawn)

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
            attention_method("shifted_sparse", {"group": self.shifted_sparse})
        _ = self.view
        return self

    def _mistakes(self) -> Iterator[str]:
        """Sections that are each right and do not fit together."""
        if self.quantize is not None and self.adapter is None:
            yield "quantize without adapter: weights of 4 bits are frozen, so nothing would be trained; add adapter"
        if self.quantize is not None and self.parallel is not None:
            yield "parallel with quantize: 4-bit weights are not sharded; expected whole copies, without parallel"
        if self.eval is not None:
            yield from self.eval.mistakes(self.data, self.save_every, sharded=self.parallel is not None)
        if late := ", ".join(str(step) for step in self.save_at if step > self.steps):
            yield f"save_at names {late}: expected 1 to steps = {self.steps}"
        if self.positions is not None and (target := self.positions.target_length) <= self.length:
            yield f"positions.target_length = {target}: expected more than length = {self.length}"
        # At least one row has to be paired: 0 < length - offset - min_context.
        truncates, least = (
            self.views == "truncation",
            least_context(self.views, self.length, self.min_context),
        )
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
