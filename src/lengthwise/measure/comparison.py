"""Two configurations of a model compared: on the same tokens, by position, in all, and in the use of far context.

For a token t with context x, with sides A and B,

    d = log p_B(t | x) - log p_A(t | x)      (nats)

`difference` is the mean of |d|, `shift` the mean of -d: how much higher the loss of B is. `kl` is KL(p_A || p_B) of
the whole distributions. The windows end with repeated passages (`repeated_windows`): their `benefit` on each side
says whether what is far back is still used, which a compressed cache loses first.

Each side reads a text as it would read it alone: with its own BOS. Rounding gives differences too, so the run
measures how far each side differs from itself (`rounding`): `floor_a`, `floor_b`. A bin of positions counts as equal
up to its `tolerance`, FLOORS times the greater floor, and at least what any model of that dtype needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from lengthwise.files import read_json
from lengthwise.measure import pair_records
from lengthwise.measure.difference import check_numbers, check_same_items, holm
from lengthwise.measure.given import check_second, config_of, fingerprints_of
from lengthwise.measure.measurement import FEW, About, Item, Record, grouped, remarks_of
from lengthwise.measure.repeated_windows import KeptPredictions, Layout, token_pieces
from lengthwise.measure.runner import run
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import of_this_version
from lengthwise.settings import PYTHON_ONLY, Positive, Subject
from lengthwise.subjects.reading import Predictor, Reader, reading_path

_CURVES = ("difference", "shift", "kl")
_PARTS = {"loss_a": ("loss",), "loss_b": ("loss", "shift")}
"""What is summed for a metric that is no column of the records."""


class Comparison(KeptPredictions):
    """Do two configurations of a model predict alike, at every position, and use far context alike?

    Reads the same tokens with both and compares the predictions: by position, and in the benefit of passages that
    come again. --a and --b change one side. --fail-above checks the mean absolute difference (nats per token) of
    every length and bin of positions, --fail-use the share of a benefit that B has lost.
    """

    about = About(
        kind="compare",
        task="difference",
        title="Two configurations of a model",
        metrics={
            "equal_up_to": "tokens of context up to which the difference stays within the tolerance",
            "difference": "mean |log p B - log p A| of the same tokens",
            "tolerance": "the difference up to which a bin of positions counts as equal",
            "floor_a": "mean |log p| of A - log p of A rounded otherwise",
            "floor_b": "the same of B",
            "most_a": "the same, at most by rounding in the dtype of A",
            "most_b": "the same of B",
            "by_length_a": "mean |log p| of A of a text alone - log p of it where more text follows; not by rounding",
            "by_length_b": "the same of B",
            "cached_from": "tokens of the first pass: only from there on a cache is read",
            "shift": "loss of B - loss of A: above 0 B predicts worse",
            "kl": "KL(A || B) of the next-token distributions",
            "same_top": "share of positions with the same most likely token",
            "largest": "the largest difference of one token",
            "largest_rounding": "up to which one token may differ by rounding",
            "begins": "the position from which on both sides differ by another amount, with the range it lies in",
            "exact_up_to": "the position up to which both sides are equal to the last bit, with its cell",
            "before": "mean |log p B - log p A| from there to where another amount begins",
            "after": "the same from where another amount begins",
            "windows_apart": "share of windows that differ, where the others do not",
            "top_share": "share of the difference that the hundredth of tokens with the largest ones has",
            "tenth_share": "the same of the tenth",
            "alone_share": "the same of the token that differs most among each eight side by side",
            "one_sided": "share of the tokens that differ which are likelier in B - share likelier in A",
            "other_ids": "tokens of a window that both sides read otherwise: the BOS",
            "more_rows": "rows of B's output head - rows of A's",
            "prefix_cache": "mean |log p| of B's decode path with the server's prefix cache - without it",
            "loss_a": "cross entropy of the next token, A",
            "loss_b": "cross entropy of the next token, B",
            "benefit_a": "what a repeated passage is worth to A, by its distance",
            "benefit_b": "the same to B",
            "benefit_change": "benefit of B - benefit of A",
            "benefit_kept": "benefit of B / benefit of A",
        },
        levels=(
            "tolerance",
            "floor_a",
            "floor_b",
            "most_a",
            "most_b",
            "by_length_a",
            "by_length_b",
            "largest_rounding",
            "cached_from",
            "other_ids",
            "more_rows",
        ),
        fail_above="difference",
        reads="either",
        second="side_b",
        folders=("a", "b"),
        no_facts=("side_b",),
    )

    side_b: Annotated[dict[str, Any], PYTHON_ONLY] = Field(default={})
    """The second side: fields of `Subject`, its `model` among them."""
    tolerance: Positive | None = None
    """Mean absolute difference, in nats per token, that counts as equal. Default: from dtypes and rounding."""

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of the differences by position, and the losses of the repeated passages."""
        from lengthwise.checkpoints.head import NonFiniteLogits

        layout, sides = self.layout_of(items), (model, other)
        found = [self.predicted(each, items) for each in sides]
        for index, item in enumerate(items):
            pairs = [each[2 * index : 2 * index + 2] for each in found]
            reads = [[read for _, read in pair] for pair in pairs]
            labels = [reading.labels for reading, _ in pairs[0]]
            try:
                record = pair_records.pair_record(layout, labels, *reads, cached_from=self.cached_from)
            except NonFiniteLogits as error:
                at_fault = error.view or 0
                name = f"{'AB'[at_fault]} ({sides[at_fault].name})"
                raise NonFiniteLogits(error.position, model=name, text=item.words) from error
            known = [
                self.side(one, item, *pair[0], beside=two)
                for one, two, pair in zip(sides, sides[::-1], pairs, strict=True)
            ]
            _, half, row = record["largest"]
            *before, token = token_pieces(model.tokenizer, item.content[half, pair_records.near(row)])
            yield record | pair_records.between(*known) | {"said": ["".join(before), token]}

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """As every measurement; both sides read every token. `decode_passes`: of each side that decodes."""
        found = super().plan(items)
        decoded = {"decode_passes": 2 * self.decode * len(items)} if self.decode else {}
        return {**found, "tokens_to_run": 2 * found["tokens_to_run"], **decoded}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length that have intervals; the differences also by position, benefits by distance."""
        found: list[Statistic] = []
        for length, some in grouped(records, "length"):
            layout = Layout(length, self.decode)
            whole = partial(self.statistic, some, length=length, n=sum(record["targets"] for record in some))
            if not self.decode:
                _, tolerances = pair_records.tolerated(some, layout, self.tolerance)
                first_unequal = partial(pair_records.equal_up_to, edges=layout.edges, tolerances=tolerances)
                by_bin = lambda record: [*record["difference"], 2]  # noqa: E731
                found.append(whole(by_bin, first_unequal, metric="equal_up_to", unit="tokens"))
            for metric in ("difference", "shift", "kl", "same_top", "loss_a", "loss_b", "prefix_cache"):
                parts = _PARTS.get(metric, (metric,))
                if parts[0] in some[0]:
                    unit: dict[str, Any] = {"unit": "share"} if metric == "same_top" else {}
                    found.append(whole(partial(pair_records.summed, parts=parts), metric=metric, **unit))
            for metric in _CURVES:
                if metric in some[0]:
                    by_half = [{**r, metric: [each / 2 for each in r[metric]]} for r in some]
                    found += self.curve(by_half, metric, layout.edges, metric=metric, length=length)
            for index, distance in enumerate(layout.distances):
                count = sum(record["benefit"][index][-1] for record in some)
                totals = [{"document": r["document"], **pair_records.benefit_totals(r, index)} for r in some]
                number = partial(self.statistic, totals, length=length, distance=distance, n=count)
                for metric in ("benefit_a", "benefit_b", "benefit_change", "benefit_kept"):
                    unit = {"unit": "ratio" if metric == "benefit_kept" else "nats"}
                    found.append(number(itemgetter(metric), metric=metric, **unit))
        return found

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers; Holm's correction over the shifts and the changes of benefit; what has no interval."""
        found = [
            replace(row, at_least=True) if row.metric == "equal_up_to" and row.value == row.length else row
            for row in super().rows(statistics, records)
        ]
        tested = [row for row in found if row.is_whole and row.metric in ("shift", "benefit_change")]
        corrected = {row.place: row for row in holm(tested)}
        found = [corrected.get(row.place, row) for row in found]
        for length, some in grouped(records, "length"):
            about = {"task": self.about.task, "cached_from": self.cached_from}
            found += pair_records.plain_rows(some, Layout(length, self.decode), self.tolerance, **about)
        if self.cached_from:
            row = {"metric": "cached_from", "value": self.cached_from, "unit": "tokens"}
            found.append(Row(model="", task=self.about.task, **row))
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement, of each side; where the largest difference is, and what is bounded."""
        found = super().notes(model, other, items, results)
        own, others = (self.bos_note(side) for side in (model, other))
        if others != own:
            found[0] = f"A: {own} B: {others}"
        return found + pair_records.comparison_notes(list(results.records.values()))


@of_this_version("the samples of the two sides")
def comparison_of_kept(a: Results, b: Results, *, tolerance: float | None = None) -> Results:
    """The results of `Comparison`, from the kept predictions of both sides.

    UsageError unless both are of the same tokens and settings, and the numbers of each are those of its samples.
    """
    from lengthwise.measure.distributions import read_kept

    check_same_items(a, b)
    for side in (a, b):
        check_numbers(side)
    settings = a.provenance["measurement"]
    given = {name: settings[name] for name in ("lengths", "windows", "decode")}
    cached_from = max(side.provenance["cached_from"] for side in (a, b))
    measurement = Comparison(**given, cached_from=cached_from, tolerance=tolerance)
    records = {}
    for key, one in a.records.items():
        layout, two = Layout(one["length"], measurement.decode), b.records[key]
        sides = [[read_kept(half) for half in side["halves"]] for side in (one, two)]
        # Numbers have their labels in them.
        record = pair_records.pair_record(
            layout, [np.empty(0, dtype=np.int64)] * 2, *sides, cached_from=cached_from
        )
        _, half, row = record["largest"]
        *before, token = one["pieces"][half][pair_records.near(row)]
        places = {name: one[name] for name in ("document", "start", "crc", "length")}
        said = {"said": ["".join(before), token]}
        records[key] = places | record | pair_records.between(one["side"], two["side"]) | said
    found, name = list(records.values()), f"{a.model_name} against {b.model_name}"
    rows = measurement.rows(measurement.statistics(found), found)
    return Results(
        kind="compare",
        model_name=name,
        config={"a": a.config, "b": b.config},
        rows=[replace(row, model=name) for row in rows],
        notes=_notes(a, b, found),
        provenance={"a": a.provenance, "b": b.provenance, "measurement": settings},
        records=records,
    )


def _notes(a: Results, b: Results, records: Sequence[Record]) -> list[str]:
    """The notes of a direct comparison, from those of both sides, of which the first says how views begin."""
    begins, *others = a.notes
    if b.notes[:1] != [begins]:
        begins = f"A: {begins} B: {b.notes[0]}"
    few = [note for note in others if note.startswith(FEW)]
    ends = [note for note in others if note not in few]
    ends += [note for note in remarks_of(b.provenance["model"]) if note not in ends]
    return [begins, *few, *pair_records.comparison_notes(records), *ends]


def _lengths_of_both(measurement: Comparison, one: Subject, two: Subject) -> tuple[int, ...] | None:
    """The lengths that both sides have positions for; None while a side is not converted yet, and decides alone."""
    from lengthwise.subjects.plan import outline, unknown_cost_of

    if measurement.lengths is not None or unknown_cost_of((one, two)) is not None:
        return measurement.lengths
    return measurement.resolved(outline(one), outline(two)).lengths


def run_in_turn(measurement: Comparison, one: Subject, two: Subject, **where: Any) -> Results:
    """Compare two sides of which one is loaded at a time; their predictions go to `a` and `b` in the run folder.

    `where` is `out`, `resume` and `overwrite` of `run`, whose errors it raises.
    """
    check_second(measurement, one)
    decode = max(measurement.decode, *(reading_path(side).decode for side in (one, two)))
    given = measurement.model_dump(include={"windows", "seed", "batch_size", "bos"})
    kept = KeptPredictions(**given, lengths=_lengths_of_both(measurement, one, two), decode=decode)
    config = config_of(measurement, one)
    opened: Any = contextlib.nullcontext()
    if where.get("out") is not None:
        about = measurement.about
        opened = RunFolder(where.pop("out"), kind=about.kind, config=config, writes=about.folders, **where)
    with opened as folder:
        if folder is not None and (finished := folder.finished):
            folder.check_inputs(fingerprints_of(measurement, one, one, None, None), all_of_them=False)
            return finished
        places = [None if folder is None else folder.path / name for name in "ab"]
        sides = [
            run(kept, side, out=place, resume=place is not None and place.exists())
            for side, place in zip((one, two), places, strict=True)
        ]
        results = comparison_of_kept(*sides, tolerance=measurement.tolerance)
        results.config = config
        if folder is not None:
            # As those of a run that reads both at once.
            a, b = (read_json(folder.path / name / "inputs.json", expected="fingerprints") for name in "ab")
            folder.check_inputs({**a, "second model": b["model"]})
            folder.write_results(results)
        return results
