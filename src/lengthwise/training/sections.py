"""The sections of a recipe, each checked by itself: from the extension and the text to the evaluation."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from annotated_types import Ge, Le, Lt
from pydantic import ConfigDict, Field, model_validator

from lengthwise.errors import UsageError, nearest, reason, require_known
from lengthwise.positions import rope_method
from lengthwise.settings import Finite, NotNegative, Positive, Settings, TextOptions, Whole, checked
from lengthwise.text.corpus import HUB_PREFIX
from lengthwise.text.hub import split_in
from lengthwise.training.views import Tokens
from lengthwise.versions import need

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peft import PeftConfig

    from lengthwise.measure import Measurement

PEFT_FAILURES = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, NotImplementedError, ImportError, re.error,
)  # fmt: skip
"""PEFT takes options of any type, and fails with whatever they lead to: a bias, a megatron_config, a pattern."""

_STARTS = (True, False, "gaussian", "orthogonal", "pissa", "olora")
"""First weights of a LoRA that a saved adapter gives again."""

_MOST = 2**31 - 1
Steps = Annotated[Whole, Ge(1), Le(_MOST)]
Fraction = Annotated[Finite, Ge(0), Lt(1)]
_LOWER = {
    *("cross_entropy", "cross_entropy_long", "cross_entropy_short", "misalignment", "divergence"),
    *("jeffreys", "js", "sce", "kl", "difference", "excess"),
    *("loss_key", "loss_best_temperature", "loss_b", "perplexity", "longppl"),
}
"""Metrics that are better when lower, besides losses."""


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


def _leave_the_split_to_the_corpus(given: Any) -> Any:
    """Sections whose corpus names a split of its own, as hf://owner/name@train does, have no default beside it."""
    corpus = given.get("corpus") if isinstance(given, dict) else None
    named = isinstance(corpus, str) and corpus.startswith(HUB_PREFIX) and split_in(corpus) is not None
    return {"split": None, **given} if named else given


class Data(TextOptions):
    """The text that the windows are cut from."""

    corpus: str
    """What `lengthwise.text.load_corpus` takes: books, code, a file, a folder, hf://owner/name."""
    split: Literal["test", "train", "all"] | None = "train"
    """Documents to train on; measure with --split test. null: all of a file, folder or hf://...@split, else test.

    The default of hf://...@split is null.
    """
    packing: bool = False
    """Join all documents with EOS between them, so that windows cross documents."""
    bos: Literal["auto", "always", "never"] = "auto"
    """Whether the first token of each view is replaced by BOS; auto does as the tokenizer does."""

    _before = model_validator(mode="before")(_leave_the_split_to_the_corpus)


class Adapter(Settings):
    """Train an adapter of PEFT instead of the weights. The other keys are fields of its configuration class.

    Of LoRA (Hu et al., ICLR 2022) these are `r` (default 8), `lora_alpha` (16; the update is scaled by lora_alpha /
    r), `lora_dropout` (0; it is drawn for each view separately, which adds to their disagreement), `target_modules`
    (all-linear: every linear layer but the head), `use_dora` and so on. Layers that only images or sounds reach get
    no adapter. In `modules_to_save`, the names of modules that are trained whole, "embeddings" and "norms" are all of
    the model's token embeddings (with a head that is tied to them) and norms.
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
            names = [
                name
                for name, each in vars(peft).items()
                if inspect.isclass(each) and issubclass(each, peft.PeftConfig)
            ]
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
            made = kind(**options)
        except PEFT_FAILURES as error:
            raise UsageError(f"{self.config} refuses its options: {reason(error)}") from error
        if (start := getattr(made, "init_lora_weights", True)) not in _STARTS:
            raise UsageError(
                f"init_lora_weights = {start}: PEFT makes it of more than a recipe gives, or anew at each load",
                expected=", ".join(str(each) for each in _STARTS),
            )
        return made


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
    weight_decay: NotNegative = 0.0
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


class Eval(Settings):
    """Measure the model on other text while it is trained, stop where it gets no better, and keep the best."""

    every: Steps
    """Steps between evaluations."""
    corpus: str | None = None
    """The text; null is that of `data`, of which other documents are read."""
    split: Literal["test", "train", "all"] | None = "test"
    """Documents of it that are not trained on; null as in `data`."""
    windows: Steps = 16
    """Pairs of windows for the objective and its parts, `eval_loss`, `eval_jeffreys`, ..."""
    measurements: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What else is measured on it: verbs with their settings, as in {ppl: {lengths: [1024]}}."""
    metric: str = "eval_loss"
    """The number that decides, by its name in the log: `eval_jeffreys`, `eval_perplexity/loss@1024`, ..."""
    patience: Steps | None = None
    """Training stops after so many evaluations without a better number; with null it never stops early."""
    keep_best: bool = False
    """The run's `model` is the best one of all evaluations, not the last. Every evaluation makes a checkpoint."""

    _before = model_validator(mode="before")(_leave_the_split_to_the_corpus)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.measured()
        return self

    def measured(self) -> list[Measurement]:
        """The measurements; UsageError for an unknown verb or setting."""
        from lengthwise.measure import MEASUREMENTS

        for name in self.measurements:
            require_known(name, MEASUREMENTS, "nothing measures")
        return [
            checked(MEASUREMENTS[name].measurement, options, source=f"eval.measurements.{name}")
            for name, options in self.measurements.items()
        ]

    def mistakes(self, data: Any, save: int, *, sharded: bool) -> Iterator[str]:
        """What does not fit a recipe with this `data` and `save_every`."""
        if self.corpus in (None, data.corpus) and not data.split == "train" != self.split:
            yield "eval reads text that is trained on; expected data.split: train, or an eval.corpus"
        if self.keep_best and save % self.every:
            yield f"save_every = {save}: expected a multiple of eval.every = {self.every}, to keep the best"
        if self.keep_best and sharded:
            yield "eval.keep_best with parallel: shards of the best are not loaded again; expected whole copies"

    @property
    def arguments(self) -> dict[str, Any]:
        """For TrainingArguments."""
        return {
            "eval_strategy": "steps",
            "eval_steps": self.every,
            "metric_for_best_model": self.metric,
            "greater_is_better": not lower_is_better(self.metric),
            "load_best_model_at_end": self.keep_best,
            # The patience that is left.
            "restore_callback_states_from_checkpoint": True,
        }


def lower_is_better(name: str) -> bool:
    """Of a number that training logs: `eval_loss`, `eval_ppl/perplexity@512`."""
    metric = name.removeprefix("eval_").partition("/")[2] or name.removeprefix("eval_")
    metric = metric.partition("@")[0]
    return metric.endswith("loss") or metric in _LOWER


def check_direction(args: Any, eval_dataset: Any = None) -> None:
    """Refuse to keep the worst model: transformers takes every number as better when greater, but those named loss.

    UsageError if `greater_is_better` is True for a number that is better when lower, of any evaluation set.
    """
    name = args.metric_for_best_model
    number = (name or "").removeprefix("eval_")
    sets = eval_dataset if isinstance(eval_dataset, Mapping) else ()
    if args.greater_is_better and any(
        map(lower_is_better, [number, *(number.removeprefix(f"{each}_") for each in sets)])
    ):
        raise UsageError(
            f"metric_for_best_model is {name}, of which the lower is the better, and greater_is_better is True",
            fix="greater_is_better=False",
        )
