"""`compare`: two configurations of a model on the same tokens. `difference`: finished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lengthwise.cli import gates
from lengthwise.cli.options import Above, AsJson, Junit, Output, Use
from lengthwise.cli.output import print_judged, print_plan, print_prose, print_results, print_table, show
from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_run
from lengthwise.measure.comparison import Comparison, comparison_of_kept, run_in_turn
from lengthwise.measure.difference import check_different, difference_of_runs
from lengthwise.measure.repeated_windows import KeptPredictions
from lengthwise.measure.runner import plan_run, run
from lengthwise.results import Results
from lengthwise.run_files import read_run
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


def difference(
    runs: tuple[str, ...],
    *,
    reference: str | None = None,
    metric: tuple[str, ...] = (),
    format: Literal["csv", "latex", "markdown"] | None = None,
    fail_above: Above = None,
    fail_use: Use = None,
    junit: Junit = None,
    as_json: AsJson = False,
) -> int | None:
    """Which differences between runs are more than noise?

    Paired differences on the same items (tokens, windows, questions). Intervals are by bootstrap over documents,
    p-values are corrected for all headline numbers (Holm). Points of curves by distance are tested only with
    --metric. Runs on different tokens are refused. Two runs of `lengthwise compare MODEL --out RUN` are compared as
    their models would be, with --fail-above and --fail-use.

    Args:
        runs: Run folders (what --out named). NAME=RUN names a run in the table.
        reference: The run to compare the others with, by its folder or NAME. Default: the first.
        metric: Only this metric; repeat it for several. Fewer metrics weaken Holm's correction.
        format: Print the table alone, in this format.

    Examples:
        lengthwise difference runs/before runs/after
        lengthwise difference runs/plain runs/sce runs/jeffreys --reference runs/plain --metric loss
        lengthwise difference runs/before runs/after --metric loss --format latex
    """
    from lengthwise.report.tables import difference_table
    from lengthwise.report.writers import FORMS, to_csv

    limits = gates.limits(fail_above, fail_use, junit=junit)
    given = {"--format": format, "--reference": reference, "--metric": metric or None}
    shaped = [name for name, value in given.items() if value is not None]
    if as_json and format is not None:
        raise UsageError(f"--json and --format {format}", expected="one of them")
    pair = [_named(run) for run in runs] if len(runs) == 2 else []
    if pair and all(run.kind == "predictions" for run in pair):
        if shaped:
            raise UsageError(
                f"kept predictions are compared as `lengthwise compare` does, which has no {' and no '.join(shaped)}",
                fix=f"leave {'it' if len(shaped) == 1 else 'them'} out; --json gives all numbers",
            )
        check_different([named_run(run)[1] for run in runs])
        found = comparison_of_kept(*pair)
        return print_judged(found, Output(as_json=as_json), limits, junit)
    if limits:
        raise UsageError(
            f"{', '.join(limits)} with runs that are no kept predictions",
            expected="two runs of `lengthwise compare MODEL --out RUN`",
        )
    found = difference_of_runs(runs, reference=reference, metrics=metric)
    table = difference_table(found.rows, caption=f"{found.kind}: {found.model_name}")
    if as_json:
        print_results(found, Output(as_json=True))
    elif format == "csv":
        print(to_csv(found.rows), end="")
    elif format is not None:
        print(FORMS[format](table), end="")
    else:
        print_table(table)
        for note in found.notes:
            print_prose(note)
    return None


def _named(run: str) -> Results:
    """A finished run, by the NAME of NAME=RUN if there is one."""
    label, path = named_run(run)
    found = read_run(path)
    return replace(found, model_name=label) if label else found


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
