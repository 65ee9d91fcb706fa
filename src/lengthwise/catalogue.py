"""The lists of `lengthwise ls`: models, corpora, recipes, methods, tasks. Imports no torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from lengthwise.models.embedded_models import EmbeddedModel
    from lengthwise.text.embedded import EmbeddedCorpus

Entry = dict[str, str]


def catalogue(what: str | None = None) -> dict[str, list[Entry]]:
    """The list named `what`, or all of them; entries are what a table or JSON shows.

    Raises:
        UsageError: there is no such list.
    """
    if what is None:
        return {name: build() for name, build in LISTS.items()}
    if what not in LISTS:
        raise UsageError(f"there is no list {what!r}", expected=nearest(what, LISTS))
    return {what: LISTS[what]()}


def models() -> list[Entry]:
    """Models that need no download from the hub; `cached` once one has been made."""
    from lengthwise.models.embedded_models import EMBEDDED, made_folder

    return [
        _entry(name, one, ready="cached" if made_folder(name) else "made at first use")
        for name, one in EMBEDDED.items()
    ]


def corpora() -> list[Entry]:
    """Texts that need no download."""
    from lengthwise.text.embedded import EMBEDDED_CORPORA

    return [_entry(name, one, ready="installed") for name, one in EMBEDDED_CORPORA.items()]


def _entry(name: str, one: EmbeddedModel | EmbeddedCorpus, *, ready: str) -> Entry:
    return {
        "name": name,
        "what": one.description,
        "licence": one.licence,
        "state": ready if ready == "cached" or installed(one) else "missing",
        "made from": one.install,
    }


def recipes() -> list[Entry]:
    """Training recipes that come with the package."""
    from lengthwise.training.recipe import shipped_recipes

    return [{"name": name, "what": description(path)} for name, path in shipped_recipes().items()]


def description(recipe: Path) -> str:
    """The first sentence of a recipe's opening comment."""
    words: list[str] = []
    for line in recipe.read_text(encoding="utf-8").splitlines():
        # Indented comment lines are commands.
        if not line.startswith("# ") or line.startswith("#  "):
            break
        words += line[1:].split()
    return " ".join(words).split(". ")[0].rstrip(".")


def methods() -> list[Entry]:
    """Divergences, views, estimators, rope methods, position samplers and attentions."""
    from lengthwise.alignment.divergences import DIVERGENCES
    from lengthwise.measure.misalignment import ESTIMATORS
    from lengthwise.positions import ATTENTIONS, POSITION_SAMPLERS, ROPE_METHODS
    from lengthwise.training.views import VIEWS

    kinds = {
        "divergence": {name: entry.what for name, entry in DIVERGENCES.items()},
        "views": {name: f"{what}; rewards {rewards}" for name, (what, rewards) in VIEWS.items()},
        "estimator": ESTIMATORS,
        "rope": {name: entry.what for name, entry in ROPE_METHODS.items()},
        "positions": {name: entry.what for name, entry in POSITION_SAMPLERS.items()},
        "attention": {name: entry.what for name, entry in ATTENTIONS.items()},
    }
    return [
        {"kind": kind, "name": name, "what": what}
        for kind, table in kinds.items()
        for name, what in table.items()
    ]


def tasks() -> list[Entry]:
    """Tasks of `lengthwise eval`, groups first."""
    from lengthwise.evaluation.tasks import GROUPS, TASKS

    groups = [
        {"name": name, "version": "-", "score": "-", "what": f"group: {len(members)} tasks"}
        for name, members in GROUPS.items()
    ]
    return groups + [
        {"name": task.name, "version": str(task.version), "score": task.metric, "what": task.what}
        for task in TASKS.values()
    ]


def installed(one: EmbeddedModel | EmbeddedCorpus) -> bool:
    """Whether what an embedded model or corpus is made from can be found; imports none of it."""
    return all(importlib.util.find_spec(module) is not None for module in one.modules)


LISTS = {"models": models, "corpora": corpora, "recipes": recipes, "methods": methods, "tasks": tasks}
