"""`compare`: two configurations of a model on the same tokens, or finished runs on the same items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from lengthwise.cli import gates
from lengthwise.cli.options import AsJson, Output
from lengthwise.cli.output import print_plan, print_results, print_table, show
from lengthwise.errors import UsageError, nearest
from lengthwise.measure.difference import Difference
from lengthwise.results import Results
from lengthwise.runs import read_run
from lengthwise.settings import KINDS, TAKEN_BY, Dtype, Subject, kind_of, override

_Side = Parameter(metavar="KEY=VALUE", help=f"Change one side: {', '.join(TAKEN_BY)}; repeatable.")
_Changes = Annotated[tuple[str, ...], _Side]
_ABOVE = Parameter(
    "--fail-above",
    help="Exit with 4 if the difference of any length or bin of positions (not its interval) is above this, "
    "with 5 if it is above but within rounding.",
)
_Above = Annotated[float | None, _ABOVE]
_USE = Parameter(
    "--fail-use",
    help="Exit with 4 if B lost more than this share of a benefit that is clear for A, at any distance; with 5 if "
    "none is clear.",
)
_Use = Annotated[float | None, _USE]


def is_run_folder(path: str) -> bool:
    """Whether `compare` reads a run there instead of a model."""
    return (Path(path).expanduser() / "config.yaml").is_file()


def compare(
    first: str,
    second: str | None = None,
    *,
    a: _Changes = (),
    b: _Changes = (),
    text: str = "books",
    split: Literal["test", "train", "all"] = "test",
    dtype: Dtype = "auto",
    device: str = "auto",
    measurement: Difference,
    threshold: _Above = None,
    fail_use: _Use = None,
    sequential: bool = False,
    output: Output,
) -> int | None:
    """Do two configurations of a model predict alike, at every position, and use far context alike?

    Reads the same tokens with both and compares their predictions: by position, and in the benefit of passages that
    come again. Each side begins a text as its own tokenizer does; other ids are refused. With run folders in place of
    models: which differences between the runs are more than noise? `lengthwise compare RUN RUN --help` shows the
    options for that.

    Args:
        first: A: a hub id, folder, .gguf file, embedded name, llama.cpp:FILE.gguf, or the URL of an endpoint.
        second: B. Without it the predictions of A are kept in --out, to be compared later or elsewhere.
        text: Text to measure on: books, code, a .txt, .md, .jsonl or .parquet file, a folder, hf://owner/name.
        split: Documents of the text to use.
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
        lengthwise compare runs/before runs/after
    """
    limits = _limits(threshold, fail_use)
    shared = {"text": text, "split": split, "dtype": dtype, "device": device}
    one = _side("--a", first, a, shared, beside=second or first)
    from lengthwise.measure.kept_predictions import KeptPredictions, run_in_turn
    from lengthwise.measure.runner import plan_run, run

    spec: Any
    if second is None:
        of_two = {"--b": b or None, "--sequential": sequential or None, "--tolerance": measurement.tolerance}
        given = [*limits, *(name for name, value in of_two.items() if value is not None)]
        if given or (output.out is None and not output.dry_run):
            raise UsageError(
                f"there is one model, {first}, and {', '.join(given) or 'nothing to compare it with'}",
                expected="two models, or one with --out, whose predictions are kept there",
            )
        spec = KeptPredictions(**measurement.model_dump(include=measurement.model_fields_set))
        make = partial(run, spec, one)
    else:
        two = _side("--b", second, b, shared, beside=first)
        side_b = two.model_dump(exclude={"text", "split"}, exclude_defaults=True)
        spec = measurement.model_copy(update={"side_b": side_b})
        spec.check_subject(one)
        make = partial(run_in_turn, spec, one, two) if sequential else partial(run, spec, one)
    if output.dry_run:
        print_plan(plan_run(spec, one), as_json=output.as_json)
        return None
    return _exit_code(show(make, output), limits)


def _side(
    option: str, model: str, assignments: Sequence[str], shared: Mapping[str, Any], *, beside: str
) -> Subject:
    """A side: what both share, unless the side `beside` it alone takes it, and what its option changes."""
    changes = override({}, assignments)
    for key in changes:
        if key not in TAKEN_BY:
            raise UsageError(f"{option}: no setting {key!r} of a side", expected=nearest(key, TAKEN_BY))

    def is_of(side: str, name: str) -> bool:
        return kind_of(side) in TAKEN_BY.get(name, KINDS)

    own = {name: value for name, value in shared.items() if is_of(model, name) or not is_of(beside, name)}
    return Subject(**{**own, "model": model, **changes})


def _limits(threshold: float | None, fail_use: float | None) -> dict[str, float]:
    """The thresholds that are given, by their options."""
    given = {"--fail-above": threshold, "--fail-use": fail_use}
    for name, value in given.items():
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name} is {value}", expected="a finite number")
    return {name: value for name, value in given.items() if value is not None}


def _exit_code(results: Results, limits: Mapping[str, float]) -> int:
    """4 if a threshold is crossed, 5 if one could not be decided, else 0."""
    found = []
    if "--fail-above" in limits:
        found.append(gates.above(results, "difference", limits["--fail-above"]))
    if "--fail-use" in limits:
        found.append(gates.use(results, limits["--fail-use"]))
    return gates.exit_code(found)


def compare_runs(
    runs: tuple[str, ...],
    *,
    reference: str | None = None,
    metric: tuple[str, ...] = (),
    format: Literal["csv", "latex", "markdown"] | None = None,
    threshold: _Above = None,
    fail_use: _Use = None,
    as_json: AsJson = False,
) -> int | None:
    """Which differences between runs are more than noise?

    Paired differences on the same items (tokens, windows, questions), with intervals by bootstrap over documents
    and p-values corrected for the whole table (Holm). Runs on different tokens are refused. Two runs of
    `lengthwise compare MODEL --out RUN` are compared as their models would be, with --fail-above and --fail-use.

    Args:
        runs: Run folders (what --out named).
        reference: The run to compare the others with. Default: the first.
        metric: Only this metric; repeat it for several. Fewer metrics weaken Holm's correction.
        format: Print the table alone, in this format.

    Examples:
        lengthwise compare runs/before runs/after
        lengthwise compare runs/plain runs/sce runs/jeffreys --reference runs/plain --metric loss
        lengthwise compare runs/before runs/after --metric loss --format latex
    """
    from lengthwise.measure import comparison
    from lengthwise.report.tables import comparison_table
    from lengthwise.report.writers import written

    limits = _limits(threshold, fail_use)
    pair = runs if len(runs) == 2 and all(map(is_run_folder, runs)) else ()
    kept = [read_run(Path(run).expanduser()) for run in pair]
    if kept and all(run.kind == "predictions" for run in kept):
        from lengthwise.measure.kept_predictions import difference_of_kept

        found = difference_of_kept(*kept)
        print_results(found, Output(as_json=as_json))
        return _exit_code(found, limits)
    if limits:
        raise UsageError(
            f"{', '.join(limits)} with runs that are no kept predictions",
            expected="two models, or two runs of `lengthwise compare MODEL --out RUN`",
        )
    found = comparison.compare_runs(runs, reference=reference, metrics=metric)
    table = comparison_table(found.rows, caption=f"{found.kind}: {found.model_name}")
    if as_json:
        print(found.to_json(), end="")
    elif format is not None:
        print(written(table, format), end="")
    else:
        print_table(table)
        for note in found.notes:
            print(note)
    return None
