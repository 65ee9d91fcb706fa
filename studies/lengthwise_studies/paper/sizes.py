"""How large a table is run, what it measures, and the numbers that its claims are about.

T is the length that the model was trained for; every length of a table is a multiple of it, so that one table fits
all models. Values of `PAPER` are the paper's unless the comment beside them says "our choice".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.tiny_models import TinyModel

STEPS = 200
"""The paper's training steps."""
DEPTHS = (0.0, 25.0, 50.0, 75.0)
"""Of questions: Table 7's."""
SCORED = Quantity(heading="LongBench-E", task="longbench_e", metric="average_rows", unit="share")
"""Greedy replies."""
PARTS = (
    Quantity(heading="SCE", task="misalignment", metric="sce"),
    Quantity(heading="entropy part", task="misalignment", metric="entropy"),
    Quantity(heading="Jeffreys part", task="misalignment", metric="jeffreys"),
)


def loss(times: float) -> Quantity:
    """The loss, log of the perplexity, with windows of so many T."""
    return Quantity(heading=f"loss at {times:g}T", task="perplexity", metric="loss", times=times)


def inverse_temperature(times: float) -> Quantity:
    """The factor of the logits with the lowest loss; below 1 where the model is too sure."""
    return replace(loss(times), heading=f"at {times:g}T", metric="inverse_temperature", unit="")


def loss_against(times: float, other: float) -> Quantity:
    """The loss of one arm with windows of `times` T, against that of the other with `other` T: the same targets."""
    return replace(loss(times), heading=f"loss at {times:g}T against {other:g}T", times_other=other)


def recalled(distance: float) -> Quantity:
    """What a passage is worth that comes again after so many T."""
    return Quantity(heading=f"recall at {distance:g}T", task="recall", metric="benefit", distance=distance)


TWENTY = "books-20"
"""The books of which twenty are held out; a scale without it reads its books."""
QA1, BABILONG = "babilong_qa1", "babilong"
"""One task, in which one fact decides; and all of them."""


def answered(times: float, depth: float | None = None, task: str = QA1) -> Quantity:
    """Accuracy in a task, or the mean over all of BABILong."""
    name = {QA1: "QA1", BABILONG: "BABILong"}.get(task, task)
    heading = f"{name} at {times:g}T" + ("" if depth is None else f", depth {depth:g} %")
    return Quantity(heading, task, "accuracy", times=times, depth=depth, unit="share")


def measure_of(quantity: Quantity) -> str:
    """The measure of `Size.measures` that has a number."""
    if quantity.task in ("perplexity", "misalignment", "recall"):
        return quantity.task
    return "eval longbench_e" if quantity == SCORED else "eval"


