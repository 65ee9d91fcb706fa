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
from tests.evaluation.longbench_files import needs_lm_eval, official

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


@needs_lm_eval
def test_a_prompt_that_is_cut_is_not_written_whole(tmp_path: Path) -> None:
    data = str(official(tmp_path / "data", "trec"))
    for most, truncation in ((4000, "middle"), (60, "middle"), (60, "left")):
        settings = Evaluation(tasks=("longbench_trec_e",), data=data, max_length=most, truncation=truncation)
        if most == 4000:
            assert write_lm_eval_tasks(settings, tiny_tokenizer(), "books", tmp_path / "whole")
            continue
        with pytest.raises(UsageError, match="longbench_trec_e/r0000 is"):
            write_lm_eval_tasks(settings, tiny_tokenizer(), "books", tmp_path / truncation)
        assert not (tmp_path / truncation).exists()


def test_a_background_of_chats_is_what_eval_reads(tmp_path: Path) -> None:
    """As the tokenizer's template writes it, and no JSON."""
    turns = [{"role": "user", "content": tiny_text(900)}, {"role": "assistant", "content": tiny_text(900)}]
    chats = tmp_path / "chats.jsonl"
    chats.write_text(json.dumps({"text": turns}) + "\n")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}"
    settings = Evaluation(tasks=("needle_multi_value",), lengths=(900,), samples=4)
    [written] = write_lm_eval_tasks(settings, tokenizer, chats, tmp_path / "tasks")
    lines = (tmp_path / "tasks" / f"{written}.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    assert not any('"role"' in prompt or "\\n" in prompt for prompt in prompts)
