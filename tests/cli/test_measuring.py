import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.results import read_results
from lengthwise.testing import save_tiny_model
from lengthwise.yaml_text import read_yaml
from tests.cli.small_runs import SIZES, VERBS

KEYS = VERBS["longppl"]


@pytest.fixture(params=VERBS)
def command(request: pytest.FixtureRequest, model: str, text: list[str]) -> list[Any]:
    """A measuring verb with everything but --out."""
    return [request.param, model, *text, *VERBS[request.param]]


@pytest.fixture
def measure(model: str, text: list[str]) -> list[Any]:
    return ["measure", model, *text, *SIZES]


def test_the_answer_on_stdout_and_progress_on_stderr(lengthwise, measure, tmp_path):
    done = lengthwise(*measure)
    assert done.code == 0
    assert re.findall(r"^ +(\d+)  \d.*●", done.out, flags=re.MULTILINE) == ["16", "32"], (
        "a line for each length"
    )
    assert "%|" in done.err, "progress"
    assert "%|" not in done.out
    assert "[95 % interval]" not in done.out
    assert "[95 % interval]" in lengthwise(*measure, "-v").out, "the table"
    assert list(tmp_path.iterdir()) == [], "without --out nothing is written"


FILES = {".lock", "config.yaml", "env.json", "inputs.json", "results.json", "samples.jsonl", "README.md"}


def test_a_run_folder_is_read_again_continued_and_redone(lengthwise, command, tmp_path):
    done = lengthwise(*command, "--out", "deep/run")
    assert done.code == 0
    folder = tmp_path / "deep" / "run"
    assert {path.name for path in folder.iterdir()} == FILES
    results = (folder / "results.json").read_bytes()
    again = lengthwise(*command, "--out", "deep/run", "--resume")
    assert (again.code, again.out) == (0, done.out)
    assert again.err == "", "nothing is measured again"
    printed = lengthwise(*command, "--out", "deep/run", "--resume", "--json").json
    assert (folder / "results.json").read_bytes() == results
    assert printed["schema_version"] == 2
    assert printed["kind"] == command[0]
    assert printed["partial"] is False
    assert printed["rows"]
    assert printed["provenance"]["model"]["head"] == "proven"
    assert printed["provenance"]["text"]["split_rule"]
    assert printed["provenance"]["text"]["left_out"] == {}
    assert not any("left out" in note for note in printed["notes"])
    assert printed["provenance"]["measurement"]["bos_id"] is None
    written = json.loads(results)
    assert written["rows"] == printed["rows"]
    assert written["provenance"]["packages"]["torch"]
    settings = read_yaml(folder / "config.yaml")
    assert settings["kind"] == command[0]
    assert settings["model"] == command[1]
    assert written["config"] == {key: value for key, value in settings.items() if key != "kind"}
    readme = (folder / "README.md").read_text()
    assert readme.startswith(f"# lengthwise {command[0]}: {printed['model_name']} (finished)\n")
    assert readme.endswith("".join(f"- {note}\n" for note in printed["notes"]))

    # The log ends within the fourth sample. The resumed run gives the same numbers.
    (folder / "results.json").unlink()
    lines = (folder / "samples.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "samples.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:10])
    continued = lengthwise(*command, "--out", "deep/run", "--resume", "--json")
    assert continued.code == 0
    assert continued.json["rows"] == printed["rows"]
    assert (folder / "samples.jsonl").read_bytes().splitlines(keepends=True)[:3] == lines[:3]
    assert lengthwise(*command, "--out", "deep/run", "--overwrite", "--seed", 5).code == 0
    assert read_results(folder / "results.json").config["seed"] == 5

    for size in (3, 64):
        found = lengthwise(*command, "--json", "--batch-size", size).json["rows"]
        for one, other in zip(printed["rows"], found, strict=True):
            expected = other["value"]
            assert one["value"] == (None if expected is None else pytest.approx(expected, rel=1e-4, abs=1e-6))


@pytest.mark.parametrize(("verb", "metric"), [("measure", "jeffreys"), ("ppl", "perplexity")])
def test_fail_above(on_text: Callable[..., Any], verb: str, metric: str) -> None:
    done = on_text(verb, *SIZES, "--fail-above", 1e-6, "--out", "run", "--json")
    assert done.json["rows"], "the results are printed either way"
    assert Path("run/results.json").exists()
    assert done.code == 4
    assert f"{metric} is above 1e-06 at 16 tokens: " in done.err
    assert "32 tokens: " in done.err


