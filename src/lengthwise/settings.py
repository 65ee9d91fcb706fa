"""Settings, declared once: their fields are the options of the command line, its help, the checks and the config.

A field is a name, a type with its constraints, a default, and a docstring, which is also the help text. An option has
the name of its field. A `Parameter` of cyclopts in the type names the unit that the help shows:

    class Misalignment(WindowMeasurement):
        lengths: Annotated[tuple[Tokens, ...], Parameter(metavar="TOKENS")] = (256, 512, 1024)
        \"""Context lengths in tokens, the L of Eq. 2.\"""
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, get_args, get_type_hints, overload

from annotated_types import Ge, Gt, Lt
from cyclopts import Parameter
from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Strict,
    ValidationError,
    create_model,
    model_validator,
)

from lengthwise.errors import LengthwiseError, UsageError, nearest, require_kind, shown

SettingsT = TypeVar("SettingsT", bound="Settings")

PYTHON_ONLY = Parameter(parse=False)
"""Marks a field that the command line does not offer."""


_MOST = 2**63 - 1
"""No array is longer, and no generator of torch takes another seed."""


def _whole(value: Any) -> Any:
    """Whole numbers of NumPy as `int`; True is no number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("an integer")
    if abs(value.__index__()) > _MOST:
        raise ValueError("an integer of 64 bits")
    return value.__index__()


Dtype = Literal["auto", "float32", "bfloat16", "float16", "float64"]
"""The dtype of a model's weights; "auto" is that of config.json, or else the one that they were saved in."""
Whole = Annotated[int, BeforeValidator(_whole)]
Seed = Annotated[Whole, Ge(0)]
Count = Annotated[Whole, Ge(1)]
Tokens = Annotated[Count, Parameter(metavar="TOKENS")]
Finite = Annotated[float, Strict(), AllowInfNan(False)]
Positive = Annotated[Finite, Gt(0)]
NotNegative = Annotated[Finite, Ge(0)]
Share = Annotated[Finite, Gt(0), Lt(1)]


@overload
def path_text(given: str | os.PathLike[str]) -> str: ...
@overload
def path_text(given: None) -> None: ...
def path_text(given: Any) -> Any:
    """A path as its text, also within a dict, and anything else as it is: models and texts are named by text."""
    if isinstance(given, dict):
        return {name: path_text(value) for name, value in given.items()}
    return os.fspath(given) if isinstance(given, os.PathLike) else given


