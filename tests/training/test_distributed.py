"""One process and several give the same run. Held by real processes: gloo on the CPU, and torchrun itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from packaging.version import Version
from safetensors.torch import load_file
from torchrun_worker import run_jobs
from trainers import metrics

from lengthwise.results import read_metrics

SPEED = ("eval_samples_per_second", "eval_steps_per_second")
WORKER = Path(__file__).with_name("torchrun_worker.py")
LEAN = WORKER.with_name("lean_worker.py")


def torchrun(jobs: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
    command += [str(LEAN), str(WORKER), str(jobs)]
    finished = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr[-4000:]


def write_jobs(folder: Path, jobs: list[dict[str, Any]]) -> Path:
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    return path


@pytest.mark.slow
def test_two_processes_equal_one(recipe_settings, tmp_path, start_ranks):
    """A LoRA taught by gap views, and one that is evaluated, keeps the best and is resumed, as recipes.

    And whole models in fp64, with uneven labels, accumulation, checkpointing, streams.
    """
    settings = recipe_settings | {
        "batch": {"size": 8, "micro": 2},
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 2},
    }
    gap = {"views": "gap", "positions": {"sampler": "pose", "target_length": 64}}
    taught = {"adapter": {"r": 2}, "objective": {"alpha": 1.0, "divergence": "kl", "detach": "long"}}
    runs: dict[str, Any] = {"taught": {"kind": "recipe", "arguments": {"settings": settings | gap | taught}}}
    held = {"every": 1, "windows": 8, "patience": 5, "keep_best": True, "metric": "eval_perplexity/loss@16"}
    held |= {"measurements": {"ppl": {"lengths": [16], "windows": 2}}}
    best = {"data": settings["data"] | {"split": "train"}, "adapter": {"r": 2}, "eval": held}
    runs["held"] = {"kind": "recipe", "arguments": {"settings": settings | best}}
    for name, accumulation, checkpointing in (("double", 1, False), ("double-parts", 2, True)):
        runs[name] = {
            "kind": "double",
            "arguments": {"accumulation": accumulation, "checkpointing": checkpointing},
        }
    for kind in ("torch", "datasets"):
        runs[f"stream-{kind}"] = {"kind": "stream", "arguments": {"kind": kind}}
    one, two = tmp_path / "one", tmp_path / "two"
    two.mkdir()
    resumes = Version(transformers.__version__) >= Version("5.18")  # refused before
    runs["held"]["arguments"] |= {"again_from": 4} if resumes else {}
    start_ranks(WORKER, write_jobs(two, [job | {"out": str(two / name)} for name, job in runs.items()]))
    runs["held"]["arguments"].pop("again_from", None)
    run_jobs([job | {"out": str(one / name)} for name, job in runs.items()])

    for name in ("taught", "held"):
        # The numbers of an evaluation have lines of their own.
        logs = [read_metrics(side / name / "metrics.jsonl") for side in (one, two)]
        lines = list(zip(*logs, strict=True))
        assert len(lines) == 6 + (name == "held"), "it is evaluated before its first step too"
        for expected, got in lines:
            assert got.keys() == expected.keys()
            assert ("eval_perplexity/loss@16" in got) == (name == "held")
            for field in expected.keys() - {"eval_runtime", *SPEED}:
                assert got[field] == pytest.approx(expected[field], rel=1e-6, abs=1e-6), field
        left, right = (load_file(side / name / "model" / "adapter_model.safetensors") for side in (one, two))
        for key, value in left.items():
            assert (value - right[key]).abs().max().item() <= 1e-6, key

    for name in ("double", "double-parts", "stream-torch", "stream-datasets"):
        left, right = (json.loads((side / name / "log.json").read_text()) for side in (one, two))
        assert len(left) == len(right) == (5 if "stream" in name else 9)
        for expected, got in zip(left[:-1], right[:-1], strict=True):
            assert got.keys() == expected.keys()
            # Of a stream nobody knows how long an epoch is, and processes read other rows of it last.
            for field in expected.keys() - {
                "eval_runtime",
                *SPEED,
                *({"offset"} if "stream" in name else ()),
            }:
                assert got[field] == pytest.approx(expected[field], rel=1e-9), field
    for name in ("double", "double-parts"):
        weights = [load_file(side / name / "model" / "model.safetensors") for side in (one, two)]
        for key, value in weights[0].items():
            assert (value - weights[1][key]).abs().max().item() <= 1e-9, key


@pytest.mark.slow
def test_torchrun_with_one_process(recipe_settings: dict[str, Any], tmp_path: Path):
    job = {"kind": "recipe", "arguments": {"settings": recipe_settings | {"steps": 2}}}
    torchrun(write_jobs(tmp_path, [job | {"out": str(tmp_path / "torchrun")}]))
    run_jobs([job | {"out": str(tmp_path / "plain")}])
    for expected, got in zip(metrics(tmp_path / "plain"), metrics(tmp_path / "torchrun"), strict=True):
        assert got["loss"] == pytest.approx(expected["loss"], rel=1e-6)
