"""How much faster a stack of small Transformers trains than a loop over its models, in one run.

    OMP_NUM_THREADS=1 python bench/synthetic.py                     some two minutes
    OMP_NUM_THREADS=1 python bench/synthetic.py --models 5 10 15

Four ways to train the same S models on the same samples with the same clipped Adam:

    stack      one program, every weight [S, ...] (what the studies run)
    loop       that same program with one model, S times
    plain      ordinary code (`PlainTransformer`, torch.optim.Adam, clip_grad_norm_), S times
    vmap       torch.func over the ordinary code's stacked parameters

Rounds of all four take turns, so that other work on the machine disturbs them alike; the median round counts.
Writes synthetic.json and synthetic.svg into --out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise_studies.synthetic.encodings import ENCODINGS
from lengthwise_studies.synthetic.reparameterization import IDENTITY
from lengthwise_studies.synthetic.tasks import LENGTH
from lengthwise_studies.synthetic.training import OPTIMIZERS, Adam, Batch, batches, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer, causal_bias

RATE = 1e-3
LOOPS = ("loop", "plain", "vmap")


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    rows = []
    for models in options.models:
        for width, layers, size in options.shapes:
            rows.append(measure(models, width, layers, size, options))
            print(line(rows[-1]), flush=True)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    document = {"settings": vars(options), "torch": torch.__version__, "rows": rows}
    (out / "synthetic.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(rows, out / "synthetic.svg")


def measure(models: int, width: int, layers: int, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds for one step of all models, each way."""
    architecture = Architecture(
        vocabulary=4,
        encoding=options.encoding,
        value=True,
        width=width,
        layers=layers,
        heads=4,
        hidden=4 * width,
    )
    seeds = list(range(models))
    drawn = list(
        batches(
            LENGTH,
            IDENTITY,
            architecture.build_encoding(),
            longest=10,
            size=size,
            steps=options.steps,
            seeds=seeds,
        )
    )
    ways: dict[str, Callable[[], None]] = {
        "stack": lambda: train_stacked(architecture, seeds, drawn),
        "loop": lambda: [
            train_stacked(architecture, [s], [b.of(slice(s, s + 1)) for b in drawn]) for s in seeds
        ],  # type: ignore[dict-item]
        "plain": lambda: [train_plain(architecture, s, drawn) for s in seeds],  # type: ignore[dict-item]
        "vmap": lambda: train_vmap(architecture, seeds, drawn),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        for name, run in ways.items():
            started = time.perf_counter()
            run()
            if turn:  # the first round warms up
                taken[name].append(1000 * (time.perf_counter() - started) / options.steps)
    milliseconds = {name: median(times) for name, times in taken.items()}
    return {
        "models": models,
        "width": width,
        "layers": layers,
        "batch": size,
        "milliseconds": milliseconds,
        "times_faster_than": {name: milliseconds[name] / milliseconds["stack"] for name in LOOPS},
    }


def train_stacked(architecture: Architecture, seeds: list[int], drawn: list[Batch]) -> None:
    model = StackedTransformer(architecture, seeds)
    rates = [RATE] * len(seeds)
    for _ in train(model, drawn, OPTIMIZERS["adam"], count=len(drawn), rates=rates):
        pass


def train_plain(architecture: Architecture, seed: int, drawn: list[Batch]) -> None:
    model = PlainTransformer(architecture, seed)
    adam = torch.optim.Adam(model.parameters(), lr=RATE, betas=Adam.BETAS, eps=Adam.EPSILON)
    for step, batch in enumerate(drawn):
        adam.param_groups[0]["lr"] = RATE * OPTIMIZERS["adam"].schedule(step, len(drawn))
        positions = None if batch.positions is None else batch.positions[seed]
        values = model.value(batch.tokens[seed], batch.last[seed], positions)
        loss = (values - batch.target[seed]).square().mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), Adam.LARGEST_NORM)
        adam.step()


