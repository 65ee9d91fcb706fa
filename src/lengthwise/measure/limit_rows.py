"""The numbers of `limit` from its records, and what a reader of them must know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lengthwise.measure.limit_headlines import (
    LEAST_BENEFIT,
    LEAST_DOCUMENTS,
    Headline,
    benefit_nearby,
    nearby_distances,
    nearby_interval,
    sound_estimate,
    sound_headline,
    used_estimate,
    used_headline,
    used_level,
)
from lengthwise.measure.measurement import Item, Record
from lengthwise.measure.statistics import Statistic, equal_bins
from lengthwise.results import Results, Row, percent

_SHOWN_BINS = 32


def limit_statistics(limit: Any, records: Sequence[Record]) -> list[Statistic]:
    """The two limits, their levels and their curves."""
    if not records:
        return []
    (length, reference, width), distances, (_, inside) = limit.sizes, limit.distances, limit.inside
    twice = [record for record in records if "different" in record]
    targets, compared = limit.scored, length - reference

    def number(some: Sequence[Record], metric: str, totals: Any, n: int | None, **row: Any) -> Statistic:
        return limit.statistic(some, totals, metric=metric, length=length, n=n, **row)

    def by_distance(record: Record) -> list[float]:
        return [*record["same"], *record["different"], targets]

    rows, each = len(records) * compared, len(twice) * targets
    found = [number(records, "sound_up_to", lambda r: [*r["excess"], 1], rows, unit="tokens")]
    head = sound_headline(limit, found[0].totals)
    found[0] = replace(found[0], estimator=partial(sound_estimate, limit, head=head))
    if twice:
        n = each * (len(distances) + len(inside))
        used = number(twice, "used_up_to", by_distance, n, unit="tokens")
        head = used_headline(limit, used.totals)
        found.append(replace(used, estimator=partial(used_estimate, limit, head=head)))
    found.append(number(records, "tolerance", lambda _: [limit.tolerance, 1], None))
    if twice:
        n = each * nearby_distances(limit)
        for metric, estimator in (("used_level", used_level), ("benefit_nearby", benefit_nearby)):
            found.append(number(twice, metric, by_distance, n, estimator=partial(estimator, limit)))
    found += [
        number(records, "recent_loss", lambda r: [sum(r["loss"]) - sum(r["excess"]), compared], rows),
        number(records, "unigram_loss", lambda r: [r["unigram"], 1], None),
    ]
    if records[0]["trained"]:
        found.append(number(records, "trained_length", lambda r: [r["trained"], 1], None, unit="tokens"))
    edges = equal_bins(0, compared // width, _SHOWN_BINS)
    positions = [reference + width * edge for edge in edges]
    for metric in ("excess", "loss"):
        shown = [{**record, metric: np.add.reduceat(record[metric], edges[:-1])} for record in records]
        found += limit.curve(shown, metric, positions, metric=metric, length=length)
    if twice:
        for index, distance in enumerate([*distances, *inside]):
            metric = "benefit" if index < len(distances) else "benefit_inside"
            sums = lambda r, i=index: [r["different"][i] - r["same"][i], targets]  # noqa: E731
            found.append(number(twice, metric, sums, each, distance=distance))
    return found


def limit_rows(
    limit: Any, rows: Sequence[Row], statistics: Sequence[Statistic], records: Sequence[Record]
) -> list[Row]:
    """The rows of the statistics: both limits, and their stretches, have a value only where documents support it."""
    values = {row.metric: row.value for row in rows if row.is_headline and row.distance is None}
    at_chance = is_at_chance(values)
    found: list[Row] = []
    for row, statistic in zip(rows, statistics, strict=True):
        if row.metric in ("tolerance", "trained_length", "sound_up_to", "used_up_to"):
            row = replace(row, stderr=None, ci_low=None, ci_high=None)
        if row.metric == "sound_up_to":
            head = sound_headline(limit, statistic.totals)
            ends = ends_with_table(limit, records[0]["table"])
            head = replace(head, value=None if at_chance else head.value, open=head.open and not ends)
            found += _of_headline(row, head, ("not_sound", "sound_again"))
        elif row.metric == "used_up_to":
            head = used_headline(limit, statistic.totals)
            found += _of_headline(row, head, ("not_used", "used_again"))
            if head.beginning is not None:
                found.append(replace(row, metric="beginning_up_to", value=head.beginning))
        elif row.metric == "benefit_nearby":
            # As the test that decides whether it counts.
            low, high = nearby_interval(limit, statistic.totals)
            found.append(replace(row, ci_low=low, ci_high=high))
        else:
            found.append(row)
    return found


def limit_notes(limit: Any, table: int | None, items: Sequence[Item], results: Results) -> list[str]:
    """What the two numbers mean, and where they are open; of a model with a table of so many positions."""
    numbers = {row.metric: row for row in results.rows if row.position is None and row.distance is None}
    if not numbers:
        return []
    (length, reference, _), distances, (inside_from, inside) = limit.sizes, limit.distances, limit.inside
    ends = ends_with_table(limit, table)
    found = [
        f"Sound: up to there the loss with all context is at most {limit.tolerance:g} nats above the loss with "
        f"the last {reference // 4 + 1} to {reference} tokens of it.",
        f"Used: up to there a repeated passage has a benefit of at least {percent(limit.share, None)} of that at "
        f"distances up to {max(reference, distances[0])} tokens, and of at least {LEAST_BENEFIT:g} nats"
        + (f"; from the window's beginning, and from its token {inside_from} on." if inside else "."),
        f"The intervals of these two numbers are from Student's t over documents; {LEAST_DOCUMENTS} are needed.",
    ]
    if ends and numbers["sound_up_to"].value == length:
        found.append(f"Sound to the end: the model's table of {table} positions.")
    for metric, end in (("sound_up_to", length), ("used_up_to", distances[-1])):
        row = numbers.get(metric)
        if row is not None and row.at_least:
            found.append(f"{metric}: no end was found up to {end} tokens; this is a lower bound.")
        elif row is not None and row.ci_high is not None and row.ci_high >= end and not ends:
            found.append(
                f"{metric}: the upper end of the interval is {end}, where measuring ended; it is open."
            )
    repetitive = sum(item.facts["repetitive"] for item in items)
    if repetitive:
        found.append(
            f"In {repetitive} of {len(items)} windows a passage occurs elsewhere too: a copy of it does not "
            "show how far back context is used. Such windows do not count for that."
        )
    return found


def _of_headline(row: Row, head: Headline, stretches: tuple[str, str]) -> list[Row]:
    if head.value is None:
        return [replace(row, value=None)]
    found = [replace(row, value=head.value, ci_low=head.low, ci_high=head.high, at_least=head.open or None)]
    for metric, stretch in zip(stretches, (head.gap, head.again), strict=True):
        if stretch is not None:
            begin, end = stretch
            found.append(replace(row, metric=metric, value=end, position=begin, position_end=end))
    return found


def is_at_chance(values: dict[str, float | None]) -> bool:
    """Whether predictions from recent tokens are no better than the frequencies of the window's own tokens."""
    recent, unigram = values.get("recent_loss"), values.get("unigram_loss")
    return recent is not None and unigram is not None and recent >= unigram


def ends_with_table(limit: Any, table: int | None) -> bool:
    """Whether the model can read no longer context, by its table of positions (to half the reference)."""
    length, reference, _ = limit.sizes
    return table is not None and length > table - reference // 2
