"""`compare`: two configurations of a model on the same tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from lengthwise.cli import gates
from lengthwise.cli.options import Above, Junit, Output, Use
from lengthwise.cli.output import print_plan, show
from lengthwise.errors import UsageError, nearest
from lengthwise.measure.comparison import Comparison
from lengthwise.settings import KINDS, TAKEN_BY, Dtype, ServerOptions, Subject, TextOptions, kind_of
from lengthwise.yaml_text import each_once, override

_Side = Parameter(metavar="KEY=VALUE", help=f"Change one side: {', '.join(TAKEN_BY)}; repeatable.")
_Changes = Annotated[tuple[str, ...], _Side]


def compare(
    first: str,
    second: str | None = None,
    *,
    a: _Changes = (),
    b: _Changes = (),
    text: str = "books",
    options: TextOptions,
    dtype: Dtype = "auto",
    device: str = "auto",
    server: ServerOptions,
    measurement: Comparison,
    fail_above: Above = None,
    fail_use: Use = None,
    junit: Junit = None,
    sequential: bool = False,
    output: Output,
) -> int | None:
    """Do two configurations of a model predict alike, at every position, and use far context alike?

    Reads the same tokens with both and compares their predictions: by position, and in the benefit of passages that
    come again. Each side begins a text as its own tokenizer does; other ids are refused.

    Args:
        first: A: a hub id, folder, .gguf file, embedded name, llama.cpp:FILE.gguf, or the URL of an endpoint.
        second: B. Without it the predictions of A are kept in --out, for `lengthwise difference`, later or elsewhere.
        text: Text to measure on: books, code, a .txt, .md, .jsonl, .json, .csv or .parquet file, a folder, hf://owner/name.
        dtype: Of both sides, unless --a or --b says otherwise.
        device: Of both sides.
        sequential: Load one side after the other: half the memory; KL is then a lower bound.

    Examples:
        lengthwise compare ./model ./model-yarn
        lengthwise compare ./model ./model --b quantize=nf4
        lengthwise compare ./model ./model --b kv_cache=quanto-int4
        lengthwise compare ./model ./model --b read=decode --fail-above 0.1 --fail-use 0.2
        lengthwise compare ./model http://127.0.0.1:8000/v1 --b read=decode --out runs/served
        lengthwise compare ./model llama.cpp:model.gguf --b kv_cache=q8_0
        lengthwise compare ./model --out runs/a
    """
    limits = gates.limits(fail_above, fail_use, junit=junit)
    given = options.model_dump(exclude_unset=True) | server.model_dump(exclude_unset=True)
    shared = {"text": text, **given, "dtype": dtype, "device": device}
    one = _side("--a", first, a, shared, beside=second or first)
    from lengthwise.measure.comparison import run_in_turn
    from lengthwise.measure.repeated_windows import KeptPredictions
    from lengthwise.measure.runner import plan_run, run

    spec: Any
    if second is None:
        of_two = {"--b": b or None, "--sequential": sequential or None, "--tolerance": measurement.tolerance}
        given = [*limits, *(name for name, value in of_two.items() if value is not None)]
        if given or (output.out is None and not output.dry_run):
            raise UsageError(
                f"there is one model, {first}, and {', '.join(given) or 'nothing to compare it with'}",
                expected="two models, or one twice with another --b, or one with --out, which keeps its predictions",
            )
        spec = KeptPredictions(**measurement.model_dump(include=measurement.model_fields_set))
        make = partial(run, spec, one)
    else:
        two = _side("--b", second, b, shared, beside=first)
        side_b = two.model_dump(exclude={"text", *TextOptions.model_fields}, exclude_defaults=True)
        spec = measurement.model_copy(update={"side_b": side_b})
        make = partial(run_in_turn, spec, one, two) if sequential else partial(run, spec, one)
    if output.dry_run:
        print_plan(plan_run(spec, one), as_json=output.as_json)
        return None
    return show(make, output, limits, junit)


def _side(
    option: str, model: str, assignments: Sequence[str], shared: Mapping[str, Any], *, beside: str
) -> Subject:
    """A side: what both share, unless the side `beside` it alone takes it, and what its option changes."""
    changes = override({}, each_once(assignments))
    for key in changes:
        if key not in TAKEN_BY:
            raise UsageError(f"{option}: no setting {key!r} of a side", expected=nearest(key, TAKEN_BY))

    def is_of(side: str, name: str) -> bool:
        return kind_of(side) in TAKEN_BY.get(name, KINDS)

    own = {name: value for name, value in shared.items() if is_of(model, name) or not is_of(beside, name)}
    return Subject(**{**own, "model": model, **changes})
