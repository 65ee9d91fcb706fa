"""The verb of a measurement, built from its entry in the table: every option comes from a field of its spec."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from lengthwise.cli import options
from lengthwise.cli.output import fail_above, print_plan, show
from lengthwise.config import override
from lengthwise.errors import UsageError, nearest
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.windows import WindowMeasurement
from lengthwise.settings import Subject, option_of

if TYPE_CHECKING:
    from lengthwise.measure.table import Entry

# Fields of the bases that every verb shows after its own options, in this order.
_LAST = (
    "bos",
    "adapter",
    "seed",
    "device",
    "device_map",
    "tp_plan",
    "dtype",
    "quantize",
    "batch_size",
    "served_model",
    "tokenizer",
)
_OUTPUT: dict[str, tuple[Any, Any]] = {
    "out": (options.Out, None),
    "resume": (options.Resume, False),
    "overwrite": (options.Overwrite, False),
    "dry_run": (options.DryRun, False),
    "as_json": (options.Json, False),
    "verbose": (options.Verbose, False),
}


def command(entry: Entry) -> Callable[..., None]:
    """A function that Typer makes the verb of."""
    spec_class: type[Measurement] = entry.measurement

    def verb(context: typer.Context, **given: Any) -> None:
        rare = override({}, given.pop("assignments", None) or ())
        known = [name for name in spec_class.model_fields if option_of(spec_class, name).on == "set"]
        for key in rare:
            if key not in known:
                raise UsageError(f"--set knows no {key!r}", expected=nearest(key, known))
        out: Path | None = given["out"]
        # Defaults are left out, so that a spec knows what the user gave (`model_fields_set`).
        wanted = {n: v for n, v in (given | rare).items() if not _is_default(context, n)}
        run, spec = (
            kind(**{name: value for name, value in wanted.items() if name in kind.model_fields})
            for kind in (Subject, spec_class)
        )
        threshold = given.get("fail_above")
        if threshold is not None and not math.isfinite(threshold):
            raise UsageError(f"--fail-above is {threshold}", expected="a finite number")
        if given["dry_run"]:
            from lengthwise.measure.dry_run import plan_run

            print_plan(plan_run(spec, run), as_json=given["as_json"])
            return
        from lengthwise.measure.runner import run as measure

        how = {name: given[name] for name in ("out", "resume", "overwrite")}
        results = show(
            lambda: measure(spec, run, **how),
            out=out,
            as_json=given["as_json"],
            verbose=given["verbose"],
        )
        if spec.fail_above is not None:
            fail_above(results, spec.fail_above, threshold)

    parameters = dict(_parameters(spec_class))
    if spec_class.fail_above is not None:
        parameters["fail_above"] = (options.FailAbove, None)
    parameters |= _OUTPUT
    verb.__name__ = spec_class.kind
    verb.__doc__ = spec_class.__doc__
    verb.__annotations__ = {"context": typer.Context} | {
        name: annotation for name, (annotation, _) in parameters.items()
    }
    verb.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in parameters.items()
        ]
    )
    return verb


def epilog(entry: Entry) -> str:
    """The examples at the end of the verb's help."""
    return options.examples(*entry.measurement.examples)


def _is_default(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT"


def _parameters(spec_class: type[Measurement]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Arguments, the text, the measurement's own fields, and what all have in common."""
    own = [name for name in spec_class.model_fields if name not in WindowMeasurement.model_fields]
    last = [
        (kind, name)
        for name in _LAST
        if name not in spec_class.not_of_the_run
        for kind in (Subject, spec_class)
        if name in kind.model_fields
    ]
    fields: list[tuple[type[BaseModel], str]] = [(Subject, "model")]
    fields += [(spec_class, name) for name in own if option_of(spec_class, name).on == "argument"]
    fields += [(Subject, "text"), (Subject, "split")]
    fields += [(spec_class, name) for name in own if option_of(spec_class, name).on == "line"]
    for kind, name in fields + last:
        yield name, _parameter(kind, name)
    rare = [name for name in own if option_of(spec_class, name).on == "set"]
    if rare:
        said = "; ".join(f"{name}: {spec_class.model_fields[name].description}" for name in rare)
        yield (
            "assignments",
            (
                Annotated[
                    list[str] | None,
                    typer.Option("--set", metavar="KEY=VALUE", help=said, show_default=False),
                ],
                None,
            ),
        )


def _parameter(kind: type[BaseModel], name: str) -> tuple[Any, Any]:
    """Annotation and default of a field for Typer."""
    field, how = kind.model_fields[name], option_of(kind, name)
    plain = _plain(field.annotation)
    required = field.is_required()
    default = inspect.Parameter.empty if required else field.default
    if isinstance(default, tuple):
        default = list(default)
    if how.on == "argument":
        mark = typer.Argument(metavar=how.metavar, help=field.description, show_default=False)
    else:
        mark = typer.Option(
            how.flag or f"--{name.replace('_', '-')}",
            metavar=how.metavar,
            help=" ".join((field.description or "").split()),
            show_default=default is not None and not required,
            # Click's own error of a repeated option does not show the value.
            parser=options.whole_number if plain == list[int] else None,
        )
    return Annotated[plain, mark], default


def _plain(annotation: Any) -> Any:
    """The type that Typer takes: without constraints, tuples as lists."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(inner[0])
    if origin is tuple:
        return list[_plain(inner[0])]
    if origin in (Union, types.UnionType):
        return Union[tuple(_plain(part) for part in inner)]  # noqa: UP007
    if origin is Literal or not inner:
        return annotation
    return origin[tuple(_plain(part) for part in inner)]
