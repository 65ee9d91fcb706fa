"""Two configurations of a model compared: on the same tokens, by position, in all, and in the use of far context.

For a token t with context x, with sides A and B,

    d = log p_B(t | x) - log p_A(t | x)      (nats)

`difference` is the mean of |d|, `shift` the mean of -d: how much higher the loss of B is. `kl` is KL(p_A || p_B) of
the whole distributions. The windows end with repeated passages (`repeated_windows`): their `benefit` on each side
says whether what is far back is still used, which a compressed cache loses first.

Rounding gives differences too. So `tolerance`, up to which a bin of positions counts as equal, comes from the run:
the greater of what the dtypes usually give and two floors (but at most twice the usual): side A
against itself, where it reads only the first quarter of a window, so that its kernels work in other shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from lengthwise.errors import UsageError
from lengthwise.files import runs_elsewhere
from lengthwise.measure.comparison import holm
from lengthwise.measure.measurement import Display, Item, Record, grouped
from lengthwise.measure.pair_records import benefit_totals, equal_up_to, floor_of, pair_record, summed
from lengthwise.measure.repeated_windows import Layout, RepeatedWindows
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Positive, Subject, checked

if TYPE_CHECKING:
    from lengthwise.models import Predictor, Reader

USUAL = {"float64": 1e-4, "float32": 1e-4, "float16": 0.02, "bfloat16": 0.05}
"""The `difference` that rounding gives, by the less exact dtype: sound pairs lie below."""
USUAL_ELSEWHERE = 0.08
"""The same where one side is computed by other software, in a dtype that is not known here."""
FLOORS = 2.0
"""The tolerance in floors."""
SIDE = (
    *("adapter", "dtype", "quantize", "attn", "kv_cache", "cache", "read"),
    *("served_model", "tokenizer", "rope_scaling", "n_ctx"),
)
_CURVES = ("difference", "shift", "kl")
_PARTS = {"loss_a": ("loss",), "loss_b": ("loss", "shift")}
"""What is summed for a metric that is no column of the records."""


class Difference(RepeatedWindows):
    """Do two configurations of a model predict alike, at every position, and use far context alike?

    Reads the same tokens with both and compares the predictions: by position, and in the benefit of passages that
    come again. --a and --b change one side: adapter, dtype, quantize, attn, kv_cache, cache, read (prefill, chunks=N
    or decode=N), served_model, tokenizer; of llama.cpp also rope_scaling, n_ctx. --fail-above checks the mean
    absolute difference (nats per token) of every length and bin of positions, --fail-use the share of a benefit that
    B has lost.
    """

    kind = "difference"
    display = Display(
        title="Two configurations of a model",
        metrics={
            "equal_up_to": "tokens of context up to which the difference stays within the tolerance",
            "difference": "mean |log p B - log p A| of the same tokens",
            "tolerance": "the difference up to which a bin of positions counts as equal",
            "floor": "the difference of A from itself, where it reads the first quarter of a window alone",
            "cached_from": "tokens of the first pass: only from there on a cache is read",
            "shift": "loss of B - loss of A: above 0 B predicts worse",
            "kl": "KL(A || B) of the next-token distributions",
            "same_top": "share of positions with the same most likely token",
            "largest": "the largest difference of one token",
            "prefix_cache": "mean |log p| of B's decode path with the server's prefix cache - without it",
            "loss_a": "cross entropy of the next token, A",
            "loss_b": "cross entropy of the next token, B",
            "benefit_a": "what a repeated passage is worth to A, by its distance",
            "benefit_b": "the same to B",
            "benefit_change": "benefit of B - benefit of A",
            "benefit_kept": "benefit of B / benefit of A",
        },
    )
    fail_above = "difference"
    beside_the_numbers = (*RepeatedWindows.beside_the_numbers, "side_b")
    levels = ("tolerance", "floor", "cached_from")

    side_b: Annotated[dict[str, Any], PYTHON_ONLY] = Field(default={})
    """The second side: fields of `Subject`, its `model` among them."""
    tolerance: Positive | None = None
    """Mean absolute difference, in nats per token, that counts as equal. Default: from dtypes and rounding."""

    def second_subject(self, run: Subject) -> Subject | None:
        """The second side: what `side_b` says, on the text of the first."""
        if not self.side_b:
            return None
        given = {"text": run.text, "split": run.split, **self.side_b}
        return checked(Subject, given, source="the second side")

    def check_subject(self, run: Subject) -> Subject:
        """The first side; UsageError if both are the same in everything."""
        if self.second_subject(run) == run:
            raise UsageError(
                "both sides are the same in everything",
                expected="another model, or a setting of one side, as in --b dtype=float32",
            )
        return run

    def open_other(self, model: Predictor, run: Subject | None) -> Predictor:
        """The second side; an endpoint and llama.cpp take the first side's tokenizer unless they name one."""
        from lengthwise.models import open_model

        subject = self.second_subject(run or Subject(model=model.name))
        if subject is None:
            return model
        of_first = subject.tokenizer is None and runs_elsewhere(subject.model)
        return open_model(subject, tokenizer=model.tokenizer if of_first else None)

    def name_of(self, run: Subject) -> str:
        """Both sides, each with what the other lacks."""
        if not self.side_b:
            return run.model
        sides = [run.model_dump(), {**run.model_dump(exclude=set(SIDE)), **self.side_b}]
        names = []
        for side, other in (sides, sides[::-1]):
            shown = [key for key in SIDE if side.get(key) not in (other.get(key), None, "auto")]
            own = ", ".join(f"{key}={side[key]}" for key in shown)
            names.append(f"{side['model']} ({own})" if own else side["model"])
        return " against ".join(names)

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of the differences by position, and the losses of the repeated passages."""
        from lengthwise.measure.predictions import predictions, self_difference
        from lengthwise.models import LoadedModel

        layout, windows, views = self.read_as(model, items)
        one, two = (predictions(each, windows, views, layout.first) for each in (model, other))
        usual = max(map(usual_difference, (model, other)))
        for index, item in enumerate(items):
            pair = slice(2 * index, 2 * index + 2)
            record = pair_record(layout, windows[pair], one[pair], two[pair])
            if item.key.endswith("w0000") and isinstance(model, LoadedModel) and model.path.in_one_pass:
                record["floor"] = self_difference(model, windows[pair], views[pair], one[pair])
            yield {**record, "usual": usual}

    def plan(self, items: Sequence[Item]) -> dict[str, Any]:
        """As every measurement; both sides read every token. `decode_passes`: of each side that decodes."""
        found = super().plan(items)
        decoded = {"decode_passes": 2 * self.decode * len(items)} if self.decode else {}
        return {**found, "tokens_to_run": 2 * found["tokens_to_run"], **decoded}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length that have intervals; the differences also by position, benefits by distance."""
        found: list[Statistic] = []
        tolerance = self.tolerated(records)
        for length, some in grouped(records, "length"):
            layout = Layout(length, self.decode)
            whole = partial(self.statistic, some, length=length, n=sum(record["targets"] for record in some))
            if not self.decode:
                first_unequal = partial(equal_up_to, edges=layout.edges, tolerance=tolerance)
                by_bin = lambda record: [*record["difference"], 2]  # noqa: E731
                found.append(whole(by_bin, first_unequal, metric="equal_up_to", unit="tokens"))
            for metric in ("difference", "shift", "kl", "same_top", "loss_a", "loss_b", "prefix_cache"):
                parts = _PARTS.get(metric, (metric,))
                if parts[0] in some[0]:
                    unit: dict[str, Any] = {"unit": "share"} if metric == "same_top" else {}
                    found.append(whole(partial(summed, parts=parts), metric=metric, **unit))
            for metric in _CURVES:
                if metric in some[0]:
                    by_half = [{**r, metric: [each / 2 for each in r[metric]]} for r in some]
                    found += self.curve(by_half, metric, layout.edges, metric=metric, length=length)
            for index, distance in enumerate(layout.distances):
                count = sum(record["benefit"][index][-1] for record in some)
                totals = [{"document": r["document"], **benefit_totals(r, index)} for r in some]
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
            largest, targets = max(abs(r["largest"][0]) for r in some), sum(r["targets"] for r in some)
            about = {"metric": "largest", "length": length, "n": targets}
            found.append(Row(model="", task=self.task, value=largest, **about))
        row = Row(model="", task=self.task, metric="tolerance", value=self.tolerated(records))
        floor = floor_of(records)
        floors = [] if floor is None else [replace(row, metric="floor", value=floor)]
        cached = replace(row, metric="cached_from", value=self.cached_from, unit="tokens")
        return [*found, row, *floors, *[cached] * (self.cached_from > 0)]

    def tolerated(self, records: Sequence[Record]) -> float:
        """The tolerance: what the user says, or the greater of the usual one and `FLOORS` floors."""
        if self.tolerance is not None:
            return self.tolerance
        usual = max((record["usual"] for record in records), default=USUAL_ELSEWHERE)
        return max(usual, FLOORS * min(usual, floor_of(records) or 0.0))

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement; where the largest difference is, and what is bounded."""
        found = super().notes(model, other, items, results)
        if not results.records:
            return found
        key, record = max(results.records.items(), key=lambda each: abs(each[1]["largest"][0]))
        value, half, row = record["largest"]
        window = next(item for item in items if item.key == key).content[half]
        before, token = map(model.tokenizer.decode, np.split(window[max(0, row - 11) : row + 2], [-1]))
        found.append(
            f"The largest difference: log p of {token!r} is {abs(value):.3g} nats "
            f"{'lower' if value > 0 else 'higher'} in B, at token {row + 1} of the {('first', 'second')[half]} "
            f"window from token {record['start']} of {record['document']!r}, after {before!r}."
        )
        bound = "kl is a lower bound, from the likeliest tokens of each side alone."
        return [*found, bound] if record["bounded"] else found


def usual_difference(side: Predictor) -> float:
    """The `difference` that the rounding of a side usually gives."""
    model = getattr(side, "model", None)
    return USUAL.get(str(getattr(model, "dtype", "")).removeprefix("torch."), USUAL_ELSEWHERE)
