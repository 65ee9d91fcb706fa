"""Options of the verbs, each declared once: by a field of settings, or by a parameter of the verb's function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from inspect import Parameter as Argument
from typing import Annotated, Any, Self, get_args, get_type_hints

from cyclopts import CoercionError, Group, Parameter, Token, convert
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.settings import KINDS, TAKEN_BY, ServerOptions, Settings, Subject

_OUTPUT = Group("Output", sort_key=3)
Model = Annotated[
    str, Parameter(help="A hub id, a folder, a .gguf file, or a name from `lengthwise ls models`.")
]
Assignments = Annotated[tuple[str, ...], Parameter("--set", metavar="KEY=VALUE")]
DryRun = Annotated[bool, Parameter(help="Print the plan, with an estimate of time and memory, and stop.")]
AsJson = Annotated[bool, Parameter("--json", help="Print JSON alone on standard output.", group=_OUTPUT)]
_VERBOSE = "Print the full table, and the traceback of an error."
Verbose = Annotated[bool, Parameter(["--verbose", "-v"], help=_VERBOSE, group=_OUTPUT)]
_ABOVE = Parameter(
    help="Exit with 4 if the difference (not its interval) is above this at any length or range of positions. Exit "
    "with 5 if it is above, but within rounding.",
)
Above = Annotated[float | None, _ABOVE]
_USE = Parameter(
    help="Exit with 4 if B lost more than this share of a benefit that is clear for A, at any distance. Exit with 5 "
    "if no benefit is clear, or the loss may be noise between documents.",
)
Use = Annotated[float | None, _USE]
_JUNIT = Parameter(metavar="FILE", help="Write the gates to FILE as test cases, in the form of JUnit.")
Junit = Annotated[str | None, _JUNIT]
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable of GitHub Actions that names the file of a step's summary."""


class Output(Settings):
    """Where results go, and how they are shown."""

    out: Annotated[str | None, Parameter(metavar="FOLDER")] = None
    """Run folder to write. Without it nothing is written."""
    resume: bool = False
    """Continue an unfinished run in --out; a finished one is read, not repeated."""
    overwrite: bool = False
    """Replace the earlier run in --out, which stays until the new one has a result."""
    dry_run: DryRun = False
    as_json: AsJson = False
    verbose: Verbose = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Here, since a dry run opens no folder.
        if self.out is None and (self.resume or self.overwrite):
            raise UsageError("--resume and --overwrite need the folder of an earlier run", fix="add --out")
        return self


_GROUPS = {
    Subject: [Parameter(group=Group("Model and text", sort_key=2))],
    Output: [Parameter(group=_OUTPUT)],
}
# The text comes first; what all measurements or all endpoints have in common comes last.
_LAST = ("windows", "seed", "batch_size", "bos", *ServerOptions.model_fields)
_SEVERAL = ("--lengths", "--depths")
"""Options that take several numbers, as in --lengths 256 512."""
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?[a-z]?", re.IGNORECASE)
"""A number, or what is meant as one (2k)."""


def one_by_one(words: Sequence[str]) -> list[str]:
    """The words with `--lengths 256 512` as `--lengths 256 --lengths 512`: what is no number is of another option."""
    found, option = list[str](), None
    for word in words:
        name = word.partition("=")[0]
        if name in _SEVERAL:
            option = name
        elif found and option is not None and _NUMBER.fullmatch(word):
            found += [option] if found[-1] != option else []
        else:
            option = None
        found.append(word)
    return found


def _integers(kind: Any, tokens: Sequence[Token]) -> Any:
    """Whole numbers. cyclopts alone would round: 1.024 is 1 to it, and what somebody means by it 1024."""
    for token in tokens:
        if "." in token.value:
            raise CoercionError(token=token, target_type=int)
    return convert(kind, tokens)


def _has_integers(kind: Any) -> bool:
    return kind is int or any(map(_has_integers, get_args(kind)))


def with_fields(
    verb: Callable[..., int | None], *, hidden: Collection[str] = ()
) -> Callable[..., int | None]:
    """The verb with an option for every field of the settings that it takes, in place of the settings.

    Required fields are arguments. Settings are made only of what the user gave, which
    `model_fields_set` then holds. `hidden` options are left out. Every verb takes --verbose, which shows the
    traceback of an error.
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
    if not any(each.name == "verbose" for each in shown):
        shown.append(Argument("verbose", Argument.KEYWORD_ONLY, annotation=Verbose, default=False))
    shown = [
        each.replace(annotation=Annotated[each.annotation, Parameter(converter=_integers)])
        if _has_integers(each.annotation)
        else each
        for each in shown
    ]
    shown = sorted((each for each in shown if each.name not in hidden), key=lambda each: each.kind)
    arguments = [option.name for option in shown if option.kind is Argument.POSITIONAL_ONLY]

    def call(*values: Any, **given: Any) -> int | None:
        given |= zip(arguments, values, strict=False)
        if Output not in settings.values():
            given.pop("verbose", None)
        for name, kind in settings.items():
            given[name] = kind(**{field: given.pop(field) for field in kind.model_fields if field in given})
        return verb(**given)

    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {option.name: option.annotation for option in shown}
    call.__doc__ = verb.__doc__
    return call


def _fields(owner: type[Settings]) -> Iterator[Argument]:
    """The fields as parameters, without what pydantic checks of their types."""
    types = get_type_hints(owner)
    for name in sorted(owner.model_fields, key=lambda name: (name in _LAST) - (name == "text")):
        field = owner.model_fields[name]
        marks = [mark for mark in field.metadata if isinstance(mark, Parameter)]
        if field.description:
            kinds = TAKEN_BY.get(name, ()) if owner is Subject else ()
            only = (
                [f"Only for {' or '.join(KINDS[kind] for kind in kinds)}."]
                if kinds and "weights" not in kinds
                else []
            )
            marks.append(Parameter(help=" ".join([*field.description.split(), *only])))
        kind = Argument.POSITIONAL_ONLY if field.is_required() else Argument.KEYWORD_ONLY
        marks += [] if field.is_required() else _GROUPS.get(owner, [])
        default = Argument.empty if field.is_required() else field.default
        yield Argument(name, kind, annotation=Annotated[types[name], *marks], default=default)
