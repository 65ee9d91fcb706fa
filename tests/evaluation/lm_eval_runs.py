"""What lm-eval writes: a run of it on a tiny model, with its own tracker, as `lm_eval run --output_path` does.

    python tests/evaluation/lm_eval_runs.py tests/evaluation/lm_eval_recorded

makes the recorded output of two models.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_text

_DATA = """\
task: tiny_{}
dataset_path: json
dataset_kwargs: {{data_files: {{test: choice.jsonl}}}}
test_split: test
"""
TASKS = {
    "choice": """\
output_type: multiple_choice
doc_to_text: "{{context}} {{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list:
- {metric: acc, aggregation: mean, higher_is_better: true}
- {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 2}
""",
    "ranked": """\
output_type: loglikelihood
doc_to_text: "{{context}}"
doc_to_target: " {{question}}"
metric_list:
- {metric: perplexity, aggregation: perplexity, higher_is_better: false}
- {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 3}
""",
    "filtered": """\
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{question}}"
generation_kwargs: {max_gen_toks: 6, until: []}
filter_list:
- {name: first, filter: [{function: take_first}]}
- {name: letters, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
""",
}
_GROUP = """\
group: tiny_group
task: [tiny_choice, tiny_ranked]
aggregate_metric_list:
- {metric: acc, weight_by_size: true}
metadata: {version: 4}
"""


def write_tasks(folder: Path) -> None:
    """Task files, and the questions that all of them read."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "context": tiny_text(6 + index, seed=index),
            "question": "Where is the king?",
            "choices": [" garden", " house", " in the old garden"],
            "gold": index % 3,
        }
        for index in range(5)
    ]
    (folder / "choice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in TASKS.items():
        (folder / f"tiny_{name}.yaml").write_text(_DATA.format(name) + text)
    (folder / "tiny_group.yaml").write_text(_GROUP)


def run_lm_eval(model: str, tasks: list[str], include: Path, out: Path) -> dict[str, Any]:
    """Its results; `out` gets the files."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    loaded, tracker = load(model), EvaluationTracker(output_path=str(out))
    with contextlib.chdir(include):
        found: Any = simple_evaluate(
            model=HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, max_length=1500, device="cpu"),
            tasks=list(tasks),
            task_manager=TaskManager(include_path=str(include), include_defaults=False),
            bootstrap_iters=0,
            log_samples=True,
            evaluation_tracker=tracker,
        )
    # Nothing of the machine.
    found |= {"pretty_env_info": "", "config": found["config"] | {"model": Path(model).name}}
    tracker.general_config_tracker.model_name = Path(model).name
    tracker.general_config_tracker.model_name_sanitized = Path(model).name
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    for task in found["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    return found


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        write_tasks(work / "tasks")
        for seed, name in enumerate(("one", "two")):
            save_tiny_model(work / name, seed=seed, max_position_embeddings=2048)
            run_lm_eval(str(work / name), ["tiny_group", "tiny_filtered"], work / "tasks", out)
        for file in out.glob("*/results_*.json"):
            file.write_text(file.read_text().replace(f"{work}/", ""))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
