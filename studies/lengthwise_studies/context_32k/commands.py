"""What is run, as commands of `lengthwise`: `python -m lengthwise_studies.context_32k.commands texts runs/32k | sh`.

They come in the order of value. Each resumes its own run folder, so the same line again does what is missing.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CACHES = ("hqq-int8", "quanto-int4", "quanto-int2", "hqq-int4", "hqq-int2", "dynamic")
"""`dynamic` keeps all bits: what chunks alone change."""
TASKS = {
    "needle": ("needle_single", "needle_multi_key"),
    "chains": ("chains",),
    "ordinals": ("ordinals",),
    "association": ("association",),
    "tracking": ("tracking",),
    "aggregation": ("aggregation",),
    "babilong": ("babilong",),
}


@dataclass(frozen=True)
class Scale:
    """The sizes of everything.

    Args:
        model, other: the model of the study, and the one whose caches are beside it.
        context, beyond: tokens of the longest contexts; the model was trained for the first.
        reference: tokens of the context that longer ones are compared with.
        windows: documents of each text.
        lengths: tokens of the windows that are read through a cache.
        served: tokens of the longest context that is read through a cache.
        prompts, questions: tokens of the prompts of tasks; questions of each task, length and depth.
    """

    model: str = "qwen2.5-coder-0.5b"
    other: str = "smollm2-135m"
    context: int = 32_768
    beyond: int = 65_536
    reference: int = 1024
    windows: int = 8
    lengths: tuple[int, ...] = (2048, 8192)
    served: int = 8192
    prompts: tuple[int, ...] = (4096, 16_384)
    questions: int = 16


SCALES = {
    "full": Scale(),
    "tiny": Scale(
        model="tiny-books",
        other="tiny-books",
        context=256,
        beyond=512,
        reference=32,
        windows=4,
        lengths=(512,),
        served=256,
        prompts=(512,),
        questions=1,
    ),
}


def commands(scale: Scale, texts: Path, out: Path) -> Iterator[str]:
    """Every command, in a shell's words; run folders are in `out`/runs. `texts` is what `texts.write` wrote."""
    extended = shlex.quote(str(out / "yarn2"))
    extend = f"lengthwise extend {scale.model} --method yarn --factor 2 --out {extended}"
    yield f"test -d {extended} || {extend}"
    for name, words in _measured(scale, texts, extended):
        folder = shlex.quote(str(out / "runs" / name))
        yield f"lengthwise {words} --dtype bfloat16 --out {folder} --resume"


def _measured(scale: Scale, texts: Path, extended: str) -> Iterator[tuple[str, str]]:
    """The name of a run folder, and the verb with what tells this run from others."""
    own = {"code": _folder(texts / "code"), "books": "--text books-20"}
    joined = {text: _folder(texts / f"{text}-joined") for text in own}
    windows = f"--windows {scale.windows}"
    limit = f"--reference {scale.reference} {windows} --max-length"
    for text, of in own.items():
        yield f"limit-{text}", f"limit {scale.model} {of} {limit} {scale.context}"
    for text, of in joined.items():
        yield f"limit-{text}-beyond", f"limit {scale.model} {of} {limit} {scale.beyond}"
        yield f"limit-{text}-yarn2", f"limit {extended} {of} {limit} {scale.beyond}"
    lengths = " ".join(f"--lengths {length}" for length in scale.lengths)
    models = dict.fromkeys((scale.other, scale.model))
    for model in models:
        for text, of in own.items():
            for cache in CACHES:
                how = f"--b kv_cache={cache} {windows} {lengths}"
                yield f"cache-{model}-{text}-{cache}", f"compare {model} {model} {of} {how}"
    for model in models:
        for cache in CACHES:
            how = f"--kv-cache {cache} --read chunks=512 --max-length {scale.served} {windows}"
            yield f"served-{model}-{cache}", f"limit {model} {own['books']} {how}"
    for length in scale.prompts:
        for family, tasks in TASKS.items():
            how = f"--mode likelihood --lengths {length} --samples {scale.questions}"
            yield f"tasks-{family}-{length}", f"eval {scale.model} {' '.join(tasks)} {how}"
    # Beyond the context YaRN may help; this is what it costs within.
    yield "limit-code-yarn2-within", f"limit {extended} {own['code']} {limit} {scale.context}"


def _folder(texts: Path) -> str:
    return f"--text {shlex.quote(str(texts))} --split all"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("texts", type=Path, help="what context_32k.texts wrote")
    parser.add_argument("out", type=Path, help="where everything goes")
    parser.add_argument("--scale", choices=tuple(SCALES), default="full")
    given = parser.parse_args()
    print("\n".join(commands(SCALES[given.scale], given.texts, given.out)))
