"""Two steps of shipped recipes under FSDP2, for test_sharded.py and `make check-recipes`.

    torchrun --nproc-per-node 2 tests/training/sharded_recipes.py OUT [NAME...]

The model is tiny, of the recipe's architecture. Recipes in 4 bits run with whole weights, which can be sharded.
Each run's `memory.json` has the bytes that the first process keeps and the plan's. OUT's `results.json` has them all;
`python -m tools.docs.doc_tables keep OUT` keeps it for the documentation.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from trainers import metrics, shard_on_cpus

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.machine import is_main_process, process_count
from lengthwise.results import Results, Row
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.training import build, read_recipe, train
from lengthwise.training.recipe import Recipe
from lengthwise.training.training_plan import device_memory

LENGTH = 32
SIZES = {
    "clex": [f"extend.original_length={LENGTH}", "extend.factor=4", f"positions.target_length={4 * LENGTH}"],
    "cream": [f"extend.original_length={LENGTH}", "extend.factor=3", f"positions.target_length={3 * LENGTH}"],
    "eabf": ["extend.original_length=16", "extend.options.skip_layers=1"],
    "longlora": ["extend.original_length=16"],
    "longqlora": ["extend.original_length=16"],
    "pose": [f"extend.original_length={LENGTH}", f"positions.target_length={4 * LENGTH}"],
    "llama3-8b-far": [f"positions.target_length={4 * LENGTH}"],
    "llama3-8b-far-qlora": [f"positions.target_length={4 * LENGTH}"],
}
"""What a model of 128 positions needs instead of a recipe's sizes."""


def inputs(folder: Path) -> None:
    """The model and the text of all runs, untied as Llama-2-7B and Llama-3.1-8B are."""
    save_tiny_model(folder / "model", tie_word_embeddings=False)
    # Processes of torchrun do not find `tests`.
    (folder / "text").mkdir()
    for index in range(4):
        (folder / "text" / f"{index}.txt").write_text(tiny_text(600, seed=index))


def tiny(name: str, folder: Path, *changes: str) -> Recipe:
    """The recipe as it ships but for its sizes."""
    sizes = [
        f"model={folder / 'model'}",
        f"data.corpus={folder / 'text'}",
        "data.split=all",
        f"length={LENGTH}",
        "steps=2",
        "batch.size=4",
        "batch.micro=1",
        "device=cpu",
    ]
    return read_recipe(name, [*sizes, *SIZES.get(name, ()), *changes])


def sharded(recipe: Recipe, out: Path, *, resume: bool = False) -> None:
    """Run `recipe` in this process and the others, and note the memory of its state."""
    trainers: list[Any] = []
    make = build._RecipeTrainer.__init__

    def on_cpus(trainer: Any, *arguments: Any, **named: Any) -> None:
        shard_on_cpus()
        trainers.append(trainer)
        make(trainer, *arguments, **named)

    build._RecipeTrainer.__init__ = on_cpus  # type: ignore[method-assign]
    try:
        train(recipe, out, resume=resume)
    finally:
        build._RecipeTrainer.__init__ = make  # type: ignore[method-assign]
    (trainer,) = trainers
    if is_main_process():
        (out / "memory.json").write_text(json.dumps(state_bytes(recipe, trainer)))


def state_bytes(recipe: Recipe, trainer: Any) -> dict[str, int]:
    """Bytes of weights, gradients and moments that this process keeps: allocated, and by the plan."""
    parameters = list(trainer.model.parameters())
    assert all(isinstance(p, DTensor) for p in parameters)
    trained = [p for p in parameters if p.requires_grad]
    moments = [
        value
        for state in trainer.optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor) and value.dim() > 0
    ]
    # A gradient is as large as its weight.
    plan = device_memory(recipe, trainer.model, micro=1, devices=process_count(), device=torch.device("cpu"))
    return {"allocated": sum(map(_own_bytes, [*parameters, *trained, *moments])), "planned": plan["state"]}


def _own_bytes(tensor: Tensor) -> int:
    own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return own.numel() * own.element_size()


def kept(folder: Path, names: Sequence[str]) -> Results:
    """What two steps in two processes gave, of each recipe."""
    from tools.docs.recipe_tables import KIND, RUN

    rows: list[Row] = []
    for name in names:
        blank = Row(model="tiny", task=RUN, metric="", value=None, unit="bytes", arm=name)
        memory = json.loads((folder / name / "memory.json").read_text())
        rows += [replace(blank, metric=side, value=value) for side, value in memory.items()]
        for step, line in enumerate(metrics(folder / name), start=1):
            rows.append(replace(blank, metric=f"loss {step}", value=line["loss"], unit="nats"))
    return Results(kind=KIND, model_name="tiny", config={"recipes": list(names)}, rows=rows)


def main(folder: Path, names: Sequence[str]) -> None:
    """Run the recipes in the folder, one after the other, and print what came of each."""
    distributed.init_process_group("gloo")
    if is_main_process():
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            inputs(folder)
    distributed.barrier()
    for name in names:
        sharded(tiny(name, folder, "parallel.sharding=full_shard", "quantize=null"), folder / name)
    if is_main_process():
        results = kept(folder, names)
        print(*(f"{row.arm}: {row.metric} {row.value:.6g} {row.unit}" for row in results.rows), sep="\n")
        (folder / "results.json").write_text(results.to_json())
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:] or list(SIZES))
