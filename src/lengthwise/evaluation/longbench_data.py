"""LongBench-E's rows, from the official jsonl files or the hub, and its published prompt templates."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, ValidationError

from lengthwise.errors import MissingError, UsageError, reason

HUB = "THUDM/LongBench"

# What a gold answer must contain for its metric to find it.
_ANSWERS = {"number_share": r"^\d+$", "paragraph_share": r"Paragraph (\d+)"}

Template = Callable[[Mapping[str, Any]], str]


class Example(BaseModel):
    """A row in the official format."""

    model_config = ConfigDict(strict=True)

    input: str
    context: str
    answers: Annotated[list[str], MinLen(1)]
    length: int
    """Words (not tokens)."""
    all_classes: list[str] | None = None
    """The class names, for trec."""


def read_rows(name: str, source: str | None, *, metric: str) -> list[Example]:
    """The rows of a data set.

    Args:
        name: the data set.
        source: the folder of its file `<name>_e.jsonl`, or of the folder `data` with it, or the official data.zip.
            None takes that from the hub.
        metric: its score, which says what a gold answer must contain.

    Raises:
        MissingError: no such file, or the hub cannot be reached.
        UsageError: a row that is not in the official format; file and line are named.
    """
    home = Path(_from_hub() if source is None else source)
    root = zipfile.Path(home) if zipfile.is_zipfile(home) else home
    places = (root / f"{name}_e.jsonl", root / "data" / f"{name}_e.jsonl")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise MissingError(
            f"there is no {name}_e.jsonl in {home}",
            expected="the folder of LongBench's jsonl files (data.zip of the data set on the hub)",
        )
    rows = [
        _checked(line, metric, where=f"{path}, line {number}")
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise UsageError(f"{path} holds no rows")
    return rows


def _checked(line: bytes, metric: str, *, where: str) -> Example:
    try:
        row = Example.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = f": the field {first['loc'][0]!r}" if first["loc"] else ""
        raise UsageError(
            f"{where}{place}: {first['msg']}",
            expected="an object with input, context, answers (a list of texts), length and all_classes",
        ) from None
    if metric == "class_match" and not row.all_classes:
        raise UsageError(f"{where} has no field 'all_classes'", expected="the class names, for trec")
    for answer in row.answers:
        if metric in _ANSWERS and not re.search(_ANSWERS[metric], answer):
            raise UsageError(
                f"{where}: the answer {answer!r} can never be right",
                expected=f"a text with {_ANSWERS[metric]}",
            )
    return row


def _from_hub() -> str:
    from huggingface_hub import hf_hub_download

    try:
        return hf_hub_download(HUB, "data.zip", repo_type="dataset")
    except Exception as error:
        # The hub library has changed its HTTP library more than once, so no error class of theirs is named.
        raise MissingError(
            f"LongBench cannot be downloaded from the hub: {reason(error)}",
            fix=f"on a machine with the hub: hf download --repo-type dataset {HUB}; then --data FOLDER",
        ) from error


def read_template(folder: str | None, name: str) -> Template:
    """The prompt template of a data set. The two sources differ in some spaces and newlines.

    Args:
        folder: a copy of the official repository, or its config folder. None takes lm-eval's templates.
        name: the data set.

    Raises:
        MissingError: no such file, or lm-eval is not installed.
        UsageError: no template for the data set, or a file that cannot be read.
    """
    if folder is None:
        return _template_of_lm_eval(name)
    homes = (Path(folder) / part / "dataset2prompt.json" for part in ("", "config", "LongBench/config"))
    path = next((place for place in homes if place.is_file()), None)
    if path is None:
        raise MissingError(
            f"there is no dataset2prompt.json in {folder}",
            expected="a copy of the repository THUDM/LongBench",
        )
    try:
        text = json.loads(path.read_text(encoding="utf-8"))[name]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{path} has no template for {name!r}", expected="the official dataset2prompt.json"
        ) from error
    return lambda row: text.format(**row)


def _template_of_lm_eval(name: str) -> Template:
    import jinja2

    spec = importlib.util.find_spec("lm_eval")
    path = Path((spec and spec.origin) or "").parent / "tasks" / "longbench" / f"{name}_e.yaml"
    if not path.is_file():
        raise MissingError(
            "LongBench's prompt templates are not here",
            expected="the package lm-eval, or a copy of the repository THUDM/LongBench",
            fix="pip install 'lengthwise[lm-eval]', or --templates FOLDER",
        )
    # The functions that the file names are read as text.
    text = re.sub(r"!function", "", path.read_text(encoding="utf-8"))
    template = jinja2.Environment(
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
    ).from_string(yaml.safe_load(text)["doc_to_text"])
    # The mirror that lm-eval reads calls `input` the question.
    return lambda row: template.render({**row, "question": row["input"]})
