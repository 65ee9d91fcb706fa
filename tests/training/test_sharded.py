"""Heads that FSDP2 shards give the numbers of a whole one. Held by real processes: torchrun, gloo, CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("sharded_worker.py")


@pytest.mark.slow
def test_two_processes_with_a_sharded_head_equal_one_with_a_whole_one(tmp_path: Path):
    out = tmp_path / "errors.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    finished = subprocess.run(
        [*command, str(WORKER), str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    errors = json.loads(out.read_text())
    assert set(errors) >= {"root", "root-freed", "root-tied", "head", "tail-freed", "lora", "direct"}
    for way, measured in errors.items():
        for name, error in measured.items():
            # Parameters in fp64; "fp32" makes its products in fp32.
            assert error <= (1e-5 if way == "fp32" else 1e-12), (way, name)
