"""Options of the verbs, each declared once: by a field of settings, or by a parameter of the verb's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from inspect import Parameter as Argument
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from lengthwise.settings import Settings, Subject

Model = Annotated[str, Parameter(help=Subject.model_fields["model"].description)]
Assignments = Annotated[tuple[str, ...], Parameter("--set", metavar="KEY=VALUE")]
DryRun = Annotated[bool, Parameter(help="Print the plan, with an estimate of time and memory, and stop.")]
Verbose = Annotated[
    bool, Parameter(["--verbose", "-v"], help="Print the full table, and the traceback of an error.")
]


class Printing(Settings):
    """How results are shown."""

    as_json: Annotated[bool, Parameter("--json")] = False
    """Print JSON alone on standard output."""
    verbose: Verbose = False


class Output(Settings):
    """Where results go."""

    out: Annotated[str | None, Parameter(metavar="FOLDER")] = None
    """Run folder to write. Without it nothing is written."""
    resume: bool = False
    """Continue an unfinished run in --out; a finished one is read, not repeated."""
    overwrite: bool = False
    """Replace the earlier run in --out, which stays until the new one has a result."""
    dry_run: DryRun = False


_OUTPUT = [Parameter(group=Group("Output", sort_key=3))]
_SUBJECT = [Parameter(group=Group("Model and text", sort_key=2))]
_GROUPS = {Subject: _SUBJECT, Output: _OUTPUT, Printing: _OUTPUT}
# What all measurements have in common comes last.
_LAST = ("seed", "batch_size", "bos")


def with_fields(verb: Callable[..., None], *, hidden: Collection[str] = ()) -> Callable[..., None]:
    """The verb with an option for every field of the settings that it takes, in place of the settings.

    Required fields are arguments. Settings are made of what the user gave, so that they know it
    (`model_fields_set`). `hidden` options are left out.
    """
    settings: dict[str, type[Settings]] = {}
    shown: list[Argument] = []
    for each in inspect.signature(verb, eval_str=True).parameters.values():
        if isinstance(each.annotation, type) and issubclass(each.annotation, Settings):
            settings[each.name] = each.annotation
            shown += _fields(each.annotation)
        elif each.kind is Argument.POSITIONAL_OR_KEYWORD:
            shown.append(each.replace(kind=Argument.POSITIONAL_ONLY))
        else:
            shown.append(each)
    shown = sorted((each for each in shown if each.name not in hidden), key=lambda each: each.kind)
    arguments = [option.name for option in shown if option.kind is Argument.POSITIONAL_ONLY]

    def call(*values: Any, **given: Any) -> None:
        given |= zip(arguments, values, strict=False)
        for name, kind in settings.items():
            given[name] = kind(**{field: given.pop(field) for field in kind.model_fields if field in given})
        verb(**given)

    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in shown}
    call.__doc__ = verb.__doc__
    return call


def _fields(owner: type[Settings]) -> Iterator[Argument]:
    """The fields as parameters, without what pydantic checks of their types."""
    types = get_type_hints(owner)
    for name in sorted(owner.model_fields, key=_LAST.__contains__):
        field = owner.model_fields[name]
        marks = [mark for mark in field.metadata if isinstance(mark, Parameter)]
        if field.description:
            marks.append(Parameter(help=" ".join(field.description.split())))
        if field.is_required():
            yield Argument(name, Argument.POSITIONAL_ONLY, annotation=Annotated[types[name], *marks])
        else:
            annotation = Annotated[types[name], *marks, *_GROUPS.get(owner, ())]
            yield Argument(name, Argument.KEYWORD_ONLY, annotation=annotation, default=field.default)
