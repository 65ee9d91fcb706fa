"""Thresholds that fail a build: what was crossed, what could not be decided, and what CI servers read of it."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.cli.options import SUMMARY
from lengthwise.errors import THRESHOLD_CROSSED, UNDECIDED, UsageError
from lengthwise.files import atomic_write_text, file_to_write, named_path
from lengthwise.machine import is_main_process
from lengthwise.progress import say

if TYPE_CHECKING:
    from lengthwise.results import Results

logger = logging.getLogger(__name__)

_MARKS = {True: "passed", False: "**failed**", None: "**not decided**"}


def limits(
    fail_above: float | None,
    fail_use: float | None = None,
    *,
    metric: str = "difference",
    junit: str | None = None,
) -> dict[str, Callable[[Results], dict[str, Any]]]:
    """What judges results, by the options that are given; `metric` is what --fail-above is about."""
    found = {}
    for name, value, judge in (
        ("--fail-above", fail_above, partial(above, metric=metric)),
        ("--fail-use", fail_use, use),
    ):
        if value is None:
            continue
        # Beyond these a gate could never pass, or never fail.
        if not (math.isfinite(value) and value >= 0 and (judge is not use or value < 1)):
            expected = "a share of 0 or more, below 1" if judge is use else "a finite number of 0 or more"
            raise UsageError(f"{name} is {value}", expected=expected)
        found[name] = partial(judge, threshold=value)
    if junit is not None and not found:
        raise UsageError("--junit needs a threshold to report on", fix="add --fail-above VALUE")
    if junit is not None:
        file_to_write(junit, what="--junit", begins="<testsuite")
    return found


def _gate(
    results: Results, option: str, what: str, crossed: list[str], undecided: str | None = None
) -> dict[str, Any]:
    """What a threshold says of results, as `--json` has it; `passed` is None where it could not be decided.

    `option` is the one that set it, with its value; `what` the threshold, `crossed` at these places. Where a side of
    a comparison differs from itself, no threshold is decided.
    """
    from lengthwise.report.comparison_evidence import evidence

    seen = evidence(results.rows)
    if seen is not None and seen.pattern in ("unstable", "undecided"):
        crossed, undecided = [], f"a side differs from itself by {seen.size:.2g} nats per token"
    if crossed:
        return {"gate": option, "passed": False, "words": f"{what} at {'; '.join(crossed)}"}
    if undecided:
        return {"gate": option, "passed": None, "words": f"could not decide: {undecided}"}
    return {"gate": option, "passed": True, "words": "passed"}


def above(results: Results, metric: str, threshold: float) -> dict[str, Any]:
    """`--fail-above`: the metric's value at any length, of `difference` in any bin of positions too.

    A difference that is no more than rounding gives at its place is not decided, nor is a metric without a value.
    """
    from lengthwise.report.tables import row_estimate

    own = [
        row for row in results.rows if row.metric == metric and (metric == "difference" or row.is_headline)
    ]
    tolerances = {
        (row.length, row.position): row.value or 0.0
        for row in results.rows
        if row.metric == "tolerance" and metric == "difference"
    }
    crossed, within = [], []
    for row in own:
        if row.value is None or row.value <= threshold:
            continue
        tolerance = tolerances.get((row.length, row.position), tolerances.get((row.length, None), 0.0))
        where = (
            f"{row.length} tokens" if row.position is None else f"tokens {row.position} to {row.position_end}"
        )
        (crossed if row.value > tolerance else within).append(f"{where}: {row_estimate(row).text}")
    undecided = None
    lacking = dict.fromkeys(str(row.length) for row in own if row.value is None)
    if lacking or not own:
        at = f" at {' and '.join(lacking)} tokens" if lacking else ""
        undecided = f"--fail-above {threshold:g}: there is no value of {metric}{at}"
    if within:
        undecided = (
            f"--fail-above {threshold:g} is below what rounding gives here, up to {max(tolerances.values()):.2g} "
            f"({'; '.join(within)}): compare in float32, or give a greater threshold"
        )
    return _gate(
        results, f"--fail-above {threshold:g}", f"{metric} is above {threshold:g}", crossed, undecided
    )


def use(results: Results, threshold: float) -> dict[str, Any]:
    """`--fail-use`: the share of a benefit that B lost, at every distance where A clearly has one.

    A loss that is no more than documents differ by (after Holm, as the sentence on the use of far context has it) is
    not decided: of five sound comparisons of documents that differ, one would fail.
    """
    from lengthwise.report.comparison_curve import clear_benefits
    from lengthwise.results import SIGNIFICANCE, percent

    clear = clear_benefits(results.rows)
    changes = {(r.length, r.distance): r for r in results.rows if r.metric == "benefit_change"}
    crossed, within = [], []
    for row in results.rows:
        place = (row.length, row.distance)
        if row.metric != "benefit_kept" or row.value is None or place not in clear:
            continue
        if 1 - row.value > threshold:
            p = changes[place].p_holm if place in changes else None
            where = f"{row.distance} tokens back: {percent(1 - row.value)}"
            sure = p is not None and p < SIGNIFICANCE
            (crossed if sure else within).append(where if sure or p is None else f"{where} (p {p:.2g})")
    reason = None
    if within:
        reason = f"a loss that may be noise between documents ({'; '.join(within)})"
    elif not clear:
        documents = max((row.documents or 0 for row in results.rows if row.distance is not None), default=0)
        reason = "repeated passages have no clear benefit for A"
        if documents < 2:
            reason = "one document gives no interval"
    undecided = None
    if reason:
        undecided = (
            f"--fail-use {threshold:g}: {reason}: read more documents (--windows), or a text that A can use"
        )
    return _gate(
        results,
        f"--fail-use {threshold:g}",
        f"the benefit lost is above {percent(threshold, None)}",
        crossed,
        undecided,
    )


def exit_code(gates: Sequence[Mapping[str, Any]]) -> int:
    """4 if any threshold is crossed, else 5 if any could not be decided, else 0; the reasons go to standard error."""
    for gate in gates:
        if not gate["passed"] and is_main_process():
            say(f"lengthwise: {gate['words']}")
    states = [gate["passed"] for gate in gates]
    return THRESHOLD_CROSSED if False in states else UNDECIDED if None in states else 0


def write_for_ci(results: Results, gates: Sequence[Mapping[str, Any]], junit: str | None) -> None:
    """The file that --junit names, and the summary of a step of GitHub Actions, where there is one."""
    if junit is not None:
        _write_junit(junit, results, gates)
    if place := os.environ.get(SUMMARY):
        _write_summary(place, results, gates)


def _write_junit(file: str, results: Results, gates: Sequence[Mapping[str, Any]]) -> None:
    """One test case for each gate. A crossed one is a failure and an undecided one an error: neither passes."""
    from xml.etree import ElementTree

    from lengthwise.report.sentence import said

    failures, errors = (sum(gate["passed"] is state for gate in gates) for state in (False, None))
    suite = ElementTree.Element(
        "testsuite", name="lengthwise", tests=str(len(gates)), failures=str(failures), errors=str(errors)
    )
    for gate in gates:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"lengthwise.{results.kind}", name=gate["gate"]
        )
        if not gate["passed"]:
            kind = "failure" if gate["passed"] is False else "error"
            ElementTree.SubElement(case, kind, message=said(results).sentence).text = gate["words"]
    ElementTree.indent(suite)
    text = ElementTree.tostring(suite, encoding="unicode")
    atomic_write_text(named_path(file, what="--junit"), f"{text}\n")


def _write_summary(place: str, results: Results, gates: Sequence[Mapping[str, Any]]) -> None:
    """Sentence, gates, picture and table into the summary of a step.

    The picture is the one of the terminal: a summary shows no images but those of other servers.
    """
    from lengthwise.report.sentence import said
    from lengthwise.report.tables import in_order, rows_table
    from lengthwise.report.terminal import pictures
    from lengthwise.report.writers import markdown_escape, to_markdown

    lines = [f"### {markdown_escape(said(results).sentence)}", ""]
    for gate in gates:
        words = "" if gate["passed"] else f": {gate['words']}"
        lines.append(f"- `{gate['gate']}`: {_MARKS[gate['passed']]}{words}")
    if drawn := pictures(results):
        lines += ["", "```text", *drawn[drawn[0] == "" :], "```"]
    table = rows_table(in_order([row for row in results.rows if row.is_headline]))
    lines += [
        "",
        "<details><summary>All headline numbers</summary>",
        "",
        to_markdown(table),
        "</details>",
        "",
    ]
    try:
        with open(place, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        # In a container the variable may name a file of the machine outside.
        logger.warning("no step summary: %s names %s: %s", SUMMARY, place, error.strerror)
