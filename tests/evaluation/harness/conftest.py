"""A folder of data in the hub's layout and of lm-eval task files, all made here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model, tiny_text

if importlib.util.find_spec("lm_eval") is None:
    collect_ignore_glob = ["test_*.py"]

_CHOICE = """\
task: tiny_choice
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}} {{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list:
- {metric: acc, aggregation: mean, higher_is_better: true}
- {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 2}
"""
_RANKED = """\
task: tiny_ranked
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{context}}"
doc_to_target: " {{question}}"
metric_list:
- {metric: perplexity, aggregation: perplexity, higher_is_better: false}
- {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 3}
"""
_ROLLING = """\
task: tiny_rolling
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{context}}"
metric_list:
- {metric: word_perplexity}
- {metric: bits_per_byte}
metadata: {version: 1}
"""
_DRAWN = """\
task: tiny_drawn
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{question}}"
repeats: 3
generation_kwargs: {do_sample: true, temperature: 1.0, max_gen_toks: 6, until: []}
filter_list:
- {name: first, filter: [{function: take_first}]}
- {name: letters, filter: [{function: regex, regex_pattern: "([a-z]+)"}, {function: take_first}]}
metric_list:
- {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
"""
_GROUP = """\
group: tiny_group
task: [tiny_choice, tiny_ranked]
aggregate_metric_list:
- {metric: acc, weight_by_size: true}
metadata: {version: 4}
"""


def _choice_rows() -> Iterator[dict[str, Any]]:
    for index in range(5):
        yield {
            "context": tiny_text(20 + 9 * index, seed=index),
            "question": "Where is the king?",
            "choices": [" garden", " house", " in the old garden"],
            "gold": index % 3,
        }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model."""
    return str(save_tiny_model(tmp_path_factory.mktemp("harness") / "model", max_position_embeddings=2048))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, hub_layout: Callable[..., Path]) -> Path:
    """One folder for all, because lm-eval's index takes seconds and is kept for one folder."""
    home = hub_layout(tmp_path_factory.mktemp("harness-data"), "trec", count=4)
    babilong = home / "RMT-team" / "babilong-1k-samples"
    configs = []
    for name in ("1k", "2k"):
        rows = [
            {
                "input": f"{tiny_text(int(name[0]) * 30, seed=index)} Mary went to the garden.",
                "question": "Where is Mary?",
                "target": "garden",
            }
            for index in range(3)
        ]
        _write(babilong / f"{name}.jsonl", rows)
        configs.append(f"- config_name: {name}\n  data_files:\n  - split: qa1\n    path: {name}.jsonl\n")
    (babilong / "README.md").write_text("---\nconfigs:\n" + "".join(configs) + "---\n")
    _write(home / "choice.jsonl", list(_choice_rows()))
    for name, text in (
        ("choice", _CHOICE), ("ranked", _RANKED), ("rolling", _ROLLING), ("drawn", _DRAWN), ("group", _GROUP),
    ):  # fmt: skip
        (home / f"tiny_{name}.yaml").write_text(text)
    return home


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)
