"""How much of the gain from long context do k well-chosen distant tokens recover?

Of a target token, `long` is its loss with all the context of its window, `short` that with the last `short` tokens
(and the first token of the window). The target gains if short - long is more than a threshold. With k distant tokens
kept besides the near ones, and the others removed (see `kept_context`),

    recovered = sum(short - loss with k kept) / sum(short - long)     over the targets that gain.

The experiment is that of figures 2 and 6 of "The Role of Sparsity for Length Generalization in LLMs" (ICML 2025).
Its rule for choosing tokens (Eq. 20) was not found; ours are in `kept_context`.

A choice that looks at the target's loss also lowers it where nothing is to be found. `greedy_foreign` makes the same
choice where the distant tokens are those of another window, and `recovered_net` is what greedy recovers beyond it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results
from lengthwise.settings import Count, Finite, Tokens, Whole
from lengthwise.text import Window, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import LoadedModel, Predictor, Reader

METHODS = {
    "greedy": "chosen one by one, each time the token that lowers the loss most",
    "leave_one_out": "chosen by how much the loss rises without them",
    "gradient": "chosen by gradient times embedding",
    "greedy_foreign": "chosen as greedy does, from the text of another window: what choosing alone is worth",
    "random": "drawn at random",
    "recent": "the last distant tokens",
    "copies": "the last distant tokens equal to the target",
}
ENOUGH = 0.8
"""The share of its gain that k tokens must recover to be enough for a target."""


class Influence(WindowMeasurement):
    """How many distant tokens does a prediction need?

    Of tokens that gain from long context: how much of the gain remains if only k well-chosen distant tokens are kept
    and the others are removed (masked in every layer, positions kept)? 1 is all of it.
    """

    about = About(
        kind="influence",
        task="influence",
        title="Influential tokens",
        metrics={
            "gain": "loss_short - loss_long: what all distant tokens are worth to the targets",
            "gaining": "share of the examined tokens that gain more than the threshold: the targets",
            "loss_long": "loss of the targets with all the context of the window",
            "loss_short": "their loss with the near tokens alone",
            "jeffreys": "how much the predictions with all and with near context disagree, over all examined tokens",
            **{
                f"recovered_{name}": f"share of the gain that k distant tokens recover, {what}"
                for name, what in METHODS.items()
            },
            "recovered_net": "recovered_greedy - recovered_greedy_foreign",
            "enough": f"share of the targets whose k greedy tokens recover {ENOUGH:.0%} of the gain or more",
        },
        one_by_one=True,
    )

    length: Count = 256
    """Tokens of a window; targets are in its second half."""
    short: Count = 16
    """The near tokens, which are always kept."""
    kept: Annotated[tuple[Tokens, ...], MinLen(1)] = (1, 2, 4)
    """Distant tokens that are kept, k. As many as there are candidates leave no choice."""
    gain: Finite = 1.0
    """A token gains if long context lowers its loss by more than this."""
    windows: Count = 48
    """Windows."""
    examined: Count = 32
    """Tokens of a window that are examined for a gain, at random places."""
    targets: Annotated[Whole, Ge(0)] = 4
    """Targets of a window: at most so many of those that gain, at random. 0 examines tokens and chooses none."""
    candidates: Count = 8
    """Distant tokens that are tried one by one: those with the largest norm of gradient times embedding."""
    batch_size: Count = 16
    """Contexts at a time. More needs more memory; the numbers stay the same."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        half, most = self.length // 2, max(self.kept)
        if self.candidates < most:
            raise UsageError(f"candidates is {self.candidates}", expected=f"at least {most}, as `kept`")
        if half - self.short - 1 < self.candidates:
            raise UsageError(
                f"windows of {self.length} tokens leave {max(half - self.short - 1, 0)} distant tokens before the "
                f"first target (short {self.short}), for {self.candidates} candidates",
                fix="a greater length, or smaller short, kept and candidates",
            )
        if self.examined > self.length - half:
            raise UsageError(
                f"examined is {self.examined}", expected=f"at most {self.length - half}, half a window"
            )
        return self

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """The windows, each with one of another document, whose distant tokens are the control."""
        windows = self.sampled(text, self.length)
        near, most = self.short + 1, max(self.kept)
        greedy = sum((self.candidates - step) * (near + step + 1) for step in range(most))
        rest = (self.candidates + 2) * self.length + len(METHODS) * sum(near + k for k in self.kept)
        tokens = self.length + self.examined * near + self.targets * (2 * greedy + rest)
        return [
            self.item(
                f"L{self.length}/S{self.short}/w{index:04d}",
                window,
                self.length,
                tokens=tokens,
                content=(window, _foreign(windows, index)),
            )
            for index, window in enumerate(windows)
        ]

    def check_models(self, model: Predictor, other: Predictor, items: Sequence[Item]) -> None:
        """Refuse models in which no token can be removed exactly."""
        from lengthwise_studies.sparsity.kept_context import check_removal

        check_removal(cast("LoadedModel", model), self.length)

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The losses of examined tokens and of targets with few distant tokens."""
        from lengthwise_studies.sparsity.kept_context import examine

        model = cast("LoadedModel", model)
        for item in items:
            window, foreign = item.content
            ids = view(window.ids, 0, self.length, self.bos_id(model))
            rng = np.random.default_rng([self.seed, zlib.crc32(window.document_id.encode()), window.start])
            places = rng.permutation(np.arange(self.length // 2, self.length))[: self.examined]
            scores = examine(model, ids, places, short=self.short, batch_size=self.batch_size)
            targets = places[scores[1] - scores[0] > self.gain][: self.targets].tolist()
            yield {
                "examined": [list(row) for row in zip(places.tolist(), *scores.tolist(), strict=True)],
                "targets": self._kept(model, ids, foreign, targets, rng),
            }

    def _kept(
        self,
        model: LoadedModel,
        ids: NDArray[np.int64],
        foreign: NDArray[np.int32] | None,
        targets: list[int],
        rng: np.random.Generator,
    ) -> list[Record]:
        """For each target, the tokens that every choice and control keeps, and its loss with the first k of them."""
        from lengthwise_studies.sparsity import kept_context as contexts

        sizes, windows = sorted(set(self.kept)), [ids] * len(targets)
        most = sizes[-1]
        losses = partial(contexts.losses_keeping, model, short=self.short, batch_size=self.batch_size)
        ranked = partial(contexts.by_gradient, model, short=self.short, most=self.candidates)

        def judge(windows: list[NDArray[np.int64]], kept: dict[str, list[list[int]]]) -> None:
            sets = [[some[i][:k] for some in kept.values() for k in sizes] for i in range(len(targets))]
            for record, found in zip(records, losses(windows, targets, sets), strict=True):
                record["losses"] |= zip(kept, found.reshape(len(kept), -1).tolist(), strict=True)

        tried, choosing = ranked(windows, targets), partial(losses, windows, targets)
        distant = [contexts.distant_positions(target, self.short) for target in targets]
        # The distant tokens equal to the target, the last first; fewer where the context has fewer.
        copies = [some[ids[some] == ids[target]][::-1] for some, target in zip(distant, targets, strict=True)]
        kept = {
            "greedy": contexts.greedy(choosing, tried, most),
            "leave_one_out": contexts.leave_one_out(choosing, distant, tried, most),
            "gradient": [some[:most] for some in tried],
            "random": [rng.permutation(some)[:most].tolist() for some in distant],
            "recent": [some[::-1][:most].tolist() for some in distant],
            "copies": [some[:most].tolist() for some in copies],
        }
        records: list[Record] = [
            {"position": target, "kept": {name: some[i] for name, some in kept.items()}, "losses": {}}
            for i, target in enumerate(targets)
        ]
        judge(windows, kept)
        if foreign is not None:
            others = [np.where(np.isin(np.arange(self.length), some), foreign, ids) for some in distant]
            control = contexts.greedy(partial(losses, others, targets), ranked(others, targets), most)
            judge(others, {"greedy_foreign": control})
        return records

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The gain, and for each k what the kept tokens recover. Without targets only `gaining` and `jeffreys`."""
        windows = [{"document": record["document"], "sums": self._sums(record)} for record in records]
        return [
            self.statistic(
                windows,
                lambda window, place=place: window["sums"][place][:2],
                metric=place[0],
                unit=place[1],
                kept=place[2],
                length=self.length,
                n=sum(window["sums"][place][2] for window in windows),
            )
            for place in (windows[0]["sums"] if windows else ())
            if all(place in window["sums"] for window in windows)
        ]

    def _sums(self, record: Record) -> dict[tuple[str, str, int | None], tuple[float, float, int]]:
        """(metric, unit, k) -> sum, count and `n` of one window."""
        _, long, short, jeffreys = np.array(record["examined"]).T

        def mean(values: NDArray[Any]) -> tuple[float, float, int]:
            return float(values.sum()), len(values), len(values)

        gaining, jeffreys = mean(short - long > self.gain), mean(jeffreys)
        if not self.targets:
            return {("gaining", "share", None): gaining, ("jeffreys", "nats", None): jeffreys}
        targets = record["targets"]
        examined = {place: both for place, *both, _ in record["examined"]}
        long, short = np.array([examined[each["position"]] for each in targets]).reshape(-1, 2).T
        gain = short - long
        found: dict[tuple[str, str, int | None], tuple[float, float, int]] = {
            ("gain", "nats", None): mean(gain),
            ("gaining", "share", None): gaining,
            ("loss_long", "nats", None): mean(long),
            ("loss_short", "nats", None): mean(short),
            ("jeffreys", "nats", None): jeffreys,
        }
        methods = [name for name in METHODS if all(name in each["losses"] for each in targets)]
        for column, k in enumerate(sorted(set(self.kept))):
            losses = {name: np.array([each["losses"][name][column] for each in targets]) for name in methods}
            losses["short"] = short
            # What the tokens of the second recover beyond those of the first, the loss with which is higher.
            pairs = {name: ("short", name) for name in methods}
            if "greedy_foreign" in methods:
                pairs["net"] = ("greedy_foreign", "greedy")
            for name, (more, less) in pairs.items():
                recovered = (losses[more] - losses[less]).sum()
                found[f"recovered_{name}", "share", k] = (float(recovered), float(gain.sum()), len(gain))
            found["enough", "share", k] = mean(short - losses["greedy"] >= ENOUGH * gain)
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement; what removing means, and what choosing does."""
        removed = (
            "A removed token is masked for every query in every layer, so a kept one is read with kept ones alone; "
            "the first token of a window is always kept."
        )
        chosen = (
            "The measured model chose the tokens by the loss that is reported, which flatters the choice; "
            "recovered_greedy_foreign says by how much, recovered_net is without it."
        )
        notes = [*super().notes(model, other, items, results), removed, chosen]
        if self.targets and not any(record["targets"] for record in results.records.values()):
            notes.append(
                f"None of the examined tokens gains more than {self.gain:g} nats from up to {self.length} tokens of "
                f"context over the last {self.short}: nothing is said of what gains need."
            )
        return notes


def _foreign(windows: Sequence[Window], index: int) -> NDArray[Any] | None:
    """The ids of the next window of another document, else of the next one; None if there is one window only."""
    others = [*windows[index + 1 :], *windows[:index]]
    own = windows[index].document_id
    return next((one.ids for one in [*(o for o in others if o.document_id != own), *others]), None)
