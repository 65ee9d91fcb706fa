"""LongBench-E's prompt templates, read from where they are published: lm-eval, or the official repository."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lengthwise.errors import MissingError, UsageError

Template = Callable[[Mapping[str, Any]], str]

_TEMPLATE_FILES = (
    "dataset2prompt.json",
    "config/dataset2prompt.json",
    "LongBench/config/dataset2prompt.json",
)


def read_template(folder: str | None, name: str) -> tuple[Template, str]:
    """The prompt template of a data set, and where it is from. Templates are never typed again here.

    The two sources differ in some spaces and newlines, so results name the source.

    Args:
        folder: a copy of the official repository, or its config folder. None takes lm-eval's templates.
        name: the data set.

    Raises:
        MissingError: no such file, or lm-eval is not installed.
        UsageError: no template for the data set, or a file that cannot be read.
    """
    if folder is None:
        return _template_of_lm_eval(name), "lm-eval's task files"
    path = next((Path(folder) / file for file in _TEMPLATE_FILES if (Path(folder) / file).is_file()), None)
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
    return lambda row: text.format(**row), f"the official repository ({path.name})"


def _template_of_lm_eval(name: str) -> Template:
    import jinja2

    spec = importlib.util.find_spec("lm_eval")
    if spec is None or spec.origin is None:
        raise MissingError(
            "LongBench's prompt templates are not here",
            expected="the package lm-eval, or a copy of the repository THUDM/LongBench",
            fix="pip install 'lengthwise[lm-eval]', or --set templates=FOLDER",
        )
    path = Path(spec.origin).parent / "tasks" / "longbench" / f"{name}_e.yaml"
    if not path.is_file():
        raise MissingError(f"lm-eval has no {path.name}", fix="pip install 'lm-eval==0.4.13'")
    text = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaskLoader)["doc_to_text"]
    template = jinja2.Environment(
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
    ).from_string(text)
    # The mirror that lm-eval reads calls `input` the question.
    return lambda row: template.render({**row, "question": row["input"]})


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval's task files without the functions that they name."""


_TaskLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]
