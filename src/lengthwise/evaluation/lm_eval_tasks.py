"""lm-eval's tasks: found by name, made for the wanted lengths, loaded with errors that name what is missing.

RULER makes its data when a task is loaded, and BABILong chooses its data then, both from the metadata of the
task index. So these are loaded once for each length, and --limit counts samples of each length.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.errors import LengthwiseError, MissingError, UsageError

if TYPE_CHECKING:
    from lengthwise.evaluation.settings import EvaluationSettings

INSTALL = "pip install 'lengthwise[lm-eval]'"

# Prefixes of tasks, groups and tags whose data are made for a wanted length.
_RULER = ("ruler", "niah_", "longcxt")
_BABILONG = ("babilong",)


@dataclass(frozen=True)
class TaskLoad:
    """Tasks that are loaded and run together."""

    loaded: dict[str, Any]
    """What `TaskManager.load` gives: tasks and groups by name."""
    length: int | None = None
    """Tokens that the data are made for; None if the data have their own length."""
    ruler: bool = False

    @property
    def tasks(self) -> dict[str, Any]:
        """Tasks by name."""
        return self.loaded["tasks"]


def load_tasks(spec: EvaluationSettings, tokenizer_folder: str) -> list[TaskLoad]:
    """The tasks of `spec`, those of RULER and BABILong once for each length.

    Args:
        spec: its `data` is the working folder of the process.
        tokenizer_folder: tokenizer that RULER counts its tokens with.

    Raises:
        MissingError: lm-eval or another package is not installed, or data cannot be loaded.
        UsageError: an unknown task, lengths that no task takes, a length without BABILong data or too short for
            RULER's prompt.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise MissingError("the package lm-eval is not installed", fix=INSTALL)
    manager, metadata = _index(None if spec.data is None else os.getcwd())
    names = _matched(manager, spec.tasks)
    ruler = [name for name in names if name.startswith(_RULER)]
    babilong = [name for name in names if name.startswith(_BABILONG)]
    others = [name for name in names if name not in ruler and name not in babilong]
    if "lengths" in spec.model_fields_set and not ruler and not babilong:
        raise UsageError(
            f"lengths are given, and none of {', '.join(names)} takes them",
            expected="a task of RULER or BABILong",
            fix="leave --length out",
        )
    metadata.clear()
    metadata["tokenizer"] = tokenizer_folder
    loads: list[TaskLoad] = []
    if others:
        loads.append(TaskLoad(_loaded(manager, others, spec.seed)))
    for length in sorted(spec.lengths):
        for some, wanted in ((ruler, [length]), (babilong, None)):
            if some:
                metadata["max_seq_lengths"] = wanted or _babilong_length(length)
                loads.append(TaskLoad(_loaded(manager, some, spec.seed), length, ruler=some is ruler))
    return loads


def seed_everything(seed: int) -> None:
    """Seed what lm-eval's tasks draw from, as its own command does."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@lru_cache(maxsize=1)
def _index(folder: str | None) -> tuple[Any, dict[str, Any]]:
    """lm-eval's index of its tasks and of those in `folder`, and the metadata that it gives to tasks.

    Reading its 14 thousand names takes seconds, so the index is kept and its metadata change.
    """
    from lm_eval.tasks import TaskManager

    metadata: dict[str, Any] = {"tokenizer": ""}
    return TaskManager(include_path=folder, metadata=metadata), metadata


def _matched(manager: Any, wanted: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for name in wanted:
        matched = manager.match_tasks([name])
        if not matched:
            raise UsageError(f"lm-eval has no task {name!r}", fix="lm_eval ls tasks shows its names")
        names.update(dict.fromkeys(matched))
    return list(names)


def _loaded(manager: Any, names: list[str], seed: int) -> dict[str, Any]:
    seed_everything(seed)
    try:
        loaded = manager.load(names)
    except LengthwiseError:
        raise
    except ImportError as error:
        raise MissingError(f"a task of lm-eval needs a package: {error}", fix=INSTALL) from error
    except ValueError as error:
        if str(error).startswith("Duplicate task"):
            raise UsageError(f"lm-eval: {error}", fix="name the group or the task, not both") from error
        raise UsageError(f"lm-eval cannot make {', '.join(names)}: {_first_line(error)}") from error
    except (OSError, LookupError) as error:
        raise MissingError(
            f"lm-eval cannot load {', '.join(names)} or the data: {_first_line(error)}",
            fix="on a machine without the hub: --data FOLDER with the data sets in the hub's layout",
        ) from error
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            raise UsageError(
                f"{name} of lm-eval runs code that the model writes, or shows it images",
                expected="a task of text in and text out",
                fix="run it with lm_eval itself",
            )
        # As `lm_eval.simple_evaluate` does.
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=seed)
    return dict(loaded)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _babilong_length(length: int) -> str:
    """The name of BABILong's data of `length` tokens: 4096 and 4000 are "4k"."""
    for thousand in (1024, 1000):
        if length % thousand == 0:
            return f"{length // thousand}k"
    raise UsageError(
        f"lm-eval's BABILong has no data of {length} tokens",
        expected="--length 1024, 2048, 4096, 8192, 16384, 32768, 65536 or 131072 (1k to 128k)",
    )
