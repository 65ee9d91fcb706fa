"""What a run says to share: a picture with a badge, Markdown for a pull request, metadata for a model's card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_bytes, atomic_write_text, file_to_write, named_path
from lengthwise.report.card_drawing import CARD_BEGINS, Card, Line, panel, png, shapes, svg, token_panel
from lengthwise.report.card_text import badge, line_words, markdown
from lengthwise.report.comparison_curve import clear_benefits, difference_bins, tolerances_of
from lengthwise.report.comparison_evidence import evidence
from lengthwise.report.limit_answer import REACHES, bin_of, limit_answers, passage_of, reaches
from lengthwise.report.run_page import read_runs
from lengthwise.report.sentence import said, subject_of
from lengthwise.report.tables import row_estimate
from lengthwise.results import Results, Row, percent
from lengthwise.run_files import read_inputs
from lengthwise.samples import of_this_version
from lengthwise.yaml_text import to_yaml

_FILES = ("card.svg", "badge.svg", "card.md", "model-index.yaml", "card.png", "card-dark.png")
"""The files of a card, in the order in which they are written."""
_MOST_BINS = 12
_LONGEST = 26
_COST = ("Added to the loss, nats per token", "What a far passage is still worth")


@of_this_version("the runs of a card")
def write_card(paths: Sequence[Path | str], out: Path | str | None = None) -> tuple[Card, list[Path]]:
    """Write the card of one or two runs of `limit`, with runs of `compare` beside them, or of one of `compare`.

    Returns it and its files, in the folder `out`; by default that is `card` in the last of the runs it is about.

    Raises:
        UsageError: another kind of run, too many, one that is not finished, or runs that do not belong together.
    """
    runs = read_runs(paths)
    for run in runs:
        if run.results.kind not in ("limit", "compare") or run.results.partial:
            state = "an unfinished run" if run.results.partial else "a run"
            raise UsageError(
                f"{run.path} holds {state} of {run.results.kind!r}",
                expected="a finished run of limit or compare",
                fix="lengthwise limit MODEL --out RUN; --resume finishes a run",
            )
        of = run.results.provenance
        # Of a sequential comparison, what is known of its first side.
        run.results.provenance = {**of.get("a", {}), **of}
        for folder in (run.path, run.path / "a"):
            if (folder / "inputs.json").is_file():
                run.results.provenance["weights"] = read_inputs(folder).get("model", {}).get("weights")
                break
    limits, comparisons = ([run for run in runs if run.results.kind == kind] for kind in ("limit", "compare"))
    card = card_of([run.results for run in limits], [run.results for run in comparisons])
    folder = card_folder((limits or comparisons)[-1].path / "card" if out is None else out)
    drawing = shapes(card)
    pictures = {"card.png": png(drawing), "card-dark.png": png(drawing, dark=True)}
    texts = {"card.svg": svg(drawing, card.sentence), "badge.svg": badge(card), "card.md": markdown(card)}
    if limits:
        texts["model-index.yaml"] = model_index(limits[-1].results)
    for name, text in texts.items():
        atomic_write_text(folder / name, text)
    for name, data in pictures.items():
        atomic_write_bytes(folder / name, data)
    return card, [folder / name for name in (*texts, *pictures)]


def card_folder(name: Path | str) -> Path:
    """The folder of that name, for a card; UsageError if it has files of a card's names and no earlier card."""
    folder = named_path(name, what="--out")
    card = file_to_write(folder / _FILES[0], what="the card", begins=CARD_BEGINS)
    there = [each for each in _FILES if (folder / each).exists()]
    if there and not card.exists():
        raise UsageError(
            f"{folder} has {', '.join(there)}, and no {card.name}",
            expected="a new folder, or one with an earlier card",
            fix="choose another --out",
        )
    return folder


def card_of(limits: Sequence[Results], comparisons: Sequence[Results] = ()) -> Card:
    """The card of runs that belong together."""
    _check(limits, comparisons)
    if not limits:
        return _comparison(comparisons[0])
    sides = ("base", "new") if len(limits) > 1 else ("",)
    names = [_name(run) for run in limits]
    groups = [_limit_lines(run, side) for run, side in zip(limits, sides, strict=True)]
    lines = [line for of_two in zip(*groups, strict=True) for line in of_two]
    rows = [[token_panel(lines, None if len(groups) > 1 else lines[0].value)]]
    if comparisons:
        costs = zip(*(_cost(run) for run in comparisons), strict=True)
        rows.append([panel(heading, found) for heading, found in zip(_COST, costs, strict=True)])
    return Card(
        title=" against ".join(map(_shortened, names[::-1]) if len(names) > 1 else names),
        about="effective context length",
        sentence=" ".join(said(run).sentence for run in limits),
        verdict=_against_claim(limits[0], groups[0]) if len(groups) == 1 else _against_base(*groups),
        rows=rows,
        small=_small(limits, comparisons),
        badge=" · ".join(
            line_words(line._replace(again=None)).replace("up to", "to", 1) for line in groups[-1][1:]
        ),
    )


