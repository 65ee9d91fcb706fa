"""Faults planted in a real model, and pairs that are sound: what `compare` says of each. `make compare` runs this.

    python tests/compare/real.py --out runs/compare [--only NAME]

SmolLM2-135M on books. `FAULTS` says what must be found, `SOUND` which pairs must be equal; exits with 1 if not.
What is finished in --out is not run again; all numbers go to its `results.json`, which
`python -m tools.docs.doc_tables keep` keeps for the documentation.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lengthwise.measure import Difference, run
from lengthwise.models import LoadedModel, load, open_model
from lengthwise.report.difference_verdict import verdict
from lengthwise.results import Results, Row, read_results
from lengthwise.settings import Subject

# Another package of the environment may be called `tests`, too.
sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("measure", "served")]

NAME = "smollm2-135m"
KIND = "compare-real"
LENGTH, WINDOWS = 2048, 2
"""Tokens of a window, and pairs of windows."""
LADDER = (256, 512, 1024, 2048)
CACHES = "faulty_caches"
SHOWN = ("equal_up_to", "difference", "shift", "kl", "prefix_cache", "benefit_a", "benefit_b", "tolerance")


@dataclass(frozen=True)
class Pair:
    """Two sides, and what must be said of them.

    Args:
        what: the planted fault, or how a sound pair differs, in words.
        says: words of the verdict; a sound pair says "predicts as A does".
        a, b: what differs from the plain model in float32; `model` is a folder that `variants` makes.
        lengths: of the windows.
    """

    what: str
    says: str
    a: dict[str, str]
    b: dict[str, str]
    lengths: tuple[int, ...] = (LENGTH,)

    @property
    def folder(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.what.lower())


def _cache(name: str, read: str = "chunks=256") -> dict[str, str]:
    return {"cache": f"{CACHES}:{name}", "read": read}


SIXTEEN = {"dtype": "bfloat16"}
FAULTS = (
    Pair("rope scaling dropped (YaRN x2)", "B differs from A", {"model": "yarn"}, {}),
    Pair("rope scaling dropped (llama3 x8)", "B differs from A", {"model": "llama3"}, {}),
    Pair("rope base 10,000 for 100,000", "all positions alike", {}, {"model": "base"}),
    Pair("YaRN with another original length", "B differs from A", {"model": "yarn"}, {"model": "yarn-2048"}),
    Pair(
        "a window of 1,024 in the cache, none in the model", "fault of the cache", {}, _cache("forgets_1024")
    ),
    Pair("values off by one after 512 tokens", "fault of the cache", {}, _cache("off_by_one")),
    Pair(
        "the same, on the decode path",
        "fault of the cache",
        {},
        {**_cache("off_by_one"), "read": "decode=64"},
        LADDER,
    ),
    Pair("a cache that evicts the middle (4 + 252)", "fault of the cache", {}, _cache("evicts_the_middle")),
    Pair("a cache in 4 bits", "precision of the cache", {}, _cache("four_bits")),
    Pair("a cache in 2 bits", "precision of the cache", {}, _cache("two_bits")),
    Pair("fp8 cache", "precision of the cache", SIXTEEN, {**SIXTEEN, "kv_cache": "fp8"}),
    Pair("quanto-int4 cache", "precision of the cache", {}, {"kv_cache": "quanto-int4"}),
    Pair("quanto-int2 cache", "precision of the cache", {}, {"kv_cache": "quanto-int2"}),
    Pair("nf4 weights", "all positions alike", {}, {"quantize": "nf4"}),
    Pair("an adapter not loaded", "all positions alike", {"adapter": "adapter"}, {}),
    Pair("a BOS that one side adds", "B differs from A", {}, {"model": "adds-bos"}),
    Pair(
        "a prefix cache that mixes prompts (stub)",
        "prefix cache",
        {},
        {"read": "decode=16", "model": "server"},
        (256,),
    ),
)
"""What is planted, and what must be found."""
SOUND = tuple(
    Pair(f"{words}, {precision}", "predicts as A does", dict(dtype), {**dtype, **b}, lengths)
    for precision, dtype in (("float32", {}), ("bfloat16", SIXTEEN))
    for words, b, lengths in (
        ("eager for sdpa", {"attn": "eager"}, (1024,)),
        ("passes of 256", {"read": "chunks=256"}, (LENGTH,)),
        ("passes of 100", {"read": "chunks=100"}, (1024,)),
        ("decode", {"read": "decode=64"}, LADDER),
        ("static cache", {"kv_cache": "static", "read": "chunks=256"}, (LENGTH,)),
        ("static cache, decode", {"kv_cache": "static", "read": "decode=32"}, (256, 1024)),
        ("whole cache", {"kv_cache": "full", "read": "chunks=128"}, (1024,)),
        ("eager, decode", {"attn": "eager", "read": "decode=32"}, (256, 1024)),
        ("four windows at a time", {"model": "four-at-a-time"}, (1024,)),
        ("saved again", {"model": "saved"}, (1024,)),
    )
)
"""Pairs that are the same in other words."""


def variants(out: Path) -> None:
    """The folders that pairs name, in `out`: the same weights with other configurations, and an adapter."""
    plain = load(NAME, dtype="float32")
    theta = plain.config.rope_parameters["rope_theta"]
    yarn = {"rope_type": "yarn", "rope_theta": theta, "factor": 2.0, "original_max_position_embeddings": 8192}
    llama3 = {
        "rope_type": "llama3", "rope_theta": theta, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }  # fmt: skip
    ropes = {
        "saved": plain.config.rope_parameters,
        "base": {"rope_type": "default", "rope_theta": 1e4},
        "yarn": yarn,
        "yarn-2048": yarn | {"original_max_position_embeddings": 2048},
        "llama3": llama3,
    }
    for name, rope in ropes.items():
        if not (out / name / "config.json").exists():
            plain.model.save_pretrained(out / name)
            plain.tokenizer.save_pretrained(out / name)
            path = out / name / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_parameters": rope}, indent=2))
    if not (out / "adapter").exists():
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        tuned = get_peft_model(plain.model, LoraConfig(r=4, init_lora_weights=False, lora_alpha=1))
        tuned.save_pretrained(out / "adapter")


class AddsBos(LoadedModel):
    """A side that puts a BOS before every input, as a server with the wrong habit does."""

    def hidden_states(self, input_ids: torch.Tensor, **positions: Any) -> torch.Tensor:
        bos = torch.full_like(input_ids[:, :1], self.tokenizer.bos_token_id)
        return super().hidden_states(torch.cat([bos, input_ids], dim=1), **positions)[:, 1:]


class FourAtATime(LoadedModel):
    """A side that reads every input beside three others."""

    def hidden_states(self, input_ids: torch.Tensor, **positions: Any) -> torch.Tensor:
        rows = input_ids.repeat(2, 1)
        return super().hidden_states(rows, **positions)[: len(input_ids)]


WRAPPED = {"adds-bos": AddsBos, "four-at-a-time": FourAtATime}


@contextmanager
def opened(side: dict[str, str], out: Path) -> Iterator[Any]:
    """A side as a loaded model, or the stub of a server with it."""
    settings = {"model": NAME, "dtype": "float32", **side}
    name = settings["model"]
    if name == "server":
        import stub

        model = load(NAME, dtype="float32")
        with stub.serving(stub.Stub(model, mixes_prompts=True)) as server:
            yield open_model(Subject(model=server.url, read=settings["read"]), tokenizer=model.tokenizer)
        return
    if "adapter" in settings:
        settings["adapter"] = str(out / settings["adapter"])
    settings["model"] = NAME if name in (NAME, *WRAPPED) else str(out / name)
    model = open_model(Subject(**settings))
    if name in WRAPPED:
        model = WRAPPED[name](model.model, model.tokenizer, name, "memory")  # type: ignore[attr-defined]
    yield model


def compared(pair: Pair, out: Path) -> Results:
    """The results of a pair, from its run folder if it is finished."""
    folder = out / "pairs" / pair.folder
    if (folder / "results.json").exists() and not (found := read_results(folder / "results.json")).partial:
        return found
    shutil.rmtree(folder, ignore_errors=True)
    with opened(pair.a, out) as a, opened(pair.b, out) as b:
        return run(Difference(lengths=pair.lengths, windows=WINDOWS), a, "books", other=b, out=folder)


def rows_of(pair: Pair, results: Results) -> list[Row]:
    """The numbers of a pair that are kept: at the greatest length, benefits at the greatest distance."""
    longest = max(row.length for row in results.rows if row.length is not None)
    farthest = max(row.distance or 0 for row in results.rows if row.length == longest)
    return [
        replace(row, model=NAME, arm=pair.what)
        for row in results.rows
        if row.metric in SHOWN and row.is_whole and row.length in (longest, None)
        if row.distance in (farthest, None)
    ]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    given = parser.parse_args(words)
    variants(given.out)
    rows: list[Row] = []
    notes: list[str] = []
    failures = []
    for pair in (*FAULTS, *SOUND):
        if given.only not in pair.what:
            continue
        started = time.monotonic()
        results = compared(pair, given.out)
        rows += rows_of(pair, results)
        text = " ".join(verdict(results.rows))
        notes.append(f"{pair.what}: {text}")
        print(f"{time.monotonic() - started:5.0f} s  {notes[-1]}", flush=True)
        if pair.says not in text:
            failures.append(f"{pair.what}: not {pair.says!r}")
    settings = {"length": LENGTH, "windows": 2 * WINDOWS, "faults": len(FAULTS), "sound": len(SOUND)}
    kept = Results(kind=KIND, model_name=NAME, config=settings, rows=rows, notes=notes)
    if not given.only:
        (given.out / "results.json").write_text(kept.to_json())
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
