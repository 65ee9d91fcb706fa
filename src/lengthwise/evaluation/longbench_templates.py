"""LongBench's prompt templates, read from where they are published: never typed again.

From the user's copy of THUDM/LongBench (`config/dataset2prompt.json` in it), or from the installed lm-eval.
The two are not the same in every space and newline, so results name the source.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lengthwise.errors import MissingError, UsageError

Template = Callable[[Mapping[str, Any]], str]

_OFFICIAL = ("dataset2prompt.json", "config/dataset2prompt.json", "LongBench/config/dataset2prompt.json")


def templates(folder: str | None, names: tuple[str, ...]) -> tuple[dict[str, Template], str]:
    """Templates by data set, and where they are from.

    Args:
        folder: a copy of the official repository (or its config folder); None takes lm-eval's.
        names: the data sets.

    Raises:
        MissingError: no such file, or lm-eval is not installed.
        UsageError: a data set without a template, a file that cannot be read.
    """
    if folder is not None:
        path = next((Path(folder) / name for name in _OFFICIAL if (Path(folder) / name).is_file()), None)
        if path is None:
            raise MissingError(
                f"there is no dataset2prompt.json in {folder}",
                expected="a copy of the repository THUDM/LongBench",
            )
        return {name: _official(path, name) for name in names}, f"the official repository ({path.name})"
    home = _lm_eval()
    return {name: _from_lm_eval(home / f"{name}_e.yaml") for name in names}, "lm-eval's task files"


def _lm_eval() -> Path:
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or spec.origin is None:
        raise MissingError(
            "LongBench's prompt templates are not here",
            expected="the package lm-eval, or a copy of the repository THUDM/LongBench",
            fix="pip install 'lengthwise[lm-eval]', or --set templates=FOLDER",
        )
    return Path(spec.origin).parent / "tasks" / "longbench"


def _official(path: Path, name: str) -> Template:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        text = table[name]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{path} has no template for {name!r}", expected="the official dataset2prompt.json"
        ) from error
    return lambda row: text.format(**row)


def _from_lm_eval(path: Path) -> Template:
    import jinja2

    if not path.is_file():
        raise MissingError(f"lm-eval has no {path.name}", fix="pip install 'lm-eval==0.4.13'")
    text = yaml.load(path.read_text(encoding="utf-8"), Loader=_TaskLoader)["doc_to_text"]
    template = jinja2.Environment(
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
    ).from_string(text)
    # The mirror that lm-eval reads calls `input` the question.
    return lambda row: template.render({**row, "question": row["input"]})


class _TaskLoader(yaml.SafeLoader):
    """Reads lm-eval's task files; the functions that they name are not needed."""


_TaskLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))  # type: ignore[arg-type]