class Settings(BaseModel):
    """Frozen settings, checked together, whose mistakes are UsageErrors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _paths(cls, given: Any) -> Any:
        return path_text(given)

    @model_validator(mode="after")
    def _nothing_blank(self) -> Self:
        for name, value in self:
            # As from an unset shell variable. A blank path would mean the current folder.
            if isinstance(value, str) and not value.strip():
                raise UsageError(f"{name} is empty", expected="a value")
        return self

    if not TYPE_CHECKING:  # Type checkers keep the signature with the fields.

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise next(_mistakes(type(self), error)) from None

        # Pydantic then makes settings inside of settings without it, and names the mistakes of all of them.
        __init__.__pydantic_base_init__ = True


def checked(kind: type[SettingsT], settings: Mapping[str, Any], *, source: str) -> SettingsT:
    """Settings from plain values, as they are in YAML; a UsageError names `source` and every mistake."""
    try:
        return kind.model_validate(dict(settings))
    except ValidationError as error:
        one, *more = mistakes = list(_mistakes(kind, error))
    if not more:
        raise UsageError(f"{source}: {one.problem}", expected=one.expected, fix=one.fix)
    lines = ["; ".join(str(one).splitlines()) for one in mistakes]
    raise UsageError(f"{source} has {len(lines)} mistakes:\n  " + "\n  ".join(lines))


@functools.cache
def options_of(formula: Callable[..., Any]) -> type[Settings]:
    """The keyword-only parameters of a function as settings."""
    hints = get_type_hints(formula, include_extras=True)
    fields: dict[str, Any] = {
        each.name: (hints[each.name], each.default)
        for each in inspect.signature(formula).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    }
    return create_model(formula.__name__, __base__=Settings, **fields)


Kind = Literal["weights", "endpoint", "llama.cpp"]
KINDS: dict[Kind, str] = {
    "weights": "a model that transformers loads",
    "endpoint": "an endpoint",
    "llama.cpp": "a file that llama.cpp reads",
}
"""The kinds of subject, in words."""


def kind_of(model: str) -> Kind:
    """The kind of subject that a name of a model is of."""
    require_kind("the model", model, str, "its name, path or URL as text")
    if model.lower().startswith(("http://", "https://")):
        return "endpoint"
    return "llama.cpp" if model.startswith("llama.cpp:") else "weights"


# Marks of fields of `Subject`: the kinds of subject that take it. All others refuse it.
_WEIGHTS, _ENDPOINT, _GGUF = ("weights",), ("endpoint",), ("llama.cpp",)
_NO_ENDPOINT, _NO_WEIGHTS, _ALL = _WEIGHTS + _GGUF, _ENDPOINT + _GGUF, tuple(KINDS)


class TextOptions(Settings):
    """Which documents of a text are read, and how."""

    split: Literal["test", "train", "all"] | None = None
    """Documents of the text to use. Default: all of a file or folder, else test."""
    text_field: Annotated[str, Parameter(metavar="NAME")] = "text"
    """The column of tables and data sets with the text, or with the messages of a chat."""
    encoding: str = "utf-8"
    """Of files of text."""
    skip_unreadable: bool = False
    """Leave out files and rows that cannot be read, and count them."""
    text_tokens: Tokens = 10_000_000
    """A data set of the hub is read up to so many tokens, of four characters each."""

    def of_text(self) -> dict[str, Any]:
        """These options alone, as `load_corpus` takes them."""
        return {name: getattr(self, name) for name in TextOptions.model_fields}

    def check_used(self, text: object, what: str, used: Collection[str]) -> None:
        """Raise UsageError for an option that `text`, which is `what`, has no use for."""
        for name, value in self.of_text().items():
            if name not in used and value != TextOptions.model_fields[name].default:
                raise UsageError(f"{name} is given, and {text} is {what}", fix=f"leave {name} out")


class ServerOptions(Settings):
    """How an endpoint is asked. No number depends on it."""

    patience: Annotated[Positive | None, Parameter(metavar="SECONDS"), _ENDPOINT] = None
    """Seconds in which an endpoint may answer nothing, before the run stops. Default: 45."""
    wait: Annotated[NotNegative | None, Parameter(metavar="SECONDS"), _ENDPOINT] = None
    """Seconds in which an endpoint that does not answer yet may start. Default: 0."""
    concurrency: Annotated[Count | None, Parameter(metavar="N"), _ENDPOINT] = None
    """Requests to an endpoint that are under way at a time. Default: 8."""
    header: Annotated[tuple[str, ...], Parameter(metavar="NAME=ENV"), _ENDPOINT] = ()
    """A header of every request, with the value of the environment variable ENV (gateways, Azure); repeatable."""

    def of_server(self) -> ServerOptions:
        """These options alone."""
        return ServerOptions(**{name: getattr(self, name) for name in ServerOptions.model_fields})


class Subject(ServerOptions, TextOptions):
    """Which model is loaded, which text, and how."""

    model: str
    """A hub id, a folder, a .gguf file, a name from `lengthwise ls models`, an endpoint's URL, or
    llama.cpp:FILE.gguf."""
    adapter: Annotated[str | None, _WEIGHTS] = None
    """PEFT adapter on top of the model: a folder or a hub id."""
    dtype: Annotated[Dtype, _WEIGHTS] = "auto"
    """auto (as config.json says, or as saved), float32, bfloat16, float16 or float64."""
    device: Annotated[str, _NO_ENDPOINT] = "auto"
    """auto (CUDA if there is one), cpu, cuda, cuda:1, ..."""
    device_map: Annotated[Literal["auto", "balanced", "balanced_low_0", "sequential"] | None, _WEIGHTS] = None
    """Spread whole layers over the devices of this process (and processor and disk), as accelerate does."""
    tp_plan: Annotated[Literal["auto"] | None, _WEIGHTS] = None
    """auto: split every layer over the processes of torchrun."""
    quantize: Annotated[Literal["nf4", "int8"] | None, _WEIGHTS] = None
    """Linear layers in 4 or 8 bits, through bitsandbytes."""
    attn: Annotated[str | None, _WEIGHTS] = None
    """Implementation of attention: sdpa, eager, flash_attention_2, ... Default: transformers decides."""
    kv_cache: Annotated[str | None, _NO_ENDPOINT] = None
    """A cache of transformers (static, quanto-int4, ...), or the type of llama.cpp's (q8_0, ...)."""
    cache: Annotated[str | None, _WEIGHTS] = None
    """module:function that returns a cache of your own."""
    rope_scaling: Annotated[str | None, _GGUF] = None
    """none, linear:FACTOR or yarn:FACTOR. Default: as the file says."""
    n_ctx: Annotated[Count | None, _GGUF] = None
    """Tokens that the context has room for. Default: as many as are read."""
    read: Annotated[str | None, _ALL] = None
    """prefill, chunks=N (of no endpoint), decode or decode=N. Default: prefill; with a cache chunks."""
    text: str = "books"
    """Text to measure on: books, code, a .txt, .md, .jsonl, .json, .csv or .parquet file, a folder, hf://owner/name."""
    served_model: Annotated[str | None, Parameter(metavar="NAME"), _ENDPOINT] = None
    """The served model's name. Default: the only one that is served."""
    tokenizer: Annotated[str | None, Parameter(metavar="MODEL"), _NO_WEIGHTS] = None
    """Hub id or folder of the tokenizer. Default: the one that the server says it loaded, or that the file has."""

    @model_validator(mode="after")
    def _refuse_untaken(self) -> Self:
        for name, kinds in TAKEN_BY.items():
            given = getattr(self, name) != type(self).model_fields[name].default
            if given and self.kind not in kinds:
                raise UsageError(
                    f"{name} is given, and {self.model} is {KINDS[self.kind]}",
                    expected=f"{name} with {' or '.join(KINDS[kind] for kind in kinds)}",
                    fix=f"leave {name} out",
                )
        return self

    @property
    def kind(self) -> Kind:
        """What reads the model."""
        return kind_of(self.model)

    def beside(self, model: str) -> Subject:
        """Another model, with the settings of this one that its kind takes; without the adapter."""
        same = {name: getattr(self, name) for name in self.model_fields_set if name != "adapter"}
        taken = {name: value for name, value in same.items() if kind_of(model) in TAKEN_BY.get(name, KINDS)}
        return Subject(**{**taken, "model": model})


