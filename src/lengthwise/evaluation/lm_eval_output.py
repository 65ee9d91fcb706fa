"""A run folder from what lm-eval wrote, whichever of its backends answered: vLLM, transformers, a server.

    lm_eval run --model vllm --model_args pretrained=MODEL --tasks ruler --log_samples --output_path out
    lengthwise import out/MODEL --out runs/ruler

A score that is the mean over its samples gets an interval over them, and `compare` pairs two runs by sample. Other
scores (a perplexity, the mean of a group) stand as lm-eval gives them.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.task import estimated
from lengthwise.files import named_path, read_json
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder

_SETTINGS = ("n-shot", "gen_kwargs", "system_instruction", "fewshot_as_multiturn")
"""What changes prompts or replies, and must be equal on both sides of a difference."""


def import_lm_eval(source: Path | str, out: Path | str, *, overwrite: bool = False) -> Results:
    """Make a run folder of lm-eval's output.

    Args:
        source: the folder with `results_*.json`, of which the latest is read, and `samples_*.jsonl`; or that file.
        out: the run folder to write.
        overwrite: replace the run in `out`.

    Raises:
        UsageError: there is no such output, or it cannot be read; as `RunFolder`.
    """
    file = _results_file(named_path(source, what="lm-eval's output"))
    found = read_json(file, expected="the results of lm-eval")
    numbers: list[Record] = []
    for task, scores in found.get("results", {}).items():
        samples = _samples(file.with_name(f"samples_{task}_{file.stem.removeprefix('results_')}.jsonl"))
        numbers += _numbers(task, scores, samples, version=found.get("versions", {}).get(task))
    if not numbers:
        raise UsageError(f"{file} has no scores", expected="what `lm_eval run --output_path` writes")
    name, asked = str(found.get("model_name") or file.parent.name), found.get("config", {})
    config = {"model": name, "tasks": list(found["results"]), "limit": asked.get("limit")}
    with RunFolder(out, kind="eval", config=config, overwrite=overwrite) as folder:
        for record in numbers:
            row = record["row"]
            folder.samples.append(f"{row['task']}/{row['metric']}@{row['length']}", record)
        results = Results(
            kind="eval",
            model_name=name,
            config=config,
            rows=[replace(estimated(statistic), model=name) for statistic in imported_statistics(numbers)],
            notes=_notes(numbers),
            provenance={
                "model": {"backend": found.get("model_source"), "arguments": asked.get("model_args")},
                "measurement": {key: found.get(key, asked.get(key)) for key in _SETTINGS},
                "lm_eval": {
                    key: found.get(key) for key in ("lm_eval_version", "max_length", "chat_template_sha")
                },
            },
            records=dict(folder.samples),
        )
        folder.write_results(results)
    return results


def imported_statistics(records: Iterable[Record]) -> list[Statistic]:
    """The numbers of an imported run; those that are means, with the totals of each sample."""
    return [
        Statistic.of(Row(model="", **record["row"]), [(one, [score, 1.0]) for one, score in record["scores"]])
        for record in records
    ]


def _results_file(path: Path) -> Path:
    """The latest results in a folder, or in the one folder of it that has some."""
    if path.is_file():
        return path
    for pattern in ("results_*.json", "*/results_*.json"):
        files = sorted(path.glob(pattern), key=lambda file: file.name)
        if len({file.parent for file in files}) > 1:
            names = ", ".join(sorted({str(file.parent) for file in files}))
            raise UsageError(f"{path} has results of several models", expected=f"one of {names}")
        if files:
            return files[-1]
    raise UsageError(
        f"{path} has no results_*.json", expected="the folder that `lm_eval run --output_path` wrote"
    )


def _samples(file: Path) -> list[dict[str, Any]]:
    """The samples of a task; none of a group, or of a run without --log_samples."""
    if not file.exists():
        return []
    samples = []
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if line.strip():
            try:
                samples.append({**json.loads(line)})
            except (ValueError, TypeError, RecursionError) as error:
                raise UsageError(f"{file}, line {number}, is no sample of lm-eval: {error}") from error
    return samples


def _numbers(
    task: str, scores: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], *, version: Any
) -> Iterator[Record]:
    """A record for each number of a task or group: its row, and the score of each sample if it is their mean."""
    for key, value in scores.items():
        metric, _, kind = key.partition(",")
        if not kind or metric.endswith("_stderr") or isinstance(value, bool | str | None):
            continue
        # RULER has a score for each length, -1 for the lengths that were not asked.
        length = int(metric) if metric.isdecimal() else None
        own = [one for one in samples if one.get("filter") == kind and not (length and one.get(metric) == -1)]
        if length and value == -1:
            continue
        values: list[Any] = [one.get(metric) for one in own]
        plain = values and all(isinstance(each, int | float) and math.isfinite(each) for each in values)
        is_mean = bool(plain) and abs(fmean(values) - value) <= 1e-9
        name = metric if length is None else "string_match"
        text = str(version).partition(".")[0]
        asked = [[one.get(fact) for fact in ("doc_id", "doc_hash", "target_hash")] for one in own]
        yield {
            "row": {
                "task": task,
                "metric": name if kind == "none" else f"{name} ({kind})",
                "value": value if math.isfinite(value) else None,
                "unit": "share" if is_mean and all(0 <= each <= 1 for each in values) else "score",
                "length": length,
                "version": int(text) if text.isdecimal() else None,
                "n": len(own) or None,
            },
            # Two runs are of the same questions if these are equal; their prompts may have other templates.
            "question": zlib.crc32(json.dumps(asked).encode()),
            "scores": [[str(one["doc_id"]), float(one[metric])] for one in own] if is_mean else [],
            **({} if math.isfinite(value) else {"undefined": str(value)}),
        }


def _notes(numbers: Sequence[Record]) -> list[str]:
    notes = [
        "Tasks, prompts and scores are lm-eval's. It cuts a prompt that is longer than its max_length, and does not "
        "write how many it cut."
    ]
    if not any(record["scores"] for record in numbers):
        notes.append("No intervals: lm-eval wrote no samples, as it does with --log_samples.")
    return notes + [
        f"{record['row']['task']}: {record['row']['metric']} is not defined, lm-eval gives {record['undefined']}."
        for record in numbers
        if "undefined" in record
    ]
