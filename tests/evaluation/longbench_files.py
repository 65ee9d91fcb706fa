"""LongBench-E rows made here, as the official files have them and as lm-eval reads them."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.evaluation.longbench_e import DATA_SETS
from lengthwise.testing import tiny_text

needs_lm_eval = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the extra lm-eval")
_LENGTHS = (1200, 5000, 9000)
_ANSWERS = {
    "class_match": ["Location"],
    "number_share": ["3"],
    "paragraph_share": ["Paragraph 2"],
    "code_similarity": ["    return shadow"],
}


def official_rows(name: str, *, count: int = 3, words: int = 60) -> list[dict[str, Any]]:
    """`count` rows of a data set, one for each bucket in turn."""
    metric = DATA_SETS[name].metric
    return [
        {
            "input": f"Where is the king, case {index}?",
            "context": tiny_text(words, seed=index),
            "answers": _ANSWERS.get(metric, ["the old garden", "garden"]),
            "length": _LENGTHS[index % 3],
            "dataset": name,
            "language": "en",
            "all_classes": ["Location", "City", "Person"] if metric == "class_match" else None,
            "_id": f"{name}{index}",
        }
        for index in range(count)
    ]


def official(folder: Path, *names: str, **options: Any) -> Path:
    """The official jsonl files of these data sets (default all) in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or DATA_SETS:
        lines = [json.dumps(row) for row in official_rows(name, **options)]
        (folder / f"{name}_e.jsonl").write_text("\n".join(lines) + "\n")
    return folder
