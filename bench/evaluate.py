"""Our evaluation against lm-eval's HF backend: the same prompts and answers, time and memory.

    python bench/evaluate.py --length 1024 --repeats 3 --out bench-evaluate.json
    python bench/evaluate.py --length 16384 --layers 2 --rows ranked-one --repeats 1

Rows: ranked-five (five questions on one context, five numbers ranked for each), ranked-one (one question on a
context of its own, six rooms ranked), greedy-five (five questions on one context, replies of 16 tokens). Each side
of each repeat runs in a process of its own, one after the other in turn; loading is not timed. Both sides score
with the same tokens: the likelihoods and replies are compared. `--layers` cuts the model down, for memory at
lengths that a CPU would take long for; the logits, which decide it, keep their size.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from measuring import in_fresh_process, machine, reset_peak, resident, spread

ROWS = {
    "ranked-five": ("needle_multi_key", "likelihood", (0, 25, 50, 75, 100)),
    "ranked-one": ("babilong_qa1", "likelihood", (50,)),
    "greedy-five": ("needle_multi_key", "greedy", (0, 25, 50, 75, 100)),
}
SIDES = ("ours", "lm-eval")


def main() -> None:
    arguments = parse()
    if arguments.side:
        print(json.dumps(one_side(arguments)))
        return
    found: dict[str, dict[str, list[Any]]] = {row: {side: [] for side in SIDES} for row in arguments.rows}
    options = ["--model", arguments.model, "--length", str(arguments.length), "--dtype", arguments.dtype]
    options += ["--batch-size", str(arguments.batch_size), "--layers", str(arguments.layers)]
    for _ in range(arguments.repeats):
        for row in arguments.rows:
            for side in SIDES:
                command = ["--rows", row, "--side", side, *options]
                found[row][side].append(in_fresh_process(__file__, command, threads=arguments.threads))
    print(
        "| row | tokens | lm-eval s | ours s | lm-eval / ours | lm-eval MB | ours MB | greatest difference |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for row, sides in found.items():
        print(table_line(row, arguments.length, sides["ours"], sides["lm-eval"]))
    if arguments.out:
        record = {
            "machine": machine(arguments.threads),
            "settings": vars(arguments) | {"out": None},
            "rows": found,
        }
        Path(arguments.out).write_text(json.dumps(record, indent=2) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=0, help="keep only so many layers; 0 keeps all")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch-size", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--out")
    return parser.parse_args()


def table_line(row: str, length: int, ours: list[Any], theirs: list[Any]) -> str:
    times = spread([b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)])
    far = max(difference(a["answers"], b["answers"]) for a, b in zip(ours, theirs, strict=True))
    seconds = [spread([run["seconds"] for run in runs], 1) for runs in (theirs, ours)]
    peaks = [f"{max(run['peak'] for run in runs) / 1e6:.0f}" for runs in (theirs, ours)]
    return f"| {row} | {length} | {' | '.join(seconds)} | {times} | {' | '.join(peaks)} | {far:.2g} |"


def difference(ours: list[Any], theirs: list[Any]) -> float:
    """Of likelihoods in nats; of replies the share that differ."""
    if isinstance(ours[0], str):
        return sum(a != b for a, b in zip(ours, theirs, strict=True)) / len(ours)
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def one_side(arguments: argparse.Namespace) -> dict[str, Any]:
    from lengthwise.evaluation.evaluate import Evaluation
    from lengthwise.subjects import load
    from lengthwise.text import load_corpus

    task, mode, depths = ROWS[arguments.rows[0]]
    spec = Evaluation(tasks=(task,), mode=mode, lengths=(arguments.length,), depths=depths, samples=1)  # type: ignore[arg-type]
    model = load(arguments.model, dtype=arguments.dtype)
    if arguments.layers:
        inner = model.model.model
        inner.layers = inner.layers[: arguments.layers]
        model.model.config.num_hidden_layers = arguments.layers
    asked = [item.content for item in spec.items(model, load_corpus("books"), model)]
    assert model.head
    run = (ours if arguments.side == "ours" else lm_eval)(model, asked, mode, arguments.batch_size)
    reset_peak()
    before = resident("VmRSS") or 0
    started = time.perf_counter()
    answers = run()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak": (resident("VmHWM") or 0) - before, "answers": answers}


def ours(model: Any, asked: list[Any], mode: str, batch_size: int) -> Any:
    from lengthwise.evaluation.likelihood import likelihoods

    prompts = [one.ids for one in asked]

    def run() -> list[Any]:
        if mode == "greedy":
            return model.write(prompts, new_tokens=16, at_once=batch_size)
        scores = likelihoods(model, prompts, [one.answers for one in asked], batch_size=batch_size)
        return [score for own in scores for score in own]

    return run


def lm_eval(model: Any, asked: list[Any], mode: str, batch_size: int) -> Any:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    reader = HFLM(
        pretrained=model.model,
        tokenizer=model.tokenizer,
        max_length=32768,
        batch_size=batch_size,
        device="cpu",
    )
    if mode == "greedy":
        settings = {"until": [], "max_gen_toks": 16, "do_sample": False}
        pairs = [(one.prompt, dict(settings)) for one in asked]
        kind, call = "generate_until", reader.generate_until
    else:
        pairs = [(one.prompt, f" {text}") for one in asked for text in one.candidates]
        kind, call = "loglikelihood", reader.loglikelihood
    requests = [
        Instance(request_type=kind, doc={}, arguments=pair, idx=index) for index, pair in enumerate(pairs)
    ]

    def run() -> list[Any]:
        found = call(requests, disable_tqdm=True)
        return list(found) if mode == "greedy" else [value for value, _ in found]

    return run


if __name__ == "__main__":
    main()
