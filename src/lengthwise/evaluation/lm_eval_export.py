"""Our questions as tasks of lm-eval, which then asks any of its backends.

write_lm_eval_tasks(Evaluation(tasks=("needle_multi_key",), lengths=(4096,)), "my-model", "books", "tasks")
lm_eval run --include_path tasks --tasks needle_multi_key_4096 ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import require
from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.evaluation.task import Question
from lengthwise.evaluation.tasks import TASKS
from lengthwise.files import atomic_write_text, named_path
from lengthwise.text.corpus import as_corpus
from lengthwise.yaml_text import to_yaml

if TYPE_CHECKING:
    from lengthwise.text import TextLike

_SCORER = "from lengthwise.evaluation.lm_eval_export import process_results\n"


def write_lm_eval_tasks(
    evaluation: Evaluation, tokenizer: Any, text: TextLike, folder: Path | str
) -> list[str]:
    """Write a YAML file and the questions of each task and length, for `--include_path`; returns the tasks' names.

    Ranked answers (mode "likelihood") are a multiple choice, with lm-eval's `acc`; replies are scored by our task.
    Prompts are as long as the settings say in the tokens of `tokenizer`. UsageError for one that they cut: lm-eval
    gets texts, and cuts them itself.
    """
    target, names = named_path(folder, what="the folder"), []
    questions: dict[tuple[str, int | None], list[Question]] = {}
    corpus = as_corpus(text).rendered(tokenizer) if evaluation.reads else None
    for task in evaluation.own_tasks:
        for item in task.items(evaluation, tokenizer, corpus):
            require(
                not item.facts["cut"],
                f"the prompt {item.key} is {item.facts['cut']} tokens too long, and lm-eval would get all of it",
                "a greater max_length",
            )
            questions.setdefault((task.name, item.content.length), []).append(item.content)
    atomic_write_text(target / "lengthwise_scores.py", _SCORER)
    for (task, length), own in questions.items():
        names.append(task if length is None else f"{task}_{length}")
        ranked = evaluation.mode == "likelihood"
        gold = [one.candidates.index(one.golds[0]) if ranked else 0 for one in own]
        plain = [asdict(replace(one, ids=(), answers=())) for one in own]
        rows = [{"task": task, "gold": at, **one} for at, one in zip(gold, plain, strict=True)]
        file = target / f"{names[-1]}.jsonl"
        atomic_write_text(file, "".join(json.dumps(row) + "\n" for row in rows))
        config: dict[str, Any] = {
            "task": names[-1],
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(file.resolve())}},
            "test_split": "test",
            "doc_to_text": "{{prompt}}",
            "doc_to_target": "gold",
            "metadata": {"version": TASKS[task].version},
        }
        scorer = ""
        if ranked:
            config |= {"output_type": "multiple_choice", "doc_to_choice": "{{candidates}}"}
            config |= {"metric_list": [{"metric": "acc"}]}
        else:
            written = {"until": [], "max_gen_toks": max(one.new_tokens for one in own), "do_sample": False}
            config |= {"output_type": "generate_until", "generation_kwargs": written}
            config |= {"metric_list": [{"metric": TASKS[task].metric, "aggregation": "mean"}]}
            scorer = "process_results: !function lengthwise_scores.process_results\n"
        atomic_write_text(target / f"{names[-1]}.yaml", to_yaml(config) + scorer)
    return names


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """The score of a reply, as lm-eval asks for it."""
    task = TASKS[doc["task"]]
    fields = {name: value for name, value in doc.items() if name in Question.__dataclass_fields__}
    return {task.metric: task.scored(Question(**fields), results[0])}
