"""The settings of a measurement, declared once: its options, checks, recorded config and parameters.

A field is a name, a type with its constraints, a default, and a docstring, which is also the help text. An
`Option` in the type changes how the command line spells it:

    class Recall(WindowMeasurement):
        pairs: Annotated[Count, Option("--limit")] = 32
        \"\"\"Pairs of passages at each distance.\"\"\"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_type_hints

from annotated_types import Ge, Gt, Lt
from pydantic import AllowInfNan, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from lengthwise.errors import LengthwiseError, UsageError, nearest, shown


@dataclass(frozen=True)
class Option:
    """How the command line takes a field: `--length`, with `metavar` in its help.

    `on` is "line" (an option of its own), "set" (`--set NAME=VALUE`), "argument" (a word without an option) or
    "nothing" (only Python sets it). A field that only Python sets and that is not `recorded` is left out of the
    config at its default.
    """

    flag: str | None = None
    metavar: str | None = None
    on: Literal["line", "set", "argument", "nothing"] = "line"
    recorded: bool = True


PYTHON_ONLY = Option(on="nothing", recorded=False)
"""Marks a field that the command line does not offer and that is recorded only where it is not the default."""
NO_OPTION = Option(on="nothing")
"""Marks a field that the command line does not offer."""


def _whole(value: Any) -> Any:
    """Whole numbers of NumPy as `int`; True is no number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("an integer")
    return value.__index__()


def _number(value: Any) -> Any:
    """Numbers as they are; True is no number, nor is a text."""
    if isinstance(value, bool | str):
        raise ValueError("a number")
    return value


Dtype = Literal["auto", "float32", "bfloat16", "float16", "float64"]
"""The dtype of a model's weights; "auto" is the one that they were saved in."""
Whole = Annotated[int, BeforeValidator(_whole)]
Seed = Annotated[Whole, Ge(0)]
Count = Annotated[Whole, Ge(1)]
Tokens = Annotated[Whole, Ge(1), Option(metavar="TOKENS")]
Finite = Annotated[float, BeforeValidator(_number), AllowInfNan(False)]
Positive = Annotated[Finite, Gt(0)]
Share = Annotated[Finite, Gt(0), Lt(1)]

# How each of pydantic's constraints reads as an expectation.
_EXPECTED = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "too_short": "at least one",
    "missing": "a value",
}


class Settings(BaseModel):
    """Frozen settings, checked together, whose mistakes are UsageErrors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="after")
    def _nothing_blank(self) -> Self:
        for name, value in self:
            # As from an unset shell variable. A blank path would mean the current folder.
            if isinstance(value, str) and not value.strip():
                raise UsageError(f"{name} is empty{_flag(type(self), name)}", expected="a value")
        return self

    if not TYPE_CHECKING:  # Type checkers keep the signature with the fields.

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise _usage_error(type(self), error) from None

        # Pydantic then makes settings inside of settings without it, and names the mistakes of all of them.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def parse(cls, settings: Mapping[str, Any], *, source: str) -> Self:
        """The settings from plain values, as they are in YAML; `source` names them in errors.

        Raises:
            UsageError: every mistake, with its path.
        """
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            lines = [line for problem in error.errors() for line in _lines(cls, problem)]
        if len(lines) == 1:
            raise UsageError(f"{source}: {lines[0]}")
        raise UsageError(f"{source} has {len(lines)} mistakes:\n  " + "\n  ".join(lines))

    @classmethod
    def of(cls, spec: BaseModel, **facts: Any) -> Self:
        """The same values with others beside or in place of them, checked anew."""
        return cls(**{**dict(spec), **facts})

    def settings(self) -> dict[str, Any]:
        """Plain values in the order of declaration, as they go into YAML and come back equal."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self
            if option_of(type(self), name).recorded or value != type(self).model_fields[name].default
        }


