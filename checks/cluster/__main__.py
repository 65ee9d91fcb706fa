"""An experiment on two Ray workers, one of them killed, against one in sequence (needs Ray).

    python checks/cluster [FOLDER]

`make check-cluster` runs this. It says so and stops where Ray is not installed. Prints what it compared; exits with
1 if anything differs.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import torch

from lengthwise.results import read_results
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise_studies.experiments import FAN_OUT, Arm, Experiment, Scale
from lengthwise_studies.fan_out import on_ray
from lengthwise_studies.store import arm_folder, recipe_key, store_folder

RECIPE = """\
model: {folder}/model
data: {{corpus: {folder}/text, split: all}}
length: 32
steps: 12
optimizer: {{learning_rate: 0.01}}
batch: {{size: 4}}
device: cpu
save_every: 2
"""


def experiment(folder: Path) -> tuple[Experiment, Scale]:
    """Two trained arms and one that is not, two seeds, on a tiny model."""
    save_tiny_model(folder / "model")
    (folder / "text").mkdir()
    for index in range(12):
        (folder / "text" / f"{index}.txt").write_text(tiny_text(600, seed=index))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    arms = (
        Arm(name="start"),
        Arm(name="cross entropy", changes=("objective.alpha=0",)),
        Arm(name="aligned", changes=("objective.alpha=1", "objective.divergence=jeffreys")),
    )
    return (
        Experiment(
            kind="cluster-check",
            arms=arms,
            recipe=str(folder / "recipe.yaml"),
            reference="cross entropy",
            seeded=True,
        ),
        Scale(
            model=str(folder / "model"),
            measures={"perplexity": {"lengths": (16, 32), "windows": 4}},
            seeds=2,
            text=str(folder / "text"),
        ),
    )


def killed_once(task: Experiment, scale: Scale) -> None:
    """`Experiment.fill`, in a worker that one arm and seed kills with SIGKILL after its first checkpoint."""
    torch.set_num_threads(1)
    mark = store_folder() / "killed"
    (arm,) = task.arms
    if arm.name == "aligned" and task.only_seed == 1 and not mark.exists():
        recipe = task.recipe_of(scale, arm, 1)
        assert recipe is not None
        checkpoint = store_folder() / recipe_key(recipe) / "train" / "checkpoints" / "checkpoint-2"

        def kill() -> None:
            while not (checkpoint / "complete.json").exists():
                time.sleep(0.01)
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
    task.fill(scale)


def main(folder: Path) -> int:
    """Run both ways and compare rows and samples."""
    if importlib.util.find_spec("ray") is None:
        print("skipped: Ray is not installed (pip install './studies[ray]')")
        return 0
    import ray

    torch.set_num_threads(1)
    made, scale = experiment(folder)
    sides = folder / "ray", folder / "alone"
    os.environ["LENGTHWISE_CACHE"] = str(sides[0])
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    token = FAN_OUT.set(partial(on_ray, ray, work=killed_once))
    spread = made.run(folder / "on-ray", scale)
    FAN_OUT.reset(token)
    ray.shutdown()
    killed = (store_folder() / "killed").exists()
    step = read_results(arm_folder(spread, "aligned, seed 1") / "train" / "results.json").provenance[
        "resumed_at_step"
    ]
    os.environ["LENGTHWISE_CACHE"] = str(sides[1])
    alone = made.run(folder / "in-sequence", scale)
    logs = [
        {
            str(file.relative_to(side)): list(SampleLog(file))
            for file in sorted(side.rglob("*.jsonl"))
            if file.name != "metrics.jsonl"
        }
        for side in sides
    ]
    print(
        f"rows: {len(spread.rows)} on Ray, {len(alone.rows)} in sequence, equal: {spread.rows == alone.rows}"
    )
    print(f"samples equal: {logs[0] == logs[1]}; a worker was killed: {killed}, and resumed at step {step}")
    return 0 if spread.rows == alone.rows and logs[0] == logs[1] and killed and step > 0 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