def _check(limits: Sequence[Results], comparisons: Sequence[Results]) -> None:
    if len(limits) > 2 or len(comparisons) > 2 or (not limits and len(comparisons) != 1):
        raise UsageError(
            f"there are {len(limits)} runs of limit and {len(comparisons)} of compare",
            expected="one or two of limit (BASE NEW), with up to two of compare; or one of compare alone",
            fix="name fewer runs",
        )
    for what, found in {
        "texts": [_text(run).get("corpus_fingerprint") for run in limits],
        "settings": [[run.config.get(name) for name in ("tolerance", "share", "passage")] for run in limits],
    }.items():
        if found and found[0] != found[-1]:
            raise UsageError(
                f"the two runs of limit have different {what}",
                expected="the same text, --tolerance and --share",
                fix="measure one of them again",
            )
    known = {_weights(run) for run in limits} - {None}
    for run in comparisons:
        if limits and (weights := _weights(run)) not in known:
            what = "other weights than" if weights and known else "weights that are not known to be those of"
            raise UsageError(
                f"the comparison {subject_of(run)!r} is of {what} the runs of limit",
                expected="a comparison whose first side is a model of the card",
                fix="compare that model with what it is served as",
            )


def _weights(run: Results) -> str | None:
    """The fingerprint of the weights, or what a server says that it serves; None if neither is known."""
    about = run.provenance.get("model", {})
    return run.provenance.get("weights") or about.get("served_from") or about.get("served_model")


def _name(run: Results) -> str:
    """Without the dtype, which the small print has."""
    return subject_of(
        replace(run, config={key: value for key, value in run.config.items() if key != "dtype"})
    )


