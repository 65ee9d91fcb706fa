"""A training run as data: the sections of a recipe, their defaults, and what each of them refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, Lt
from pydantic import ConfigDict, Field, model_validator, with_config

from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError
from lengthwise.settings import Finite, Positive, Seed, Settings, Whole
from lengthwise.training.adapters import Adapter
from lengthwise.training.views import VIEWS, ViewName, make_views
from lengthwise.training.views.positions import Positions, Tokens

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


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True)
class RecipeObjective(Objective):
    """Eq. 4: CE + alpha * divergence of the two views of the same tokens, and the offsets of the views."""

    alpha: Finite = 0.0
    """Weight of the divergence. 0 is plain CE on the same windows; the paper uses 0.1 to 0.3 with sce."""
    min_context: Whole | None = None
    """Least context of a paired token in the short view; null is length // 2 (Appendix D), 0 is Sec. 4.2. For views
    that do not truncate null is 0: all tokens from where the views differ are paired."""
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
        self.accumulation(1)
        return self

    def accumulation(self, processes: int) -> int:
        """Micro-batches that each of `processes` devices runs for one optimizer step.

        Raises:
            UsageError: the step cannot be cut up so.
        """
        if self.size % processes:
            raise UsageError(
                f"batch.size = {self.size}", expected=f"a multiple of {processes}, the number of processes"
            )
        share = self.size // processes
        micro = share if self.micro is None else self.micro
        if share % micro:
            works = ", ".join(str(n) for n in range(1, min(share, 1000) + 1) if share % n == 0)
            among = f" on each of {processes} processes" if processes > 1 else ""
            raise UsageError(
                f"batch.micro = {micro} does not divide the {share} samples of a step{among}",
                expected=f"one of: {works}",
            )
        return share // micro

    def micro_batch(self, processes: int) -> int:
        """Samples that each of `processes` devices reads at a time.

        Raises:
            UsageError: the step cannot be cut up so.
        """
        return self.size // processes // self.accumulation(processes)


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

    @property
    def last_share(self) -> float:
        """`final_share` with its default filled in."""
        if self.final_share is not None:
            return self.final_share
        return {"cosine": 0.1, "linear": 0.0, "constant": 1.0}[self.schedule]


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
        given = self.objective.min_context
        default = self.length // 2 if VIEWS[self.views].truncates else 0
        return default if given is None else given

    @property
    def offsets(self) -> tuple[int, int]:
        """`objective.offsets` with its default filled in: 1 to length - min_context - 1; 0 without truncation."""
        if not VIEWS[self.views].truncates:
            return (0, 0)
        return self.objective.offsets or (1, self.length - self.min_context - 1)

    @property
    def notes(self) -> list[str]:
        """What to know of settings that work and are hardly meant."""
        warmup = self.optimizer.warmup_steps
        if warmup <= self.steps:
            return []
        return [
            f"optimizer.warmup_steps = {warmup} is more than steps = {self.steps}: the learning rate does not reach "
            "its peak."
        ]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if mistakes := [*self._mistakes()]:
            raise UsageError("\n".join(mistakes))
        if self.shifted_sparse is not None:
            from lengthwise.positions import attention_method

            attention_method("shifted_sparse", {"group": self.shifted_sparse})
        make_views(
            self.views,
            self.view_options,
            length=self.length,
            offsets=self.offsets if VIEWS[self.views].truncates else self.objective.offsets,
            positions=self.positions,
        )
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
        if self.positions is not None and self.positions.target_length <= self.length:
            yield (
                f"positions.target_length = {self.positions.target_length}: expected more than length = "
                f"{self.length}; there is nothing to sample within it"
            )
            return
        yield from self._pair_mistakes()

    def _pair_mistakes(self) -> Iterator[str]:
        """Views, positions, offsets and the least context: whether they leave rows to pair."""
        least, (low, high) = self.min_context, self.offsets
        # At least one row has to be paired: 0 < length - offset - min_context.
        last = self.length - least - 1
        truncates = VIEWS[self.views].truncates
        if not 0 <= least < self.length:
            yield (
                f"objective.min_context = {least}: expected 0 to {self.length - 1} with length {self.length}"
            )
        elif truncates and last < 1:
            yield (
                f"objective.min_context = {least}: with length {self.length} no offset leaves a paired position; "
                f"expected at most {self.length - 2}"
            )
        elif truncates and not 1 <= low <= high <= last:
            yield (
                f"objective.offsets = [{low}, {high}]: expected first <= last within 1 to {last}, which leave a "
                f"paired position with length {self.length} and min_context {least}"
            )
