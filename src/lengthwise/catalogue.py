"""What there is (the lists of `lengthwise ls`), and what of it is on this machine (`lengthwise doctor`).

Importing it loads no torch.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.alignment.divergences import DIVERGENCES
from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.errors import MissingError
from lengthwise.evaluation.tasks import FAMILIES, TASKS
from lengthwise.files import cache_dir
from lengthwise.machine import environment
from lengthwise.measure.misalignment import ESTIMATORS
from lengthwise.positions import POSITION_SAMPLERS, ROPE_METHODS
from lengthwise.text.embedded_texts import EMBEDDED_CORPORA
from lengthwise.training.recipe import shipped_recipes
from lengthwise.training.views import VIEWS

STUDIES = "lengthwise_studies"


def models() -> list[dict[str, str]]:
    """Models that need no download from the hub; `cached` once one has been made."""
    return [
        _entry(
            name,
            one,
            ready="cached" if made_folder(name) else "made at first use",
            modules=[module for module, _ in one.get("gguf", ())],
        )
        for name, one in EMBEDDED.items()
    ]


def corpora() -> list[dict[str, str]]:
    """Texts that need no download."""
    return [
        _entry(name, one, ready="installed", modules=one["modules"]) for name, one in EMBEDDED_CORPORA.items()
    ]


def _entry(name: str, facts: Mapping[str, Any], *, ready: str, modules: Iterable[str]) -> dict[str, str]:
    """`modules` are the packages that it is made from."""
    return {
        "name": name,
        "what": facts["description"],
        "licence": facts["licence"],
        "state": ready if ready == "cached" or installed(modules) else "missing",
        "made from": facts["install"],
    }


def installed(modules: Iterable[str]) -> bool:
    """Whether all of these packages can be found; imports none of them."""
    return all(importlib.util.find_spec(module) is not None for module in modules)


def recipes() -> list[dict[str, str]]:
    """Training recipes that come with the package."""
    return [{"name": name, "what": description(path)} for name, path in shipped_recipes().items()]


def description(recipe: Path) -> str:
    """The first sentence of a recipe's opening comment."""
    # Indented comment lines are commands.
    sentence = re.compile(r"# (?! )").match
    comment = itertools.takewhile(sentence, recipe.read_text(encoding="utf-8").splitlines())
    return " ".join(line[2:] for line in comment).split(". ")[0].rstrip(".")


def methods() -> list[dict[str, str]]:
    """Divergences, views, estimators, rope methods and position samplers."""
    kinds: dict[str, dict[str, Any]] = {
        "divergence": DIVERGENCES,
        "views": {name: f"{what}; rewards {rewards}" for name, (what, rewards) in VIEWS.items()},
        "estimator": ESTIMATORS,
        "rope": ROPE_METHODS,
        "positions": POSITION_SAMPLERS,
    }
    return [
        {"kind": kind, "name": name, "what": one if isinstance(one, str) else one.what}
        for kind, table in kinds.items()
        for name, one in table.items()
    ]


def tasks() -> list[dict[str, str]]:
    """Tasks of `lengthwise eval`, groups first."""
    groups = [
        {"name": family.name, "version": "-", "score": "-", "what": f"group: {len(family.tasks)} tasks"}
        for family in FAMILIES
    ]
    return groups + [
        {"name": task.name, "version": str(task.version), "score": task.metric, "what": task.what}
        for task in TASKS.values()
    ]


def studies() -> list[dict[str, str]]:
    """Studies of `lengthwise reproduce`; MissingError as `studies_module`."""
    return studies_module("study_table").studies()


def studies_module(name: str) -> Any:
    """A module of the studies, which are a package of their own; MissingError if they are not installed."""
    if importlib.util.find_spec(STUDIES) is None:
        raise MissingError(
            "the studies are a package of their own, lengthwise-studies, which is not installed",
            fix="in a clone of the repository: pip install ./studies",
        )
    return importlib.import_module(f"{STUDIES}.{name}")


LISTS = {
    "models": models,
    "corpora": corpora,
    "recipes": recipes,
    "methods": methods,
    "tasks": tasks,
    "studies": studies,
}
"""What `lengthwise ls` shows; each makes its entries, one a row of a table or of JSON."""


def here() -> dict[str, Any]:
    """What a report of a fault should say of this machine: versions, processor, devices, what is made and cached."""
    with contextlib.suppress(ImportError, OSError):
        # It knows threads and devices.
        importlib.import_module("torch")
    facts = {name: value for name, value in environment().items() if name not in ("command", "started")}
    how = "missing; `lengthwise ls {}` has the command that installs it"
    states = {
        entry["name"]: how.format(kind) if entry["state"] == "missing" else entry["state"]
        for kind in ("models", "corpora")
        for entry in LISTS[kind]()
    }
    return {**facts, "cache": str(cache_dir()), "embedded": states}
