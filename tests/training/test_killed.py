import json
import signal
from pathlib import Path

import pytest
from trainers import metrics

WORKER = Path(__file__).with_name("killed_worker.py")


@pytest.mark.slow
def test_a_killed_run_resumes_to_equal_weights(recipe_settings, tmp_path, start):
    """SIGKILL at a step, then while a checkpoint is written; both go on to the bits of an unbroken run.

    LoRA with dropout, so that the state of the random number generators matters too, and views whose positions and
    repeats are drawn.
    """
    settings = recipe_settings | {
        "steps": 8,
        "adapter": {"r": 2, "lora_dropout": 0.2},
        "save_at": [3],
        "views": "repeat",
        "view_options": {"passage": 8},
        "positions": {"sampler": "skip", "target_length": 64},
    }
    (tmp_path / "recipe.json").write_text(json.dumps(settings))
    out = tmp_path / "killed"

    def run(how: str, step: int) -> int:
        finished = start(tmp_path / "recipe.json", out, how, step, program=WORKER).wait()
        killed_itself = "killing myself" in finished.out
        assert finished.returncode == (-signal.SIGKILL if killed_itself else 0), finished.err[-4000:]
        return finished.returncode

    assert run("step", 5) == -signal.SIGKILL
    assert [line["step"] for line in metrics(out)] == [1, 2, 3, 4, 5]
    assert run("checkpoint", 6) == -signal.SIGKILL
    torn = out / "checkpoints" / "checkpoint-6"
    assert (torn / "adapter_model.safetensors").exists()
    assert not (torn / "complete.json").exists()
    assert not (out / "results.json").exists()
    assert run("never", 0) == 0

    assert json.loads((out / "results.json").read_text())["provenance"]["resumed_at_step"] == 4
    assert metrics(out) == metrics(tmp_path / "whole")
    for name in ("killed", "whole"):
        kept = {path.name for path in (tmp_path / name / "checkpoints").iterdir()}
        assert kept == {"checkpoint-3", "checkpoint-6", "checkpoint-8"}
    adapters = [tmp_path / name / "model" / "adapter_model.safetensors" for name in ("killed", "whole")]
    assert adapters[0].read_bytes() == adapters[1].read_bytes()