def _shortened(name: str) -> str:
    """One of two names in a title: models of one family differ at their beginning or at their end."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2 - 1]}…{name[-_LONGEST // 2 :]}"


def _text(run: Results) -> dict[str, Any]:
    return run.provenance.get("text", {})


def _corpus(run: Results) -> str:
    # The folder "." has no name.
    return PurePath(str(_text(run).get("corpus", ""))).name or "a text"


def _limit_lines(run: Results, side: str) -> list[Line]:
    """What the model claims, and how far it is sound and used."""
    claim = run.provenance.get("model", {}).get("claimed_length")
    text = f"{claim:,}" if claim else "not known"
    small = "by its configuration" if claim and not side else ""
    found = [Line("claimed", "claimed", claim, text, small, end=claim or 0, side=side)]
    for (metric, reach), answer in zip(reaches(run).items(), limit_answers(run), strict=True):
        tone = metric.removesuffix("_up_to")
        line = Line(f"{tone} up to", tone, None, answer.without, answer.why, end=reach.end, side=side)
        if (row := reach.row) is not None:
            least, again = bool(row.at_least), reach.again
            line = line.known(
                row, f"{'≥ ' if least else ''}{row.value:,.0f}", reach.interval or "no interval"
            )
            behind = None if again is None else (again.position or 0, again.position_end or 0)
            line = line._replace(open=reach.open, at_least=least, again=behind)
        found.append(line)
    return found


def _against_claim(run: Results, lines: Sequence[Line]) -> str:
    """Whether the intervals reach the claim, to a bin and a passage."""
    claimed, *measured = lines
    if not claimed.value:
        return "What length the model claims is not known."
    slack, answers = max(bin_of(run), passage_of(run)), []
    for line in measured:
        reached = line.low is not None and line.low + slack >= claimed.value
        missed = line.high is not None and not line.open and line.high + slack < claimed.value
        answers.append("yes" if reached else "no" if missed else "not decided")
    sound, used = answers
    apart = f"Sound that far: {sound}. Used that far back: {used}."
    answer = f"Sound and used that far: {sound}." if sound == used else apart
    return f"Claims {claimed.value:,.0f} tokens. {answer}"


def _against_base(base: Sequence[Line], new: Sequence[Line]) -> str:
    """A change is one where the intervals do not meet."""

    def beyond(one: Line, other: Line) -> bool:
        return not (one.low is None or other.high is None or other.open) and one.low > other.high

    sound, used = (
        "farther" if beyond(two, one) else "less far" if beyond(one, two) else "not told apart"
        for one, two in zip(base[1:], new[1:], strict=True)
    )
    return f"Sound: {sound}. Used: {used}."


def _kept(rows: Sequence[Row], *, decided: bool = True) -> list[Line]:
    """What B keeps of what a passage is worth to A, by distance; not known where A has no clear benefit."""
    clear, rows = clear_benefits(rows), [row for row in rows if row.metric == "benefit_kept"]
    longest, found = max((row.length or 0 for row in rows), default=0), []
    for row in sorted(rows, key=lambda row: row.distance or 0):
        text = "not clear" if decided else "not decided"
        line = Line(f"{row.distance:,} back", "used", None, text, end=1.0)
        if decided and (row.length, row.distance) in clear and row.value is not None:
            small = "" if row.ci_low is None else f"[{100 * row.ci_low:.0f}, {100 * (row.ci_high or 0):.0f}]"
            line = line.known(row, percent(row.value), small)
        found += [line] if row.length == longest else []
    return found


def _is_decided(run: Results) -> bool:
    """Whether each side differs less from itself than would hide what it does to the other."""
    seen = evidence(run.rows)
    return seen is None or seen.pattern not in ("undecided", "unstable")


def _cost(run: Results) -> tuple[Line, Line]:
    """What the second side of a comparison adds to the loss and keeps of the worth of a passage, at worst."""
    subject = subject_of(run)
    name = (subject.partition(" with ")[2] or subject).removeprefix("a ").removeprefix("an ")
    loss, kept = Line(name, "sound", None, "not decided"), Line(name, "used", None, "not decided", end=1.0)
    if not _is_decided(run):
        return loss, kept
    shifts = [row for row in run.rows if row.metric == "shift" and row.is_whole]
    for row in sorted(shifts, key=lambda row: row.length or 0):
        shown = replace(row_estimate(row), signed=True)
        loss = loss.known(row, shown.value_text, shown.interval_text.replace("+", ""))
    for line in sorted(_kept(run.rows), key=lambda line: -(line.value or 0.0)):
        if line.value is not None:
            kept = line._replace(label=name, small=f"{line.small} {line.label}".strip())
    return loss, kept


def _comparison(run: Results) -> Card:
    """How far apart by position, and how far context is used."""
    found, tolerances, decided, apart = said(run), tolerances_of(run.rows), _is_decided(run), []
    title, _, verdict = found.sentence.removesuffix(".").partition(": ")
    for row in sorted(difference_bins(run.rows), key=lambda row: row.position or 0):
        begin, end = row.position or 0, row.position_end or 0
        equal = row.value is not None and row.value <= tolerances.get((begin, end), 0.0)
        line = Line(f"{begin:,} to {end:,}", "claimed" if equal else "sound", None, "not decided")
        if decided:
            text = "rounding" if equal else row_estimate(row).value_text
            line = line.known(row, text)
        apart.append(line)
    some = apart if len(apart) <= _MOST_BINS else [*apart[:-1:2], apart[-1]]
    longest, *_ = found.numbers
    return Card(
        title=title,
        about="the same tokens, read by both",
        sentence=found.sentence,
        verdict=f"{verdict[:1].upper()}{verdict[1:]}.",
        rows=[
            [
                panel(f"Nats per token apart, by position{'' if some is apart else ' (some)'}", some),
                panel("What a repeated passage is still worth", _kept(run.rows, decided=decided), mark=1.0),
            ]
        ],
        small=_small([run]),
        badge=f"{row_estimate(longest).text} nats apart" if decided else "not decided",
    )


def _small(runs: Sequence[Results], comparisons: Sequence[Results] = ()) -> str:
    """Where the numbers come from; what is alike in two runs is said once."""
    parts = []
    for run in runs:
        of, about = run.provenance, run.provenance.get("model", {})
        date = datetime.fromisoformat(of["started"]) if of.get("started") else None
        version = of.get("packages", {}).get("lengthwise")
        documents = sorted({row.documents for row in run.rows if row.documents}) or [0]
        parts.append(
            (
                f"{_corpus(run)}, {' to '.join(map(str, dict.fromkeys((documents[0], documents[-1]))))} documents",
                f"read to {max(row.length or 0 for row in run.rows):,}",
                about.get("dtype") or "",
                f"weights {of['weights'][:8]}" if of.get("weights") else "",
                f"{date.day} {date:%B %Y}" if date else "",
                f"lengthwise {version}" if version else "",
            )
        )
    alike = [" and ".join(dict.fromkeys(filter(None, each))) for each in zip(*parts, strict=True)]
    others = dict.fromkeys(_corpus(run) for run in comparisons if _corpus(run) != _corpus(runs[0]))
    return " · ".join(filter(None, [*alike, *(f"costs on {text}" for text in others)]))


def model_index(run: Results) -> str:
    """The numbers of `limit` as the metadata of a model's card. What is not known is left out."""
    metrics = []
    for metric, line in zip(REACHES, _limit_lines(run, "")[1:], strict=True):
        high = None if line.open else line.high
        ends = {"ci_low": line.low, "ci_high": high, "at_least": line.at_least or None}
        args = {name: value for name, value in ends.items() if value is not None}
        if line.value is not None:
            name = f"{line.label} (tokens)"
            metrics.append({"type": metric, "value": round(line.value), "name": name, "args": args})
    dataset = {"type": _corpus(run), "name": _corpus(run), "split": _text(run).get("split", "all")}
    found = {"task": {"type": "text-generation"}, "dataset": dataset, "metrics": metrics}
    name = _name(run)
    return to_yaml({"model-index": [{"name": name, "results": [found] if metrics else []}]})
