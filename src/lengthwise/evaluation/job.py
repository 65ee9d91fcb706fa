"""The settings of an evaluation, checked together before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.errors import UsageError, nearest
from lengthwise.evaluation.prompts import TRUNCATIONS
from lengthwise.evaluation.questions import Mode
from lengthwise.evaluation.tasks import TASKS, resolve_tasks
from lengthwise.measure.running import check_count, check_sizes

if TYPE_CHECKING:
    from lengthwise.text import Split

Chat = Literal["auto", "never"]
Backend = Literal["native", "lm-eval"]
BACKENDS = ("native", "lm-eval")
# Settings that only some kinds of our own tasks take.
_TAKEN_BY = {
    "data": "longbench_e",
    "templates": "longbench_e",
    "truncation": "longbench_e",
    "stories": "babilong",
}
SAMPLES = 10
"""Samples of a made-up task at each length and depth, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class EvalJob:
    """Everything that decides the scores, and how they are computed."""

    model: str
    """What `lengthwise.models.load` takes."""
    tasks: tuple[str, ...]
    """Names or groups of `lengthwise ls tasks`; lm-eval's own names with its backend."""
    adapter: str | None = None
    """A PEFT adapter on top."""
    dtype: str = "auto"
    device: str = "auto"
    backend: Backend = "native"
    mode: Mode = "greedy"
    """Score greedy replies, or rank given answers by likelihood."""
    lengths: tuple[int, ...] = (2048,)
    """Tokens of whole prompts, for tasks that are made up (and for RULER and BABILong of lm-eval)."""
    depths: tuple[float, ...] = (0, 25, 50, 75, 100)
    """Where the answer stands, per cent of the context, for tasks that choose it."""
    samples: int | None = None
    """Samples at each length and depth (default 10), or the first rows of a data set (default all)."""
    text: str = "books"
    """Background: what `lengthwise.text.load_corpus` takes."""
    split: Split = "test"
    data: str | None = None
    """Folder of LongBench's jsonl files (default: the hub); for lm-eval, of its data sets in the hub's layout."""
    stories: str | None = None
    """Folder of bAbI's own files; default is our own world."""
    templates: str | None = None
    """Copy of LongBench's repository, for its prompts; default is the installed lm-eval."""
    max_length: int | None = None
    """Tokens of a data set's prompt at most (lm-eval: of prompt and reply)."""
    truncation: str | None = None
    """What is done with longer prompts: middle, left; None refuses them."""
    chat: Chat = "auto"
    """auto wraps prompts in the chat template where LongBench does and the tokenizer has one."""
    seed: int = 0
    batch_size: int = 1
    """Prompts, or endings of one prompt, at a time. Does not change the scores beyond rounding."""

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, least=0)
        check_sizes("length", self.lengths, least=64)
        if self.samples is not None:
            check_count("samples", self.samples)
        if self.max_length is not None:
            check_count("max_length", self.max_length, least=2)
        for name, value, valid in (
            ("truncation", self.truncation, (*TRUNCATIONS, None)),
            ("mode", self.mode, ("greedy", "likelihood")),
            ("backend", self.backend, BACKENDS),
            ("chat", self.chat, ("auto", "never")),
        ):
            if value not in valid:
                raise UsageError(
                    f"unknown {name} {value!r}", expected=nearest(str(value), filter(None, valid))
                )
        if not self.depths or any(not 0 <= depth <= 100 for depth in self.depths):
            raise UsageError(f"depths are {self.depths}", expected="per cent of the context, 0 to 100")
        if len(set(self.depths)) < len(self.depths):
            raise UsageError(f"a depth is given twice: {self.depths}")
        if self.backend == "native":
            self._check_native()
        else:
            self._check_harness()

    def _check_native(self) -> None:
        tasks = [TASKS[name] for name in resolve_tasks(self.tasks)]
        if self.mode == "likelihood":
            without = [task.name for task in tasks if not task.ranks]
            if without:
                raise UsageError(
                    f"{', '.join(without)} have no answers to rank by likelihood",
                    fix="use --mode greedy for them",
                )
        kinds = {task.kind for task in tasks}
        for name, kind in _TAKEN_BY.items():
            if getattr(self, name) is not None and kind not in kinds:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}, and no task of this run takes it",
                    expected=f"a task of {kind}",
                    fix=f"leave {name} out",
                )
        made = [task.name for task in tasks if task.kind != "longbench_e"]
        if made and self.max_length is not None and max(self.lengths) > self.max_length:
            raise UsageError(
                f"{made[0]} is made for {max(self.lengths)} tokens, and max_length is {self.max_length}",
                fix="shorter lengths; or data sets, which max_length is for, in a run of their own",
            )
        if self.max_length is None and "longbench_e" in kinds:
            raise UsageError(
                "LongBench needs the greatest number of tokens of a prompt",
                expected="--max-length TOKENS; upstream takes 3500 for a model of 4k, and leaves room for the reply",
            )

    def _check_harness(self) -> None:
        if self.mode != "greedy":
            raise UsageError("lm-eval's tasks say themselves how they are scored", fix="leave out --mode")
        for name in ("stories", "templates"):
            if getattr(self, name) is not None:
                raise UsageError(f"lm-eval's tasks take no {name}", fix=f"leave {name} out")

    def settings(self) -> dict[str, Any]:
        """Plain values, as they go into YAML and come back equal."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }
