"""What is run, as data: commands of `lengthwise` in lanes, each lane in the order of value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
class Job:
    """A command of Python, in a process of its own.

    Args:
        name: the name of its run folder.
        lane: jobs of a lane come one after another, lanes beside each other.
        words: what Python runs.
        seconds: its time limit.
        after: the jobs that must have ended.
        on_cpu: whether it must not see a GPU.
    """

    name: str
    lane: str
    words: tuple[str, ...]
    seconds: float = 240.0
    after: tuple[str, ...] = ()
    on_cpu: bool = False


@dataclass(frozen=True)
class Scale:
    """The sizes of everything.

    Args:
        model, other: the model of the study, and the one whose caches are beside it.
        context, beyond: tokens of the longest contexts; the model was trained for the first.
        windows: documents of each text.
        lengths: tokens of the windows that are read through a cache.
        served: tokens of the longest context that is read through a cache.
        prompts, questions: tokens of the prompts of tasks; questions of each task, length and depth.
        shards: processes for the fault lab; its scale, and which rows (all, if empty).
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
    shards: int = 11
    lab_scale: int = 2
    lab_rows: str = ""


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
        shards=2,
        lab_scale=1,
        lab_rows="rope: base",
    ),
}


def jobs(scale: Scale, texts: Path, out: Path) -> Iterator[Job]:
    """Every job; run folders are in `out`/runs, each named as its job.

    Args:
        scale: the sizes.
        texts: what `texts.write` wrote.
        out: where everything goes.
    """
    yield from _lab(scale, out)
    yield from _caches(scale, scale.other, "other", texts, out)
    kernels = ("checks/gpu", "--parts", "facts,cases", "--out", str(out / "runs" / "kernels"))
    yield Job("kernels", "kernels", kernels)
    first = "limit-books"
    for text, words in _texts(texts).items():
        yield _limit(f"limit-{text}", "limits", scale.model, scale.context, words, scale, out)
    extended = str(out / "work" / "yarn2")
    yield _run("doctor", "yarn", ("doctor", scale.model))
    yield _run(
        "yarn2", "yarn", ("extend", scale.model, "--method", "yarn", "--factor", "2", "--out", extended)
    )
    for text in _texts(texts):
        words = _folder(texts / f"{text}-joined")
        yield _limit(f"limit-{text}-beyond", "limits", scale.model, scale.beyond, words, scale, out)
        job = _limit(f"limit-{text}-yarn2", "yarn", extended, scale.beyond, words, scale, out)
        yield replace(job, after=(first,))
    yield from _caches(scale, scale.model, "caches", texts, out)
    for model in (scale.other, scale.model):
        for cache in CACHES:
            name = f"served-{model}-{cache}"
            words = ("limit", model, *_texts(texts)["books"], "--dtype", "bfloat16", "--kv-cache", cache)
            words += (
                "--read",
                "chunks=512",
                "--max-length",
                str(scale.served),
                "--windows",
                str(scale.windows),
            )
            yield _run(name, f"served-{model}", (*words, *_into(out, name)))
    for length in scale.prompts:
        for family, tasks in TASKS.items():
            name = f"tasks-{family}-{length}"
            words = ("eval", scale.model, *tasks, "--mode", "likelihood", "--lengths", str(length))
            words += ("--samples", str(scale.questions), "--dtype", "bfloat16")
            job = _run(name, f"tasks-{length}", (*words, *_into(out, name)))
            yield replace(job, after=(first,))
    # Beyond the context YaRN may help; this is what it costs within.
    words = _folder(texts / "code")
    yield _limit("limit-code-yarn2-within", "yarn", extended, scale.context, words, scale, out)


def _lab(scale: Scale, out: Path) -> Iterator[Job]:
    lab = ("-m", "checks.lab", "--out", str(out / "lab"))
    for shard in range(scale.shards):
        words = (*lab, "--model", scale.other, "--scale", str(scale.lab_scale), "--no-nulls")
        words += ("--only", scale.lab_rows, "--shard", f"{shard}/{scale.shards}")
        yield Job(f"lab-{shard:02}", f"lab-{shard:02}", words, 3600.0, on_cpu=True)
    for name in ("compare", "limit"):
        words = (*lab, "--only", f"nulls: {name}")
        yield Job(f"lab-nulls-{name}", f"lab-nulls-{name}", words, 3600.0, on_cpu=True)


def _caches(scale: Scale, model: str, lane: str, texts: Path, out: Path) -> Iterator[Job]:
    for text, words in _texts(texts).items():
        for cache in CACHES:
            name = f"cache-{model}-{text}-{cache}"
            how = ("--dtype", "bfloat16", "--b", f"kv_cache={cache}", "--windows", str(scale.windows))
            how += tuple(word for length in scale.lengths for word in ("--lengths", str(length)))
            yield _run(name, f"{lane}-{text}", ("compare", model, model, *words, *how, *_into(out, name)))


def _limit(
    name: str, lane: str, model: str, length: int, words: tuple[str, ...], scale: Scale, out: Path
) -> Job:
    how = ("--max-length", str(length), "--reference", str(scale.reference), "--windows", str(scale.windows))
    return _run(name, lane, ("limit", model, *words, "--dtype", "bfloat16", *how, *_into(out, name)))


def _run(name: str, lane: str, words: tuple[str, ...]) -> Job:
    return Job(name, lane, ("-m", "lengthwise", *words))


def _texts(texts: Path) -> dict[str, tuple[str, ...]]:
    return {"code": _folder(texts / "code"), "books": ("--text", "books-20")}


def _folder(texts: Path) -> tuple[str, ...]:
    return ("--text", str(texts), "--split", "all")


def _into(out: Path, name: str) -> tuple[str, ...]:
    return ("--out", str(out / "runs" / name), "--resume")
