"""The sections of a training recipe and their defaults. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.alignment.divergences import Objective
from lengthwise.config import ADDED_LATER, recorded
from lengthwise.errors import UsageError
from lengthwise.training.views import VIEWS, ViewName


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Train low-rank adapters instead of the weights (LoRA, through peft)."""

    method: Literal["lora"] = "lora"
    """LoRA (Hu et al., ICLR 2022). Other methods are in `peft`."""
    r: int = 8
    """Rank."""
    alpha: float = 16.0
    """The update is scaled by alpha / r."""
    dropout: float = 0.0
    """Dropout before the adapter. It is drawn for each view separately, which adds to their disagreement."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the layers that get an adapter; "all-linear" is every linear layer but the head."""
    modules_to_save: tuple[str, ...] = ()
    """Names of modules that are trained whole and saved with the adapter; "embeddings" and "norms" are all of
    the model's token embeddings (with a head that is tied to them) and norms."""


@dataclass(frozen=True, kw_only=True)
class Peft:
    """Any other method of PEFT, by its configuration class."""

    config: str
    """The class: LoraConfig (with use_dora), IA3Config, AdaptionPromptConfig, ..."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its fields. The task type is filled in."""


@dataclass(frozen=True, kw_only=True)
class Quantize:
    """Keep the frozen linear layers in 4 bits (QLoRA, through bitsandbytes)."""

    method: Literal["nf4"] = "nf4"
    """4-bit NormalFloat in blocks of 64 weights (QLoRA, Dettmers et al., NeurIPS 2023)."""
    double: bool = True
    """Quantise the blocks' scales too: 0.13 bits a weight for them in place of 0.5."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Another attention during training. Evaluation and the saved model use the model's own."""

    method: str
    """An attention of `lengthwise ls methods`."""
    group: float = 0.25
    """Of shifted_sparse: the size of a group, below 1 as a share of `length`, from 2 on in tokens."""


@dataclass(frozen=True, kw_only=True)
class Extend:
    """Extend the model's context before it is trained, as `lengthwise extend` does."""

    method: str
    """A rope method of `lengthwise ls methods`."""
    factor: float
    """How many times longer the context becomes."""
    original_length: int | None = None
    """Context in tokens that the model was trained for; null is what its configuration says."""
    options: dict[str, Any] = field(default_factory=dict)
    """The method's options."""


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Train at position ids of a longer context. One draw per step, shared by all its samples."""

    sampler: str
    """A position sampler of `lengthwise ls methods`."""
    target_length: int
    """T in tokens: the positions that the windows are to cover, more than `length`."""
    options: dict[str, Any] = field(default_factory=dict)
    """The sampler's options."""


@dataclass(frozen=True, kw_only=True)
class Data:
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


