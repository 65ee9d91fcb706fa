"""Every key of a training recipe, from the classes that a recipe is read into."""

from __future__ import annotations

from typing import get_args

from lengthwise.alignment import divergences
from lengthwise.training import recipe
from lengthwise.training.views import ViewName
from tools.reference.declared import Field, doc_of, fields_of
from tools.reference.words import code, default_words, plain, table, type_words

_MODULE = "lengthwise.training.recipe"
# Key of a recipe that is a section -> its class.
SECTIONS = {
    "data": "Data",
    "optimizer": "Optimizer",
    "extend": "Extend",
    "positions": "Positions",
    "adapter": "Adapter",
    "objective": "Objective",
    "batch": "Batch",
    "parallel": "Parallel",
    "eval": "Eval",
}
_CHOICES = {
    "ViewName": get_args(ViewName),
    "Detach": get_args(divergences.Detach),
}

_INTRODUCTION = """\
# Recipe keys

A recipe is a YAML file for `lengthwise train`. This page lists every key. `lengthwise cp NAME` copies a shipped
recipe to start from, `lengthwise ls recipes` lists them, and `--set section.key=value` changes a key on the command
line. An unknown key is an error. Where a key comes from a paper, its meaning names the paper; Eq., Sec. and Appendix
without a name are those of [Long-Short Alignment](../evidence/papers.md).
[The objective](../definitions/objective.md) explains the keys that belong together.

The smallest recipe:

```yaml
model: smollm2-135m
data: {corpus: my-texts/}
length: 1024
steps: 100
optimizer: {learning_rate: 1e-4}
```
"""


def page() -> str:
    """The page, in Markdown."""
    keys = fields_of(f"{_MODULE}.Recipe")
    missing = {field.name for field in keys if field.annotation.split(" | ")[0] in SECTIONS.values()} ^ set(
        SECTIONS
    )
    assert not missing, f"sections of a recipe that the page and the code do not share: {missing}"
    parts = [_INTRODUCTION, "## Top level\n", table(["key", "meaning", "type", "default"], map(_top, keys))]
    for name in SECTIONS:
        place = _place(name)
        said = [plain(part) for part in doc_of(place).split("\n\n") if not part.startswith("Raises:")]
        parts += [
            f"## `{name}`\n",
            "\n\n".join(said) + f" Class: `{place}`.\n",
            table(["key", "meaning", "type", "default"], map(_row, fields_of(place))),
        ]
    return "\n".join(parts)


def _place(section: str) -> str:
    kind = SECTIONS[section]
    return f"{getattr(recipe, kind).__module__}.{kind}"


def _top(field: Field) -> tuple[str, str, str, str]:
    if field.name not in SECTIONS:
        return _row(field)
    meaning = plain(field.meaning) or plain(doc_of(_place(field.name)).partition("\n\n")[0])
    kind = f"[section](#{field.name})" + (" or null" if field.annotation.endswith("None") else "")
    return code(field.name), meaning, kind, default_words(field.default)


def _row(field: Field) -> tuple[str, str, str, str]:
    kind = type_words(field.annotation, _CHOICES)
    return code(field.name), plain(field.meaning), kind, default_words(field.default)
