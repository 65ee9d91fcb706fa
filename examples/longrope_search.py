"""Search the factors of LongRoPE for a model (Ding et al. 2024, Sec. 3.2). Writes the section of a recipe.

    python examples/longrope_search.py smollm2-135m --factor 2 --original-length 1024 --out searches/smollm2

Evolution from the factors of PI, NTK and YaRN, by the model's loss on windows of the extended length. Factors lie
between 1 and 1.25 s and do not fall with k (the paper's constraint); the sizes of the generations are those of the
released code. Each loss goes to OUT/losses.jsonl at once, and a search with the same settings continues from there.
`lengthwise extend --method longrope` and recipes take the factors in OUT/extend.yaml.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from lengthwise.checkpoints.extending import find_rotary, frequency_names
from lengthwise.checkpoints.extension import Extension, plan_extension
from lengthwise.checkpoints.hidden import unwrap
from lengthwise.errors import UsageError
from lengthwise.positions import rope_method
from lengthwise.positions.rope import Rope
from lengthwise.subjects import LoadedModel, load
from lengthwise.text import TokenDocument, load_corpus, resolve_bos, sample_windows, tokenize, view
from lengthwise.yaml_text import to_yaml

STARTS = ("pi", "ntk", "yarn")  # methods whose frequencies, as factors, the search starts from
PARENTS = 32  # the best candidates so far, from which the next generation is made
CHILDREN = 16  # of one parent, and as many of two, in each generation
MUTATED = 0.3  # share of the factors that a mutation draws again

Factors = tuple[float, ...]


def start_factors(theta: float, head_dim: int, original_length: int, factor: float) -> dict[str, Factors]:
    """Other methods' frequencies as factors lambda_k = w_k / w'_k, by name."""
    rope = Rope(theta, head_dim, original_length, factor)
    plain = rope.frequencies()
    return {name: in_order((plain / rope_method(name)(rope).frequencies.float()).tolist()) for name in STARTS}


def search_factors(
    loss: Callable[[Factors], float],
    starts: Mapping[str, Factors],
    *,
    largest: float,
    population: int = 64,
    iterations: int = 40,
    seed: int = 0,
) -> dict[Factors, float]:
    """The loss of every candidate, the best first; never worse than the best start. A seed gives one result.

    Args:
        loss: of a candidate; called once for each.
        starts: candidates by name, each of d/2 factors that do not fall.
        largest: bound of the factors.
        population: candidates of the first generation: the starts and their mutations.
        iterations: generations after the first.
        seed: of all draws.
    """
    rng = random.Random(seed)
    losses: dict[Factors, float] = {}

    def evaluate(candidates: Iterable[Factors]) -> None:
        for candidate in candidates:
            if candidate not in losses:
                losses[candidate] = loss(candidate)

    first = list(starts.values())
    evaluate(first)
    evaluate(mutated(rng.choice(first), rng, largest) for _ in range(population - len(first)))
    for _ in range(iterations):
        parents = sorted(losses, key=losses.__getitem__)[:PARENTS]
        evaluate(mutated(rng.choice(parents), rng, largest) for _ in range(CHILDREN))
        evaluate(crossed(*rng.sample(parents, 2), rng) for _ in range(CHILDREN))
    return dict(sorted(losses.items(), key=lambda item: item[1]))


def mutated(candidate: Factors, rng: random.Random, largest: float) -> Factors:
    """Some factors drawn again between their neighbours, so that the order stays."""
    factors = [1.0, *candidate, largest]
    for k in range(1, len(factors) - 1):
        if rng.random() < MUTATED:
            factors[k] = rng.uniform(factors[k - 1], max(factors[k - 1], factors[k + 1]))
    return in_order(factors[1:-1])


def crossed(one: Factors, other: Factors, rng: random.Random) -> Factors:
    """Each factor from one of two parents; where the order breaks, the greatest so far."""
    return in_order(rng.choice(pair) for pair in zip(one, other, strict=True))


def in_order(factors: Iterable[float]) -> Factors:
    """Four digits, 1 or more, none below the one before."""
    return tuple(accumulate((max(1.0, round(each, 4)) for each in factors), max))


def loss_of_factors(
    model: LoadedModel, plan: Extension, documents: Sequence[TokenDocument], *, windows: int, seed: int
) -> Callable[[Factors], float]:
    """The mean loss over all tokens of windows of the extended length, in nats, with given factors.

    The model is left as it was after each.
    """
    length = plan.extended_length
    bos = resolve_bos(model.tokenizer, "auto")
    cut = sample_windows(documents, length + 1, count=windows, seed=seed, allow_fewer=True)
    inputs = [torch.from_numpy(view(window.ids, 0, length, bos))[None] for window in cut]
    labels = [torch.from_numpy(view(window.ids, 1, length, None)) for window in cut]
    names = frequency_names(plan.layer_type)
    rotary = [module for _, _, module in find_rotary(unwrap(model.model))]

    def loss(factors: Factors) -> float:
        changes = {"method": "longrope", "options": {"long_factor": list(factors)}}
        frequencies, scaling = plan.model_copy(update=changes).inverse_frequencies()
        before = [tuple(getattr(module, name) for name in names) for module in rotary]
        kept = [own.clone() for own, _ in before]
        for module in rotary:
            getattr(module, names[0]).copy_(frequencies)
            setattr(module, names[1], scaling)
        try:
            totals = [
                model.rows(model.hidden_states(ids)[0]).losses(after).sum().item()
                for ids, after in zip(inputs, labels, strict=True)
            ]
        finally:
            for module, (own, own_scaling), values in zip(rotary, before, kept, strict=True):
                own.copy_(values)
                setattr(module, names[1], own_scaling)
        return sum(totals) / (length * len(inputs))

    return loss


def logged(loss: Callable[[Factors], float], file: Path, settings: dict[str, Any]) -> Callable[..., float]:
    """The same, but each loss is kept in a file, and those that the file has are not computed again."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if lines and lines[0] != settings:
        raise UsageError(
            f"{file} is of another search: {lines[0]}, not {settings}", fix="give another folder"
        )
    known = {tuple(factors): value for factors, value in lines[1:]}
    if not lines:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings) + "\n")

    def found(factors: Factors) -> float:
        if factors not in known:
            known[factors] = loss(factors)
            with file.open("a") as log:
                log.write(json.dumps([factors, known[factors]]) + "\n")
            print(f"{len(known):5} candidates, lowest loss {min(known.values()):.4f}", file=sys.stderr)
        return known[factors]

    return found