def test_dry_run_needs_no_weights_and_writes_and_measures_nothing(lengthwise, command, tmp_path):
    bare = shutil.copytree(command[1], tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    command[1] = str(bare)
    done = lengthwise(*command, "--dry-run", "--json", "--out", "run")
    assert done.code == 0
    plan = done.json
    assert plan["settings"]["model"] == command[1]
    assert plan["documents"] == 6
    assert plan["parameters"] > 10_000
    assert plan["memory_bytes"] > 4 * plan["parameters"]
    assert plan["seconds_at_least"] >= 0
    assert "measured just now" in plan["seconds_basis"]
    assert not (tmp_path / "run").exists()
    shown = lengthwise(*command, "--dry-run")
    assert "what would be done" in shown.out
    assert "GB" in shown.out


@pytest.mark.parametrize(
    ("verb", "tokens"),
    [
        # Four windows: their views; the greatest length at both lengths.
        ("measure", 4 * 3 * (16 + 32)),
        ("ppl", 4 * 2 * 32),
        # The whole text, and a window of 32 + 32.
        ("longppl", 4 * (96 + 64)),
    ],
)
def test_dry_run_counts_the_tokens(on_text: Callable[..., Any], verb: str, tokens: int) -> None:
    plan = on_text(verb, *VERBS[verb], "--dry-run", "--json").json
    assert plan["tokens_to_run"] == tokens
    assert set(plan["samples"].values()) == {"4 of 4"}


def test_dry_run_says_how_many_samples_the_text_holds(on_text: Callable[..., Any]) -> None:
    plan = on_text("ppl", "--lengths", 64, "--windows", 10_000, "--dry-run", "--json").json
    done = on_text("ppl", "--lengths", 64, "--windows", 10_000, "--json").json
    [found] = plan["samples"].values()
    targets = next(row["n"] for row in done["rows"] if row["metric"] == "loss")
    assert int(found.split()[0]) * 64 == targets
    assert plan["tokens_to_run"] == targets


def test_the_longest_context_of_limit_follows_the_trained_length(lengthwise, text, tmp_path):
    """Eight times 64; a plan and a run agree."""
    save_tiny_model(tmp_path / "short", max_position_embeddings=64)
    command = ("limit", "short", *text, "--windows", 2, "--json")
    plan = lengthwise(*command, "--dry-run").json
    assert plan["samples"] == {"windows of 641 tokens": "2 of 2"}
    assert {row["length"] for row in lengthwise(*command).json["rows"]} == {512}


def test_a_table_and_a_run_folder(lengthwise: Callable[..., Any], text: list[str], tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model", max_position_embeddings=2048)
    options = ["--mode", "likelihood", "--lengths", 500, "--depths", 0, "--depths", 100, "--samples", 2]
    command = ["eval", model, "needle_multi_key", *text, *options]
    done = lengthwise(*command, "--out", "run")
    assert done.code == 0
    assert "needle_multi_key" in done.out
    assert "500 tokens" in done.out
    read = lengthwise(*command, "--out", "run", "--resume", "--json")
    assert read.json["rows"] == lengthwise(*command, "--json", "--batch-size", 4).json["rows"]
    assert {row.get("depth") for row in read.json["rows"]} == {None, 0, 100}
    page = lengthwise("report", "run")
    assert page.code == 0
    assert (tmp_path / "run" / "figures" / "depth-needle_multi_key.svg").exists()


def test_key_tokens_of_an_earlier_run(lengthwise, model, text, tmp_path):
    save_tiny_model(tmp_path / "other", seed=1)
    assert lengthwise("longppl", model, *text, *KEYS, "--out", "first").code == 0
    again = ("longppl", "other", *text, "--key-tokens", "first")
    assert lengthwise(*again, *KEYS, "--out", "second").code == 0
    assert lengthwise("difference", "first", "second").code == 0
    done = lengthwise(*again, *KEYS[:-2], "--windows", 3)
    assert done.code == 2
    assert "found with another windows" in done.err
    assert "fix: --max-length 96 --short 32 --stride 32 --windows 4 --seed 0" in done.err
    done = lengthwise(*again, *KEYS, "--evaluator", model)
    assert done.code == 2
    assert "--evaluator" in done.err
    plan = lengthwise(*again, *KEYS, "--dry-run", "--json").json
    assert plan["tokens_to_run"] == 4 * 96
