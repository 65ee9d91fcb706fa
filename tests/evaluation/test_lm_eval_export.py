"""Every family as a task of lm-eval. LongBench-E needs its data, and lm-eval has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation, write_lm_eval_tasks
from lengthwise.evaluation.lm_eval_export import process_results
from lengthwise.evaluation.tasks import TASKS
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus

UNRANKED = ("needle_multi_value",)
"""Numbers that are written have no candidates."""


def docs_of(name: str, mode: Any, folder: Path) -> list[dict[str, Any]]:
    text = as_corpus([tiny_text(3000, seed=index) for index in range(3)])
    settings = Evaluation(tasks=(name,), mode=mode, lengths=(2304,), samples=4)
    [written] = write_lm_eval_tasks(settings, tiny_tokenizer(), text, folder)
    assert f"task: {written}\n" in (folder / f"{written}.yaml").read_text()
    return [json.loads(line) for line in (folder / f"{written}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", [name for name in TASKS if not name.startswith("longbench")])
def test_every_family_is_written(name: str, tmp_path: Path) -> None:
    for doc in docs_of(name, "greedy", tmp_path / "greedy"):
        reply = " ".join(doc["golds"])
        assert process_results(doc, [reply]) == {TASKS[name].metric: 1.0}
    if name in UNRANKED:
        with pytest.raises(UsageError):
            docs_of(name, "likelihood", tmp_path / "ranked")
        return
    for doc in docs_of(name, "likelihood", tmp_path / "ranked"):
        assert doc["candidates"][doc["gold"]] in doc["golds"]
