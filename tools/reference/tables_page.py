"""The literal tables: everything that has a name, from the tables that the code looks names up in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lengthwise.alignment.divergences import DIVERGENCES
from lengthwise.catalogue import recipes
from lengthwise.checkpoints.embedded_models import EMBEDDED
from lengthwise.evaluation.tasks import FAMILIES
from lengthwise.measure.misalignment import ESTIMATORS
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.positions import POSITION_SAMPLERS, ROPE_METHODS
from lengthwise.settings import KINDS, TAKEN_BY, Subject
from lengthwise.text import EMBEDDED_CORPORA
from lengthwise.training.views import VIEWS
from lengthwise_studies.study_table import studies
from tools.reference.declared import Field, keywords_of
from tools.reference.words import code, default_words, plain, table, type_words

_INTRODUCTION = """\
# Tables

Everything in lengthwise that has a name: what commands, recipes and functions accept. `lengthwise ls` prints most of
these tables, with what is installed on your machine. An unknown name is an error that names the nearest valid one.

[Measurements](#measurements) · [Estimators](#estimators) · [Models](#models) · [Texts](#texts) · [Tasks](#tasks) ·
[Rope methods](#rope-methods) · [Position samplers](#position-samplers) · [Views](#views) ·
[Divergences](#divergences) · [Recipes](#recipes) · [Studies](#studies)
"""


def page() -> str:
    """The page, in Markdown."""
    return "\n".join(
        [_INTRODUCTION, *_measured(), *_texts_and_models(), *_extension(), *_training(), *_named()]
    )


def _measured() -> Iterator[str]:
    yield "## Measurements\n"
    yield "The settings of a measurement are the options of [its verb](cli.md) and the fields of its class.\n"
    rows = (
        (
            {"predictions": "`compare` with one model"}.get(name, code(name)),
            plain(entry.summary),
            code(entry.measurement.__name__),
            code(entry.measurement.about.fail_above or ""),
        )
        for name, entry in MEASUREMENTS.items()
    )
    yield table(["verb", "question", "class", "metric of `--fail-above`"], rows)
    yield "## Estimators\n"
    yield "Of misalignment: `lengthwise measure --estimator`. [Both are unbiased](../definitions/measuring.md).\n"
    yield table(["name", "what"], ((code(name), plain(what)) for name, what in ESTIMATORS.items()))


def _texts_and_models() -> Iterator[str]:
    yield "## Models\n"
    yield (
        "[Models that need no model hub](models-and-texts.md). MODEL can also be a hub id, a folder, a GGUF file or "
        "the URL of an endpoint.\n"
    )
    rows = (
        (
            code(name),
            plain(one["description"]),
            f"{one['parameters']:,}",
            plain(one["licence"]),
            code(one["install"]),
        )
        for name, one in EMBEDDED.items()
    )
    yield table(["name", "what", "parameters", "licence", "made from"], rows)
    yield "### Settings of a model\n"
    yield (
        "Options of the verbs that measure, keys of `compare --a` and `--b`, fields of `Subject`. A kind of model "
        "refuses what it does not take.\n"
    )
    rows = (
        (
            code(name),
            plain(" ".join((Subject.model_fields[name].description or "").split())),
            *("yes" if kind in kinds else "" for kind in KINDS),
        )
        for name, kinds in TAKEN_BY.items()
    )
    yield table(["setting", "what", *KINDS.values()], rows)
    yield "## Texts\n"
    rows = (
        (code(name), plain(one["description"]), plain(one["licence"]), code(one["install"]))
        for name, one in EMBEDDED_CORPORA.items()
    )
    yield table(["name", "what", "licence", "made from"], rows)
    yield "## Tasks\n"
    yield "Of `lengthwise eval`. The name of a family is the group of its tasks.\n"
    rows = (
        (code(family.name), code(task.name), str(task.version), code(task.metric), plain(task.what))
        for family in FAMILIES
        for task in family.tasks
    )
    yield table(["family", "task", "version", "score", "what"], rows)


def _extension() -> Iterator[str]:
    home = "lengthwise.positions"
    yield "## Rope methods\n"
    yield (
        "`lengthwise extend --method`, `extend.method` in a recipe. [Methods](../definitions/methods.md) has "
        "formulas and sources.\n"
    )
    yield table(["name", "what"], ((code(name), plain(entry.what)) for name, entry in ROPE_METHODS.items()))
    yield from _options((name, keywords_of(f"{home}.{entry.home}")) for name, entry in ROPE_METHODS.items())
    yield "## Position samplers\n"
    yield "`positions.sampler` in a recipe.\n"
    yield table(
        ["name", "what"], ((code(name), plain(entry.what)) for name, entry in POSITION_SAMPLERS.items())
    )
    yield from _options(
        (name, keywords_of(f"{home}.{entry.home}")) for name, entry in POSITION_SAMPLERS.items()
    )


def _training() -> Iterator[str]:
    yield "## Views\n"
    yield (
        "`views` in a recipe: how the two views of a sample differ. "
        "[The objective](../definitions/objective.md#views) compares them.\n"
    )
    rows = ((code(name), plain(what), plain(rewards)) for name, (what, rewards) in VIEWS.items())
    yield table(["name", "what", "agreement rewards"], rows)
    yield from _options([("repeat", keywords_of("lengthwise.training.views.plant_repeat"))])
    yield "## Divergences\n"
    yield (
        "`objective.divergence` in a recipe, in nats per paired position. p is the long view's prediction, q the "
        "short one's.\n"
    )
    rows = (
        (
            code(name),
            plain(entry.what),
            ", ".join(map(code, entry.detach)),
            "yes" if entry.has_entropy else "no",
        )
        for name, entry in DIVERGENCES.items()
    )
    yield table(["name", "what", "`detach`", "contains entropy, so sharpens"], rows)


def _named() -> Iterator[str]:
    yield "## Recipes\n"
    yield "`lengthwise train NAME`, `lengthwise cp NAME`. [Recipe keys](recipe.md) explains what is in them.\n"
    yield table(["name", "what"], ((code(one["name"]), plain(one["what"])) for one in recipes()))
    yield "## Studies\n"
    yield "`lengthwise reproduce NAME`. [The papers, run here](../evidence/papers.md) has their verdicts.\n"
    rows = ((plain(one["about"]), code(one["name"]), plain(one["what"])) for one in studies())
    yield table(["about", "name", "what it shows"], rows)


def _options(methods: Iterable[tuple[str, list[Field]]]) -> Iterator[str]:
    """The options of the methods of a table that have any."""
    rows = [
        (
            code(name),
            code(field.name),
            plain(field.meaning),
            type_words(field.annotation),
            default_words(field.default),
        )
        for name, fields in methods
        for field in fields
    ]
    yield "Options:\n"
    yield table(["name", "option", "meaning", "type", "default"], rows)
