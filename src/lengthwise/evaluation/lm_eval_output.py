"""A run folder from what lm-eval wrote, whichever of its backends answered: vLLM, transformers, a server.

    lm_eval run --model vllm --model_args pretrained=MODEL --tasks ruler --log_samples --output_path out
    lengthwise import out/MODEL --out runs/ruler

A score that is the mean over its samples gets an interval over them, and `compare` pairs two runs by sample. Other
scores (a perplexity, the mean of a group) stand as lm-eval gives them.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from lengthwise.errors import UsageError
from lengthwise.evaluation.task import estimated
from lengthwise.files import named_path, read_json
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder

_SETTINGS = ("n-shot", "gen_kwargs", "system_instruction", "fewshot_as_multiturn")
"""What changes prompts or replies, and must be equal on both sides of a difference."""
_WRITTEN = "what `lm_eval run --output_path --log_samples` writes"


class _Output(BaseModel):
    results: dict[str, dict[str, Any]]
    versions: dict[str, Any] = {}
    config: dict[str, Any] = {}
    counts: Annotated[dict[str, dict[str, Any]], Field(alias="n-samples")] = {}


class _Sample(BaseModel):
    doc_id: int | str
    filter: str | None = None


_Form = TypeVar("_Form", bound=BaseModel)


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
    output, numbers = _read(_Output, found, where=str(file)), list[Record]()
    for task, scores in output.results.items():
        # Named after the task, and the time that is in the name of the results.
        task_name, _, time = re.sub(r"\W", "_", task), *file.stem.rpartition("_")[1:]
        filters = dict.fromkeys(filter(None, (key.partition(",")[2] for key in scores)))
        path = file.with_name(f"samples_{task_name}_{time}.jsonl")
        samples, whole = _samples(path, [*filters]), scores.get("sample_len")
        for kind, count in Counter(one["filter"] for one in samples).items():
            # Older versions count them beside the results, and some as if there were no limit.
            whole = (
                whole if output.config.get("limit") else whole or output.counts.get(task, {}).get("effective")
            )
            if whole not in (None, count):
                raise UsageError(
                    f"{path} has {count} samples with the filter {kind}, and lm-eval had {whole}",
                    expected=_WRITTEN,
                )
        numbers += _numbers(task, scores, samples, version=output.versions.get(task))
    if not numbers:
        raise UsageError(f"{file} has no scores", expected=_WRITTEN)
    name, asked = str(found.get("model_name") or file.parent.name), output.config
    config = {"model": name, "tasks": list(output.results), "limit": asked.get("limit")}
    with RunFolder(out, kind="eval", config=config, overwrite=overwrite) as folder:
        for record in numbers:
            row = record["row"]
            folder.samples.append(f"{row['task']}/{row['metric']}@{row['length']}", record)
        results = Results(
            kind="eval",
            model_name=name,
            config=config,
            rows=[replace(estimated(statistic), model=name) for statistic in imported_statistics(numbers)],
            notes=_notes(numbers, file),
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


def _read(form: type[_Form], value: Any, *, where: str) -> _Form:
    """The value in its form; UsageError, which says `where` it is, if it has another one."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"])) or "what it holds"
        raise UsageError(f"{where}: {place} is wrong: {wrong['msg']}", expected=_WRITTEN) from error


def _samples(file: Path, filters: Sequence[str]) -> list[dict[str, Any]]:
    """The samples of a task, each with its filter; none of a group, or of a run without --log_samples.

    Before version 0.4.8 of lm-eval they do not name it: those of each filter follow those of the one before.
    """
    if not file.exists():
        return []
    turns, samples = Counter[str](), dict[tuple[str, str], dict[str, Any]]()
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            plain = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where}, is no sample of lm-eval: {error}", expected=_WRITTEN) from error
        one = _read(_Sample, plain, where=where)
        own, turn = str(one.doc_id), turns[str(one.doc_id)]
        kind = one.filter if one.filter is not None else dict(enumerate(filters)).get(turn, "")
        if (kind, own) in samples or not kind:
            raise UsageError(f"{where}: document {own} is there again", expected="each sample once")
        turns[own] += 1
        samples[kind, own] = {**plain, "filter": kind}
    return [*samples.values()]


def _as_number(value: Any) -> Any:
    """A number, also one that lm-eval wrote as text, as it does those of numpy that have 32 bits."""
    try:
        return float(value) if isinstance(value, str | int | float) else value
    except OverflowError:
        return math.inf
    except ValueError:
        return value


def _numbers(
    task: str, scores: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], *, version: Any
) -> Iterator[Record]:
    """A record for each number of a task or group: its row, and the score of each sample if it is their mean."""
    for key, value in scores.items():
        metric, _, kind = key.partition(",")
        value = None if isinstance(value, bool) else _as_number(value)
        if not kind or metric.endswith("_stderr") or not isinstance(value, float):
            continue
        if metric == "bypass":
            raise UsageError(
                f"{task} has no scores: lm-eval ran with --predict_only",
                expected="replies that lm-eval scored",
            )
        # RULER has a score for each length, -1 for the lengths that were not asked.
        length = int(metric) if metric.isdecimal() else None
        own = [one for one in samples if one["filter"] == kind and not (length and one.get(metric) == -1)]
        if length and value == -1:
            continue
        values: list[Any] = [_as_number(one.get(metric)) for one in own]
        plain = values and all(isinstance(each, float) and math.isfinite(each) for each in values)
        is_mean = bool(plain) and abs(fmean(values) - value) <= 1e-9
        name = metric if length is None else "string_match"
        text = str(version).partition(".")[0]
        number = int(text) if text.isdecimal() else None
        asked = [[one.get(fact) for fact in ("doc_id", "doc_hash", "target_hash")] for one in own]
        yield {
            "row": {
                "task": task,
                "metric": name if kind == "none" else f"{name} ({kind})",
                "value": value if math.isfinite(value) else None,
                "unit": "share" if is_mean and all(0 <= each <= 1 for each in values) else "score",
                "length": length,
                "version": number,
                "n": len(own) or None,
            },
            # Runs are of the same questions if these and the versions are equal; their prompts may be other ones.
            "version": number,
            "question": zlib.crc32(json.dumps(asked).encode()),
            "scores": [[str(one["doc_id"]), each] for one, each in zip(own, values, strict=True) if is_mean],
            **({} if math.isfinite(value) else {"undefined": str(value)}),
        }


def _notes(numbers: Sequence[Record], file: Path) -> list[str]:
    notes = [
        "Tasks, prompts and scores are lm-eval's. It cuts a prompt that is longer than its max_length, and does not "
        "write how many it cut."
    ]
    if more := len({*file.parent.glob("results_*.json")} - {file}):
        notes.append(f"Only {file.name} was read: its folder has {more} more results of lm-eval.")
    plain = [f"{one['row']['task']} {one['row']['metric']}" for one in numbers if not one["scores"]]
    if len(plain) == len(numbers):
        notes.append(
            "No intervals: no score has samples of which it is the mean, as --log_samples writes them."
        )
    elif plain:
        notes.append(
            f"No interval, because it is not the mean of samples that are there: {', '.join(plain)}."
        )
    return notes + [
        f"{record['row']['task']}: {record['row']['metric']} is not defined, lm-eval gives {record['undefined']}."
        for record in numbers
        if "undefined" in record
    ]
