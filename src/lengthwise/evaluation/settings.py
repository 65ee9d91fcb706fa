"""The settings of an evaluation, which tasks, families and backends read. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le, MinLen

from lengthwise.measure.measurement import Measurement
from lengthwise.settings import Count, Finite, Option, Seed, Whole

Mode = Literal["greedy", "likelihood"]
Truncation = Literal["middle", "left"]
"""middle keeps both ends (LongBench); left keeps the end (lm-eval), so an instruction at the beginning is lost."""


class EvaluationSettings(Measurement):
    """What is asked, how, and of how long prompts."""

    tasks: Annotated[tuple[str, ...], MinLen(1), Option(on="argument", metavar="TASK...")]
    """Names or groups of `lengthwise ls tasks`; with --backend lm-eval, its own names."""
    backend: Literal["native", "lm-eval"] = "native"
    """Whose tasks and scorers."""
    mode: Mode = "greedy"
    """Score greedy replies, or rank the possible answers by likelihood (for small models too)."""
    lengths: Annotated[
        tuple[Annotated[Whole, Ge(64)], ...], MinLen(1), Option("--length", metavar="TOKENS")
    ] = (2048,)
    """Tokens of the whole prompt, for tasks that are made up; repeat it for several."""
    depths: Annotated[
        tuple[Annotated[Finite, Ge(0), Le(100)], ...], MinLen(1), Option("--depth", metavar="PERCENT")
    ] = (0.0, 25.0, 50.0, 75.0, 100.0)
    """Position of the answer in per cent of the context; repeat it for several."""
    samples: Annotated[Count | None, Option("--limit")] = None
    """Samples at each length and depth (default 10), or rows of a data set (default all)."""
    data: str | None = None
    """Folder of LongBench's jsonl files (default: the hub); for lm-eval, of data sets in the hub's layout."""
    stories: Annotated[str | None, Option(on="set")] = None
    """folder of bAbI's own files, for BABILong"""
    templates: Annotated[str | None, Option(on="set")] = None
    """copy of LongBench's repository, for its prompts"""
    max_length: Annotated[Annotated[Whole, Ge(2)] | None, Option(metavar="TOKENS")] = None
    """Most tokens of a data set's prompt; for lm-eval, of prompt and reply."""
    truncation: Truncation | None = None
    """How longer prompts are cut. Without it they are refused."""
    chat: Annotated[Literal["auto", "never"], Option(on="set")] = "auto"
    """auto uses the tokenizer's chat template where LongBench does"""
    seed: Seed = 0
    """Seed of what is made up."""
    batch_size: Count = 1
    """Prompts, or endings of one prompt, at a time. More needs more memory; the scores stay the same."""