TAKEN_BY: dict[str, tuple[Kind, ...]] = {
    name: mark
    for name, field in Subject.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, tuple)
}
"""By the settings of a model: the kinds of subject that take it."""


def _mistakes(kind: Any, error: ValidationError) -> Iterator[LengthwiseError]:
    """An error for each mistake, with the path of its setting."""
    for problem in error.errors():
        path = [str(part) for part in problem["loc"] if not isinstance(part, int)]
        where, found = ".".join(path), problem.get("ctx", {}).get("error")
        if isinstance(found, LengthwiseError):
            # A check of all sections together names several mistakes, a line each.
            for line in found.problem.splitlines():
                named = line if line.startswith(where) else f"{where}: {line}"
                yield type(found)(named, expected=found.expected, fix=found.fix)
        elif problem["type"] == "extra_forbidden":
            *sections, key = path
            expected, fix = nearest(key, _names_in(kind, sections)), None
            if sections and key in kind.model_fields and expected.startswith("one of"):
                fix = f"move {key!r} out of {sections[0]!r}, to the first level"
            yield UsageError(f"unknown key {where!r}", expected=expected, fix=fix)
        elif problem["type"] == "missing":
            yield UsageError(f"missing key {where!r}")
        else:
            seen = f"{where} is {shown(problem['input'])}"
            yield UsageError(seen, expected=_expected(problem))


def _expected(problem: Mapping[str, Any]) -> str:
    """What pydantic expected in place of a value."""
    if problem["type"] == "literal_error":
        valid = [part.strip("'") for part in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return nearest(str(problem["input"]), valid)
    if problem["type"] == "too_short":
        return f"at least {problem['ctx']['min_length']}"
    return problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def _names_in(kind: Any, path: list[str]) -> list[str]:
    """The keys of the section at `path`."""
    for part in path:
        hint = kind.model_fields[part].annotation
        kind = next(each for each in (hint, *get_args(hint)) if hasattr(each, "model_fields"))
    return list(kind.model_fields)
