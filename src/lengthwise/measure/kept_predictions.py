"""The predictions of one side, kept: compared later, with another side that this machine or environment cannot load.

The log holds, of every token, the log-probability and the likeliest tokens: 520 bytes, a third more as text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.comparison import check_same_items
from lengthwise.measure.difference import Difference, difference_notes
from lengthwise.measure.measurement import FEW, About, Item, Record, grouped
from lengthwise.measure.pair_records import pair_record, pieces_of
from lengthwise.measure.repeated_windows import Layout, RepeatedWindows
from lengthwise.measure.runner import run
from lengthwise.measure.second import check_second
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results
from lengthwise.runs import RunFolder
from lengthwise.settings import Subject
from lengthwise.subjects.path import reading_path

if TYPE_CHECKING:
    from lengthwise.subjects import Predictor


class KeptPredictions(RepeatedWindows):
    """Keep the predictions of one configuration of a model, to compare them with another one later."""

    about = About(
        kind="predictions",
        task="kept_predictions",
        title="Predictions of one side",
        metrics={"loss": "cross entropy of the next token"},
        reads="either",
        no_facts=("cached_from",),
        along_paths=True,
    )

    def describe(self, items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
        """From where on the side reads a cache, which may differ between sides."""
        return {"cached_from": self.cached_from}

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The losses and the likeliest tokens of both windows of each pair, and what else is known of the side."""
        import torch

        from lengthwise.measure.predictions import kept, predictions
        from lengthwise.measure.sides import side_of

        layout, windows = self.windows_of(items)
        views = self.views_of(model, windows)
        predicted = predictions(model, windows, views, layout.first)
        for index, item in enumerate(items):
            pair = slice(2 * index, 2 * index + 2)
            halves = zip(predicted[pair], windows[pair], strict=True)
            yield {
                "halves": [kept(one, torch.from_numpy(window[1:]), layout.first) for one, window in halves],
                "pieces": [pieces_of(model.tokenizer, window) for window in windows[pair]],
                "side": side_of(
                    model,
                    self.bos_id(model),
                    windows[pair],
                    views[pair],
                    predicted[pair],
                    layout,
                    None,
                    item.key.endswith("w0000"),
                ),
                "targets": 2 * (layout.length - layout.first),
            }

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The loss of each length."""
        from lengthwise.measure.predictions import read_kept

        def totals(record: Record) -> list[float]:
            losses = [read_kept(half).values.sum().item() for half in record["halves"]]
            return [sum(losses), record["targets"]]

        return [
            self.statistic(some, totals, metric="loss", length=length, n=sum(r["targets"] for r in some))
            for length, some in grouped(records, "length")
        ]


def difference_of_kept(a: Results, b: Results, *, tolerance: float | None = None) -> Results:
    """The results of `Difference`, from the kept predictions of both sides.

    Raises:
        UsageError: the sides are not of the same tokens, or with other settings.
    """
    from lengthwise.measure.predictions import read_kept
    from lengthwise.measure.sides import between

    check_same_items(a, b)
    settings = a.provenance["measurement"]
    given = {name: settings[name] for name in ("lengths", "windows", "decode")}
    cached_from = max(side.provenance["cached_from"] for side in (a, b))
    measurement = Difference(**given, cached_from=cached_from, tolerance=tolerance)
    records = {}
    for key, one in a.records.items():
        layout, two = Layout(one["length"], measurement.decode), b.records[key]
        sides = [[read_kept(half) for half in side["halves"]] for side in (one, two)]
        # The kept losses are of the right labels already.
        labels = np.zeros((2, layout.length + 1), dtype=np.int64)
        records[key] = {name: one[name] for name in ("document", "start", "crc", "length")}
        records[key] |= pair_record(layout, labels, *sides, cached_from=cached_from)
        _, half, row = records[key]["largest"]
        pieces = one["pieces"][half][max(0, row - 11) : row + 2]
        records[key] |= {**between(one["side"], two["side"]), "said": ["".join(pieces[:-1]), pieces[-1]]}
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
    return [begins, *few, *difference_notes(records), *ends]


def _lengths_of_both(measurement: Difference, one: Subject, two: Subject) -> tuple[int, ...] | None:
    """The lengths that both sides have positions for; None while a side is not converted yet, and decides alone."""
    from lengthwise.subjects.plan import outline, unknown_cost_of

    if measurement.lengths is not None or unknown_cost_of((one, two)) is not None:
        return measurement.lengths
    return measurement.resolved(outline(one), outline(two)).lengths


def run_in_turn(measurement: Difference, one: Subject, two: Subject, **where: Any) -> Results:
    """Compare two sides of which one is loaded at a time; their predictions go to `a` and `b` in the run folder.

    `where` is `out`, `resume` and `overwrite` of `run`.

    Raises:
        UsageError, MissingError, Interrupted: as `run`.
    """
    check_second(measurement, one)
    decode = max(measurement.decode, *(reading_path(side).decode for side in (one, two)))
    given = measurement.model_dump(include={"windows", "seed", "batch_size", "bos"})
    kept = KeptPredictions(**given, lengths=_lengths_of_both(measurement, one, two), decode=decode)
    config = one.model_dump(mode="json") | measurement.model_dump(mode="json")
    opened: Any = contextlib.nullcontext()
    if where.get("out") is not None:
        opened = RunFolder(where.pop("out"), kind=measurement.about.kind, config=config, **where)
    with opened as folder:
        if folder is not None and folder.finished:
            return folder.finished
        places = [None if folder is None else folder.path / name for name in "ab"]
        sides = [
            run(kept, side, out=place, resume=place is not None and place.exists())
            for side, place in zip((one, two), places, strict=True)
        ]
        results = difference_of_kept(*sides, tolerance=measurement.tolerance)
        results.config = config
        if folder is not None:
            folder.write_results(results)
        return results
