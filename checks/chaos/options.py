"""Sets of options drawn at random, with --dry-run: a plan, or a refusal that explains itself."""

from __future__ import annotations

import random
from collections.abc import Iterator

from stage import Stage
from trial import Trial, lengthwise

PROMISE = "every set of options gives a plan or a refusal that explains itself"

NUMBERS = [
    "-1",
    "0",
    "1",
    "2",
    "63",
    "64",
    "128",
    "1000000",
    "10" * 12,
    "nan",
    "inf",
    "-inf",
    "1e308",
    "x",
    "",
    " ",
    "1.5",
    "٣",
]
WORDS = [
    "",
    " ",
    "x",
    "auto",
    "always",
    "never",
    "test",
    "train",
    "all",
    "../..",
    "/dev/null",
    "/nowhere",
    "é",
    "a\nb",
    "--",
    "x" * 300,
]
OPTIONS: dict[str, list[str]] = {
    "--lengths": NUMBERS, "--windows": NUMBERS, "--seed": NUMBERS, "--batch-size": NUMBERS, "--max-length": NUMBERS,
    "--reference": NUMBERS, "--tolerance": NUMBERS, "--share": NUMBERS, "--short": NUMBERS,
    "--stride": NUMBERS, "--depths": NUMBERS, "--fail-above": NUMBERS,
    "--text": WORDS, "--split": WORDS, "--bos": WORDS, "--device": [*WORDS, "cpu", "cuda", "meta", "cuda:99"],
    "--dtype": [*WORDS, "float32", "bfloat16", "int8"], "--adapter": WORDS, "--estimator": ["lattice", "paper", *WORDS],
    "--mode": ["greedy", "likelihood", *WORDS], "--evaluator": WORDS,
    "--key-tokens": WORDS, "--data": WORDS, "--served-model": WORDS, "--tokenizer": WORDS,
    "--truncation": ["middle", "left", *WORDS],
    "--stories": WORDS, "--chat": ["auto", "never", *WORDS],
    "--set": ["a=b", "=", "x", "optimizer.learning_rate=yes", "steps=.nan", "length=1e30",
              "data.corpus=''", "model=''", "positions.target_length=" + "9" * 30, "extend.factor=.inf", "a.b.c=[" ],
    "--resume": [], "--json": [],
}  # fmt: skip
TAKEN = {
    "measure": ["--lengths", "--windows", "--estimator"],
    "ppl": ["--lengths", "--windows", "--fail-above"],
    "limit": ["--max-length", "--reference", "--tolerance", "--share", "--windows"],
    "longppl": ["--max-length", "--short", "--stride", "--evaluator", "--key-tokens", "--windows"],
    "eval": ["--lengths", "--depths", "--mode", "--data", "--max-length", "--truncation", "--samples", "--stories", "--chat"],
    "train": ["--set"],
}  # fmt: skip
COMMON = [
    "--text",
    "--split",
    "--bos",
    "--seed",
    "--device",
    "--dtype",
    "--batch-size",
    "--adapter",
    "--served-model",
    "--tokenizer",
    "--json",
    "--resume",
]
# Not -v, which shows the traceback of every error.
# What the operating system refuses by itself is no option of ours.
TASKS = ["needle_single", "babilong_qa1", "needle", "longbench_e", "x", ""]


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` dry runs of all verbs."""
    for _ in range(count):
        verb = rng.choice(list(TAKEN))
        words = list(stage.verbs[verb][:2])
        if verb == "eval":
            words += [rng.choice(TASKS)]
        if rng.random() < 0.1:
            words[1] = rng.choice(WORDS)
        if verb != "train":
            words += ["--text", str(stage.text), "--split", "all"]
        own = [*TAKEN[verb], *([] if verb == "train" else COMMON)]
        for option in rng.sample(own, k=min(len(own), rng.choice([1, 1, 2, 3, 4]))):
            words += [option, rng.choice(OPTIONS[option])] if OPTIONS[option] else [option]
        outcome = lengthwise([*words, "--dry-run"], timeout=60)
        yield Trial(repr(" ".join(words[:1] + words[2:]))[:150], outcome.fault)