class Subject(Settings):
    """Which model is loaded, which text, and how."""

    model: Annotated[str, Option(on="argument", metavar="MODEL")]
    """A hub id, a folder, a .gguf file, or a name from `lengthwise ls models`."""
    adapter: str | None = None
    """PEFT adapter on top of the model: a folder or a hub id."""
    dtype: Dtype = "auto"
    """auto (as saved), float32, bfloat16, float16 or float64."""
    device: str = "auto"
    """auto (CUDA if there is one), cpu, cuda, cuda:1, ..."""
    device_map: Annotated[
        Literal["auto", "balanced", "balanced_low_0", "sequential"] | None, Option(recorded=False)
    ] = None
    """Spread whole layers over the devices of this process (and processor and disk), as accelerate does."""
    tp_plan: Annotated[Literal["auto"] | None, Option(recorded=False)] = None
    """auto: split every layer over the processes of torchrun."""
    quantize: Annotated[Literal["nf4", "int8"] | None, Option(recorded=False)] = None
    """Linear layers in 4 or 8 bits, through bitsandbytes."""
    text: str = "books"
    """Text to measure on: books, code, a .txt, .md, .jsonl or .parquet file, a folder, hf://owner/name."""
    split: Literal["test", "train", "all"] = "test"
    """Documents of the text to use."""
    served_model: Annotated[str | None, Option(metavar="NAME", recorded=False)] = None
    """For an endpoint: the served model's name. Default: the only one that it serves."""
    tokenizer: Annotated[str | None, Option(metavar="MODEL", recorded=False)] = None
    """For an endpoint: hub id or folder of its tokenizer. Default: the one that the server says it loaded."""


def option_of(kind: type[BaseModel], name: str) -> Option:
    """How the command line takes the field `name` of `kind`; the outermost `Option` decides."""
    return next(
        (mark for mark in reversed(kind.model_fields[name].metadata) if isinstance(mark, Option)), Option()
    )


def ascending(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes in ascending order, each once."""
    return tuple(sorted(set(sizes)))


def _usage_error(kind: type[BaseModel], error: ValidationError) -> LengthwiseError:
    """The first mistake as an error for people."""
    problem: Mapping[str, Any] = error.errors()[0]
    context = problem.get("ctx", {})
    if isinstance(context.get("error"), LengthwiseError):
        return context["error"]
    # Of `tuple[int | None, ...]` and the like pydantic names the index and the member of the union too.
    name, value = str(problem["loc"][0]) if problem["loc"] else "", problem["input"]
    if problem["type"] == "extra_forbidden":
        return UsageError(
            f"{kind.__name__} has no setting {name!r}", expected=nearest(name, kind.model_fields)
        )
    if problem["type"] == "literal_error":
        return UsageError(f"unknown {name} {value!r}", expected=_expected(problem))
    if problem["type"] == "missing":
        return UsageError(f"{kind.__name__} needs {name}")
    return UsageError(f"{name} is {shown(value)}{_flag(kind, name)}", expected=_expected(problem))


def _expected(problem: Mapping[str, Any]) -> str:
    """What pydantic expected in place of a value."""
    context = problem.get("ctx", {})
    if problem["type"] == "literal_error":
        valid = [part.strip("'") for part in context["expected"].replace(" or ", ", ").split(", ")]
        return nearest(str(problem["input"]), valid)
    return _EXPECTED.get(problem["type"], problem["msg"].removeprefix("Value error, ")).format(**context)


def _lines(kind: type[BaseModel], problem: Mapping[str, Any]) -> list[str]:
    """A mistake in settings with sections, a line for each of them, with its path."""
    path = [str(part) for part in problem["loc"] if not isinstance(part, int)]
    where, error = ".".join(path), problem.get("ctx", {}).get("error")
    if isinstance(error, LengthwiseError):
        # Of a section, or of all sections together: then it names several, a line each.
        expected = f": {_sentence(error.expected)}" if error.expected else ""
        lines = [line + expected for line in error.problem.splitlines()]
        return [line if line.startswith(where) else f"{where}: {line}" for line in lines]
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return [f"unknown key {where!r}; {nearest(path[-1], _names_in(kind, path[:-1]))}"]
    if problem["type"] == "missing":
        return [f"missing key {where!r}"]
    return [f"{where} = {shown(problem['input'])}: {_sentence(_expected(problem))}"]


def _sentence(expected: str) -> str:
    return expected if expected.startswith(("did you mean", "Input should")) else f"expected {expected}"


def _names_in(kind: Any, path: list[str]) -> list[str]:
    """The keys of the section at `path`."""
    for part in path:
        hint = get_type_hints(kind)[part]
        kind = next(each for each in (hint, *get_args(hint)) if hasattr(each, "__annotations__"))
    return [name for name in get_type_hints(kind) if not name.startswith(("_", "model_"))]


def _flag(kind: type[BaseModel], name: str) -> str:
    """The option that sets a field, in brackets, where it has another name."""
    flag = option_of(kind, name).flag if name in kind.model_fields else None
    return f" ({flag})" if flag else ""