@dataclass(frozen=True, kw_only=True)
class Size:
    """One scale."""

    model: str  # what arms start from
    start: TinyModel | None = None  # in its place, a model that is pretrained with every seed
    trained: int  # T, in tokens
    window: int  # tokens of a training window where the paper trains at T; it trains at 2T with twice as many
    factor: float = 4  # how many times T the extension reaches where the paper trains at T
    steps: int = 200  # of the reference
    followed: tuple[int, ...] = (50, 100)  # of the paper's steps, after which losses are measured too
    batch: int = 8  # windows a step
    micro: int | None = None  # windows at a time on one device
    seeds: int = 3  # of the fine-tuning
    # The text for each of the paper's corpora; both are trained on their training split.
    corpora: Mapping[str, str] = field(
        default_factory=lambda: {"books": "books", "pg19": "code", TWENTY: TWENTY}
    )
    lengths: tuple[float, ...] = (1, 2, 4)  # of losses, as multiples of T
    distances: tuple[float, ...] = (0.5, 1, 2)  # of recall, as multiples of T
    # Windows of misalignment, segments of losses, pairs of recall.
    samples: tuple[int, int, int] = (48, 64, 96)
    question_lengths: tuple[float, ...] = ()  # of questions by likelihood; empty where the model cannot do it
    questions: int = 12  # at each length and depth
    asked: tuple[str, ...] = (QA1,)  # tasks, or all of BABILong
    mode: str = "likelihood"  # how they are scored
    scored: bool = False  # whether LongBench-E is measured, by greedy replies as in the paper
    data: str | None = None  # the folder of its files, which also has it measured; None is the hub
    data_sets: tuple[str, ...] = ("longbench_e",)  # of LongBench-E, by the names of their tasks
    rows: int | None = None  # of each data set; None: all
    changes: tuple[str, ...] = ()  # of every recipe
    adapter_rate: float | None = None  # of LoRA where it is compared with training every weight
    quantized: bool = False  # whether the table's 4-bit recipes keep their 4 bits
    cards: int | None = None  # NVIDIA H200s whose time a dry run tells; None is this machine, measured

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> Size:
        """The size of a run from its settings, without its models of several seeds."""
        names = {each.name for each in fields(cls)}
        known = {name: value for name, value in recorded.items() if name in names}
        plain: Any = {name: tuple(one) if isinstance(one, list) else one for name, one in known.items()}
        return cls(**plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a run records them."""
        values = asdict(self)
        del values["start"]
        return values

    def text_of(self, corpus: str) -> str:
        """The text for one of the paper's corpora."""
        return self.corpora.get(corpus, self.corpora["books"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know of the size."""
        seeds = f"All seeds start from one pretrained {self.model}: verdicts are about this checkpoint"
        if self.start is not None:
            seeds = f"Seed s starts from checkpoint s of {self.seeds} pretrainings of {self.model}"
        return (f"T = {self.trained} tokens. {seeds}. Each seed has its own windows and offsets.",)

    @property
    def marks(self) -> tuple[int, ...]:
        """The steps that stand for `followed` of the paper's."""
        return tuple(sorted({after for mark in self.followed if (after := self.steps * mark // STEPS) > 0}))

    def measures(self, window: int) -> dict[str, dict[str, Any]]:
        """The measures of a trained arm, at training windows of `window` tokens."""

        def tokens(multiples: Sequence[float]) -> list[int]:
            return [round(times * self.trained) for times in multiples]

        windows, segments, pairs = self.samples
        passage = {"passage": min(64, self.trained // 4), "scored": min(48, self.trained // 6)}
        found: dict[str, dict[str, Any]] = {
            "misalignment": {"lengths": [window], "windows": windows},
            "perplexity": {"lengths": tokens(self.lengths), "windows": segments},
            "recall": {"distances": tokens(self.distances), "windows": pairs, **passage},
        }
        if self.question_lengths:
            samples = {"depths": list(DEPTHS), "samples": self.questions}
            lengths = tokens(self.question_lengths)
            found["eval"] = {"tasks": list(self.asked), "mode": self.mode, "lengths": lengths, **samples}
        if self.scored or self.data:
            found["eval longbench_e"] = {
                "tasks": list(self.data_sets),
                # Our choice of the limit.
                "max_length": round(max(self.lengths) * self.trained),
                "truncation": "middle",
                **({"data": self.data} if self.data else {}),
                **({"samples": self.rows} if self.rows else {}),
            }
        return found

    def columns(self) -> list[Quantity]:
        """The numbers of an arm that a table shows, as far as they are measured."""
        depths = (None, *DEPTHS)
        answers = [
            answered(times, at, task)
            for task in self.asked
            for times in self.question_lengths
            for at in depths
        ]
        return [*map(loss, self.lengths), *PARTS, *map(recalled, self.distances), *answers]


_CPU = ("precision=float32", "gradient_checkpointing=false", "data.packing=false", "optimizer.warmup_steps=2")
# At 1e-3 plain fine-tuning raised the loss of an extended tiny-books by 0.06 nats at T and 0.23 at 4T, at 1e-4 by
# 0.006 and -0.007 (one pretraining).
_SMALL_RATE = (*_CPU, "optimizer.learning_rate=1.0e-4")
SHORT_LORA = (
    *_CPU,
    "precision=bfloat16",
    "optimizer.learning_rate=3.0e-4",
    "adapter.r=16",
    "adapter.lora_alpha=32",
    "adapter.target_modules=[q_proj,k_proj,v_proj,o_proj]",
    "adapter.modules_to_save=[]",
)
"""Of the recipes, where LoRA trains on few tokens."""

LAPTOP = Size(
    model="tiny-books",
    start=TinyModel(),
    trained=128,
    window=128,
    steps=152,
    followed=(25, 50, 66, 100),
    changes=_SMALL_RATE,
    # LongQLoRA with plain CE (one pretraining), trained without four of the training books and read on these four,
    # has a loss at 2T of 3.172 at 1e-4, 3.133 at 3e-4 and 3.152 at 1e-3.
    adapter_rate=3e-4,
)
SMOKE = replace(
    LAPTOP,
    start=None,
    window=32,
    steps=4,
    batch=2,
    seeds=1,
    samples=(2, 2, 2),
    # Source code, the second corpus of the laptop's size, has three times as many characters to tokenize.
    corpora={"books": "books", "pg19": TWENTY, TWENTY: TWENTY},
    # Its reply has 32 tokens. Those to a row of each data set have 1,696, and CLEX writes without a cache.
    data_sets=("longbench_hotpotqa_e",),
    rows=1,
)
SMOLLM2 = Size(
    model="smollm2-135m",
    trained=8192,
    # 37 minutes a training on one core. Windows of T would take more than eight times as long.
    window=1024,
    steps=STEPS,
    followed=(50,),
    batch=1,
    corpora={"books": "books-21"},
    lengths=(0.125, 1, 2),
    distances=(0.0625, 0.5),
    samples=(8, 12, 2),
    changes=(*SHORT_LORA, "save_every=50"),
)
_ONE_CORPUS = {"books": "hf://emozilla/pg19", "pg19": "hf://emozilla/pg19"}
# The hub has no more of RedPajama-Book than this sample of it:
#   hf download togethercomputer/RedPajama-Data-1T-Sample book_sample.jsonl --repo-type dataset --local-dir data
_PAPERS_CORPORA = {"books": "data/book_sample.jsonl", "pg19": "hf://emozilla/pg19"}
GPU = Size(
    model="HuggingFaceTB/SmolLM2-1.7B",
    trained=8192,
    window=8192,
    batch=16,
    micro=1,
    lengths=(0.25, 1, 2),
    samples=(64, 32, 32),
    question_lengths=(0.5, 1, 2),
    questions=50,
    corpora=_ONE_CORPUS,
    changes=("precision=bfloat16", "gradient_checkpointing=true"),
    scored=True,
    quantized=True,
    cards=1,
)
PAPER = replace(
    GPU,
    model="meta-llama/Llama-2-7b-hf",  # Sec. 5.1
    trained=4096,  # Llama 2
    window=4096,  # Sec. 5.1
    factor=16,  # CLEX's own; the paper names none
    steps=200,  # Sec. 5.1
    batch=64,  # Sec. 5.1
    seeds=3,  # our choice; the paper shows one number a cell
    lengths=(0.25, 0.5, 1, 2, 4),  # 2T: Sec. 5.1; 4T: Table 1; the others: rebuttal
    samples=(128, 64, 64),  # our choice, as all sample sizes
    question_lengths=(1, 2, 4),  # Table 6
    questions=100,
    mode="greedy",
    corpora=_PAPERS_CORPORA,  # Sec. 5.1
    cards=8,
)

SIZES: dict[str, Size] = {
    "default": LAPTOP,
    "smoke": SMOKE,
    "laptop": LAPTOP,
    "laptop-smollm2": SMOLLM2,
    "gpu": GPU,
    "paper": PAPER,
}
"""`default` is `laptop`."""
