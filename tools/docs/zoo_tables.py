"""What `make check-zoo` found, as tables of the documentation: which verbs are right on which architectures."""

from __future__ import annotations

from collections import Counter

from lengthwise.report.tables import Cell, Table
from lengthwise.results import Results

_VERDICTS = {
    "refused": "refused",
    "transformers": "transformers' own fault",
    "wrong": "not equal",
    "crash": "an error of Python",
}


def verbs_table(results: Results) -> Table:
    """A line for each verb: on how many models it says what their plain forward passes say, and what else comes."""
    found = Counter((verb, verdict) for _, verb, verdict, *_ in results.config["other"])
    lines: list[list[Cell]] = []
    for verb, tried in results.config["tried"].items():
        other = [found[verb, verdict] for verdict in _VERDICTS]
        lines.append([verb, str(tried - sum(other)), *map(str, other)])
    return Table(columns=["verb", "equal", *_VERDICTS.values()], rows=lines)


def others_table(results: Results) -> Table:
    """A line for all models of which the same verbs are not equal, for the same reason."""
    by_model: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for name, verb, verdict, error, why in results.config["other"]:
        by_model.setdefault((name, verdict, why), []).append((verb, error or 0.0))
    lines: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for (name, verdict, words), cells in by_model.items():
        verbs = "; ".join(verb for verb, _ in cells)
        largest = max(error for _, error in cells)
        lines.setdefault((verdict, words, verbs), []).append((name, largest))
    order = list(_VERDICTS)
    return Table(
        columns=["models", "verbs", "what", "nats, at most", "why"],
        rows=[
            [
                "; ".join(name for name, _ in some),
                verbs,
                _VERDICTS[verdict],
                f"{largest:.2g}" if (largest := max(size for _, size in some)) else "",
                words,
            ]
            for (verdict, words, verbs), some in sorted(
                lines.items(), key=lambda each: order.index(each[0][0])
            )
        ],
    )


def equal_table(results: Results) -> Table:
    """The models of which every verb is equal, by architecture; beside its own settings those that were tried."""
    return Table(
        columns=["architecture", "also with"],
        rows=[[name, ", ".join(filter(None, own))] for name, own in results.config["equal"].items()],
    )


def none_table(results: Results) -> Table:
    """The architectures that are not in the zoo, and why."""
    return Table(
        columns=["architecture", "why"], rows=[list(each) for each in results.config["none"].items()]
    )


TABLES = {
    "verbs": verbs_table,
    "others": others_table,
    "equal": equal_table,
    "none": none_table,
}
"""Name -> what makes it."""
