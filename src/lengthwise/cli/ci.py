"""What CI servers read of a run: test cases in the form of JUnit, and the summary of a step of GitHub Actions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from lengthwise.cli.gates import SUMMARY
from lengthwise.files import atomic_write_text, named_path

if TYPE_CHECKING:
    from lengthwise.cli.gates import Gate
    from lengthwise.results import Results

_MARKS = {True: "passed", False: "**failed**", None: "**not decided**"}


def write_for_ci(results: Results, gates: Sequence[Gate], junit: str | None) -> None:
    """The file that --junit names, and the summary of a step of GitHub Actions, where there is one."""
    if junit is not None:
        _write_junit(junit, results, gates)
    if place := os.environ.get(SUMMARY):
        _write_summary(place, results, gates)


def _write_junit(file: str, results: Results, gates: Sequence[Gate]) -> None:
    """One test case for each gate. A crossed one is a failure and an undecided one an error: neither passes."""
    from lengthwise.report.sentence import said

    failures, errors = (sum(gate.passed is state for gate in gates) for state in (False, None))
    suite = ElementTree.Element(
        "testsuite", name="lengthwise", tests=str(len(gates)), failures=str(failures), errors=str(errors)
    )
    for gate in gates:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"lengthwise.{results.kind}", name=gate.option
        )
        if not gate.passed:
            kind = "failure" if gate.passed is False else "error"
            ElementTree.SubElement(case, kind, message=said(results).sentence).text = gate.words
    ElementTree.indent(suite)
    text = ElementTree.tostring(suite, encoding="unicode")
    atomic_write_text(named_path(file, what="--junit"), f"{text}\n")


def _write_summary(place: str, results: Results, gates: Sequence[Gate]) -> None:
    """Sentence, gates, picture and table into the summary of a step.

    The picture is the one of the terminal: a summary shows no images but those of other servers.
    """
    from lengthwise.report.sentence import said
    from lengthwise.report.tables import in_order, rows_table
    from lengthwise.report.terminal import pictures
    from lengthwise.report.writers import to_markdown

    lines = [f"### {said(results).sentence}", ""]
    lines += [
        f"- `{gate.option}`: {_MARKS[gate.passed]}{'' if gate.passed else f': {gate.words}'}"
        for gate in gates
    ]
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
    with open(place, "a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