class PlainTransformer(nn.Module):
    """One model with one parameter for each weight; the same arithmetic as the stack's.

    Args:
        architecture: what it is.
        seed: of its initial weights, which are those of the stack's model of this seed.
    """

    def __init__(self, architecture: Architecture, seed: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoding = architecture.build_encoding()
        initial = StackedTransformer(architecture, [seed]).weights()
        # A parameter's name must not hold a dot.
        self.w = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(w[0].detach().clone()) for name, w in initial.items()}
        )

    def value(self, tokens: Tensor, last: Tensor, positions: Tensor | None = None) -> Tensor:
        """One number for each sample [B], read off the token at index `last` [B]; tokens are [B, T]."""
        hidden = self._body(tokens, positions)
        read = _norm(hidden[torch.arange(len(tokens)), last])
        inner = (read @ self.w["value_up"] + self.w["value_up_bias"]).relu()
        return (inner @ self.w["value_down"] + self.w["value_down_bias"]).squeeze(-1)

    def _body(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Residual stream after the last block [B, T, D]."""
        batch, length = tokens.shape
        if positions is None:
            positions = torch.arange(length).expand(batch, length)
        positions = positions.unsqueeze(0)
        own = {name.replace("_", ".", 1): weight.unsqueeze(0) for name, weight in self.w.items()}
        x = self.encoding.embed(self.w["embedding"][tokens].unsqueeze(0), own, positions)[0]
        bias = self.encoding.bias(causal_bias(length, x), own, positions)
        bias = bias if bias.dim() == 2 else bias[0]
        for layer in range(self.architecture.layers):
            x = x + self._attention(layer, _norm(x), positions, bias)
            inner = (_norm(x) @ self.w[f"{layer}_up"] + self.w[f"{layer}_up_bias"]).relu()
            x = x + inner @ self.w[f"{layer}_down"] + self.w[f"{layer}_down_bias"]
        return x

    def _attention(self, layer: int, x: Tensor, positions: Tensor, bias: Tensor) -> Tensor:
        heads = self.architecture.heads
        parts = (x @ self.w[f"{layer}_qkv"]).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        query = self.encoding.rotate(query.unsqueeze(0), positions)[0]
        key = self.encoding.rotate(key.unsqueeze(0), positions)[0]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return mixed.transpose(1, 2).flatten(-2) @ self.w[f"{layer}_out"]


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


class Value(nn.Module):
    """`PlainTransformer.value` as a forward, which is what functional_call calls."""

    def __init__(self, model: PlainTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, last: Tensor) -> Tensor:
        return self.model.value(tokens, last)


def train_vmap(architecture: Architecture, seeds: list[int], drawn: list[Batch]) -> None:
    models = [Value(PlainTransformer(architecture, seed)) for seed in seeds]
    stacked, _ = torch.func.stack_module_state(models)  # type: ignore[arg-type]

    def loss(weights: dict[str, Tensor], batch: tuple[Tensor, ...]) -> Tensor:
        tokens, last, target = batch
        return (torch.func.functional_call(models[0], weights, (tokens, last)) - target).square().mean()

    gradients = torch.func.vmap(torch.func.grad(loss))
    weights = {name: weight.detach() for name, weight in stacked.items()}
    update = Adam(torch.cat([weight.flatten(1) for weight in weights.values()], dim=1))
    for step, batch in enumerate(drawn):
        gradient = gradients(weights, (batch.tokens, batch.last, batch.target))
        flat = torch.cat([weight.flatten(1) for weight in weights.values()], dim=1)
        rates = torch.full((len(seeds), 1), RATE * OPTIMIZERS["adam"].schedule(step, len(drawn)))
        update(flat, torch.cat([part.flatten(1) for part in gradient.values()], dim=1), rates)
        sizes = [weight[0].numel() for weight in weights.values()]
        parts = flat.split(sizes, dim=1)
        weights = {
            name: part.reshape(old.shape) for (name, old), part in zip(weights.items(), parts, strict=True)
        }


def line(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {value:.2f} ms" for name, value in row["milliseconds"].items())
    ratios = ", ".join(f"{value:.2f}x {name}" for name, value in row["times_faster_than"].items())
    return (
        f"{row['models']} models of {row['layers']} layers, width {row['width']}, batch {row['batch']}: "
        f"{times}; {ratios}"
    )


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.5 * len(rows)), layout="constrained")
    for offset, name in enumerate(LOOPS):
        axes.barh(
            [index + 0.25 * offset for index in range(len(rows))],
            [row["times_faster_than"][name] for row in rows],
            height=0.24,
            label=f"than {name}",
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(3, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(
        [index + 0.25 for index in range(len(rows))],
        [f"{r['models']} x {r['layers']} layers, {r['width']} wide, batch {r['batch']}" for r in rows],
    )
    axes.set_xlabel("times faster as a stack (dotted: the aim of 3)")
    axes.legend()
    figure.savefig(path)


def shape(text: str) -> tuple[int, int, int]:
    width, layers, size = map(int, text.split("x"))
    return width, layers, size


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, nargs="+", default=[5, 15])
    parser.add_argument(
        "--shapes",
        type=shape,
        nargs="+",
        metavar="WIDTHxLAYERSxBATCH",
        default=[(16, 2, 16), (32, 1, 32), (32, 2, 32), (32, 2, 64), (64, 2, 128)],
    )
    parser.add_argument("--encoding", choices=[n for n in ENCODINGS if n != "randomised"], default="none")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", default="bench/out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