@dataclass(frozen=True, kw_only=True)
class RecipeObjective(Objective):
    """Eq. 4: CE + alpha * divergence of the two views of the same tokens, and the offsets of the views."""

    alpha: float = 0.0
    """Weight of the divergence. 0 is plain CE on the same windows; the paper uses 0.1 to 0.3 with sce."""
    min_context: int | None = None
    """Least context of a paired token in the short view; null is length // 2 (Appendix D), 0 is Sec. 4.2. For views
    that do not truncate null is 0: all tokens from where the views differ are paired."""
    offsets: tuple[int, int] | None = None
    """First and last offset e in tokens, drawn uniformly at each step; null is 1 to the last that leaves a pair. Only
    truncated views have offsets."""

    def __post_init__(self) -> None:
        """`check_recipe` checks it together with the rest, so that all mistakes are reported at once."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """How many samples (pairs of windows) make one optimizer step, and how they are cut up."""

    size: int = 8
    """Samples per optimizer step, over all devices."""
    micro: int | None = None
    """Samples at a time on one device; null is all of its share of the step. Does not change the result."""

    def accumulation(self, processes: int) -> int:
        """Micro-batches that each of `processes` devices runs for one optimizer step.

        Raises:
            UsageError: the step cannot be cut up so.
        """
        if self.size < 1 or self.size % processes:
            multiples = (
                f"a multiple of {processes}, the number of processes" if processes > 1 else "1 or more"
            )
            raise UsageError(f"batch.size = {self.size}", expected=multiples)
        share = self.size // processes
        micro = share if self.micro is None else self.micro
        if micro < 1 or share % micro:
            works = ", ".join(str(n) for n in range(1, share + 1) if share % n == 0)
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


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW (Loshchilov & Hutter, ICLR 2019) and its learning rate over the steps."""

    learning_rate: float
    """The peak."""
    weight_decay: float = 0.0
    """On weight matrices; biases and norms are not decayed."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running means of gradient and squared gradient."""
    warmup_steps: int = 0
    """Steps in which the learning rate rises linearly to its peak; the first is not zero."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warmup."""
    final_share: float | None = None
    """Share of the peak that the last step has; null is 0.1 for cosine, 0 for linear."""
    max_grad_norm: float | None = 1.0
    """Gradients are scaled down to this norm; null leaves them as they are."""

    @property
    def last_share(self) -> float:
        """`final_share` with its default filled in."""
        if self.final_share is not None:
            return self.final_share
        return {"cosine": 0.1, "linear": 0.0, "constant": 1.0}[self.schedule]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Which checkpoints stay, besides the last two, from which a stopped run continues."""

    save_at: tuple[int, ...] = ()
    """Steps after which one is saved and stays, whatever `save_every` says."""
    keep: Literal["last", "all"] = "last"
    """all: those of `save_every` stay too."""


Sharding = Literal["full_shard", "shard_grad_op"]


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Spread the training state over the processes of torchrun (FSDP2, through accelerate).

    Products are in the dtype of `precision`; gradients are summed in float32.
    """

    sharding: Sharding = "full_shard"
    """full_shard: each device keeps its share of weights, gradients and optimizer state, and gathers one block at a
    time. shard_grad_op: gathered weights stay on every device until the backward pass ends."""
    offload: bool = False
    """Keep the shares in main memory, where the optimizer then runs."""
    context: int = 1
    """Devices that share one window. Only 1: the objective compares rows that would lie on different devices."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a training run."""

    model: str
    """What `lengthwise.load` takes: an embedded name, a hub id, a folder, a GGUF file."""
    data: Data
    length: int
    """L: tokens of each view. There is no default: a window cut short by surprise spoils the result."""
    steps: int
    """Optimizer steps."""
    optimizer: Optimizer
    extend: Extend | None = None
    """null leaves the model's positions as they are."""
    views: ViewName = "truncation"
    """How the two views of a sample differ: a name of `lengthwise ls methods`. With a detached long view, the first
    teaches the second."""
    view_options: dict[str, Any] = field(default_factory=dict, metadata=ADDED_LATER)
    """The options of `views`."""
    positions: Positions | None = None
    """null is 0 .. length - 1. Sampled positions are the short view's; with truncation both views have them."""
    adapter: Adapter | None = None
    """LoRA. null trains all weights, or those that `peft` says."""
    peft: Peft | None = None
    """Another method of peft in place of `adapter`."""
    quantize: Quantize | None = None
    """null keeps the frozen weights in the dtype of `precision`."""
    attention: Attention | None = None
    """null trains with the model's own attention."""
    objective: RecipeObjective = field(default_factory=RecipeObjective)
    batch: Batch = field(default_factory=Batch)
    seed: int = 0
    """Of the windows, the offsets, the positions and the adapter's initial weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: mixed precision. Trained weights stay float32, frozen ones and products are bfloat16."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time, same result."""
    device: Literal["auto", "cpu"] = "auto"
    """auto: the accelerator if there is one."""
    save_every: int = 50
    """Steps between checkpoints; the last step always makes one. The last two are kept."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints, metadata=ADDED_LATER)
    parallel: Parallel | None = field(default=None, metadata=ADDED_LATER)
    """null keeps a whole copy of the model on every device."""
    report_to: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Trackers that also get every log, through transformers. Without one nothing leaves the machine."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they go into YAML and come back equal; fields of later versions where they are set."""
        return recorded(self)

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