def search(
    model: LoadedModel,
    documents: Sequence[TokenDocument],
    out: Path,
    *,
    factor: float,
    original_length: int | None = None,
    windows: int = 5,
    seed: int = 0,
    **sizes: int,
) -> dict[str, Any]:
    """The section `extend` of a recipe with the best factors, its loss, and the losses of the starts."""
    plan = plan_extension(model.config, "pi", factor=factor, original_length=original_length, name=model.name)
    if factor == 1:
        raise UsageError("factor = 1 leaves nothing to search", expected="above 1")
    rope = {"factor": factor, "original_length": plan.original_length}
    settings = {"model": model.fingerprint(), **rope, "windows": windows, "seed": seed}
    loss = loss_of_factors(model, plan, documents, windows=windows, seed=seed)
    starts = start_factors(plan.theta, plan.head_dim, plan.original_length, factor)
    losses = search_factors(
        logged(loss, out / "losses.jsonl", settings), starts, largest=1.25 * factor, seed=seed, **sizes
    )
    best = next(iter(losses))
    extend = {"method": "longrope", **rope, "options": {"long_factor": list(best)}}
    (out / "extend.yaml").write_text(to_yaml({"extend": extend}))
    return {
        "extend": extend,
        "loss": losses[best],
        "start_losses": {name: losses[factors] for name, factors in starts.items()},
    }


def main(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a hub id, a folder, or a name of `lengthwise ls models`")
    parser.add_argument(
        "--factor", type=float, required=True, help="how many times longer the context becomes"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for extend.yaml and the losses so far"
    )
    parser.add_argument("--original-length", type=int, help="trained context; default: what its config says")
    parser.add_argument("--text", default="books", help="books, code, a file, a folder, hf://owner/name")
    parser.add_argument("--split", default="train", choices=("train", "test", "all"))
    parser.add_argument("--windows", type=int, default=5, help="windows of text of the extended length")
    parser.add_argument("--population", type=int, default=64, help="candidates of the first generation")
    parser.add_argument("--iterations", type=int, default=40, help="generations after it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    options = vars(parser.parse_args(words or None))
    model = load(options.pop("model"), device=options.pop("device"), dtype=options.pop("dtype"))
    corpus = load_corpus(options.pop("text"), split=options.pop("split"))
    return search(model, tokenize(corpus, model.tokenizer), **options)


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
