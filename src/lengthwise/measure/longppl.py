"""LongPPL: perplexity on the tokens that need far context (Fang et al., arXiv 2410.23771, ICLR 2025).

LongPPL of a model is exp(its mean loss on the key tokens, each with all context). An evaluator finds these. It reads
a text once with all context and once in windows of `short` + `stride` tokens that advance by `stride`, of which the
last `stride` count: each of them has `short` to `short` + `stride` - 1 tokens before it. A token is a key token if

    loss_short - loss_full > alpha   and   loss_full < -beta

The first window's context is all that there is, so it has no key tokens, and it is not read.

Key tokens go from the evaluator's tokenizer to the model's by their characters: neighbouring ones are joined, and a
token of the model is key if it lies wholly inside. The number of a corpus divides once: sum of losses over all key
tokens by their number.

The samples of a run hold the key tokens' characters: another model can be measured on them without the evaluator.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from cyclopts import Parameter
from numpy.typing import NDArray
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.files import named_path
from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement, in_groups
from lengthwise.measure.statistics import Estimator, Statistic, ratio
from lengthwise.results import Results, Row
from lengthwise.run_files import read_run
from lengthwise.samples import of_this_version
from lengthwise.settings import PYTHON_ONLY, Count, Finite
from lengthwise.subjects.reading import Predictor, Reader, Reading, Want
from lengthwise.text import view
from lengthwise.text.spans import joined, tokens_within
from lengthwise.text.tokens import known_ids

if TYPE_CHECKING:
    from lengthwise.text import Corpus, TokenDocuments


def _exponential(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(ratio(totals))


# Metric, unit, the names of its sum and count in a record, estimator.
_METRICS: tuple[tuple[str, str, str, str, Estimator], ...] = (
    ("longppl", "ratio", "key_loss", "key_tokens", _exponential),
    ("loss_key", "nats", "key_loss", "key_tokens", ratio),
    ("perplexity", "ratio", "loss", "tokens", _exponential),
    ("loss", "nats", "loss", "tokens", ratio),
    ("key_share", "share", "key_tokens", "tokens", ratio),
    ("jeffreys", "nats", "jeffreys", "compared", ratio),
)

# Settings that a run on the key tokens of another must share with it.
_SHARED = ("max_length", "short", "stride", "windows", "seed")
_LEVELS = ("alpha", "beta")
"""Those of them that no option sets."""


class LongPpl(WindowMeasurement):
    """How well are the tokens predicted that need far context?

    LongPPL: an evaluator reads each text with all context and with a short one. The tokens that gain more than 2
    nats and are then likely are the key tokens; LongPPL is the model's perplexity on them. Only numbers with one
    evaluator on one text compare.
    """

    about = About(
        kind="longppl",
        task="longppl",
        title="Perplexity on tokens that need far context",
        metrics={
            "longppl": "exp(loss_key)",
            "loss_key": "cross entropy of the key tokens: those that far context makes likely for the evaluator",
            "perplexity": "exp(loss) of all tokens of the same texts",
            "loss": "cross entropy of all tokens",
            "key_share": "share of the model's tokens that are key",
            "jeffreys": "how much the predictions with all context and with the short one disagree",
        },
        examples=(
            "lengthwise longppl smollm2-135m --max-length 4096 --short 1024",
            "lengthwise longppl ./my-model --evaluator meta-llama/Llama-3.1-8B --out runs/longppl",
            "lengthwise longppl ./other-model --key-tokens runs/longppl --out runs/other",
        ),
        reads="characters",
        second="evaluator",
        no_facts=("key_tokens",),
        one_by_one=True,
    )
    evaluator: Annotated[str | None, Parameter(metavar="MODEL")] = None
    """The model that finds the key tokens; its tokenizer may differ. Default: the measured model."""
    key_tokens: Annotated[str | None, Parameter(metavar="RUN")] = None
    """Instead of an evaluator: the key tokens of an earlier run with the same text and settings."""
    max_length: Annotated[Count, Parameter(metavar="TOKENS")] = 8192
    """Tokens of each text (the evaluator's)."""
    short: Annotated[Count, Parameter(metavar="TOKENS")] = 4096
    """The short context, K."""
    stride: Annotated[Count | None, Parameter(metavar="TOKENS")] = None
    """Tokens by which the short windows advance: a short context is K to K + stride - 1 tokens. Default: K / 4."""
    windows: Count = 8
    """Windows of text, each of max_length tokens."""
    alpha: Annotated[Finite, Ge(0), PYTHON_ONLY] = 2.0
    """Nats by which all context must lower the loss of a key token."""
    beta: Annotated[Finite, PYTHON_ONLY] = -2.0
    """A key token's loss with all context is less than minus this."""

    @property
    def advance(self) -> int:
        """The stride; by default a quarter of the short context, as the paper's 1024 of 4096."""
        return max(1, self.short // 4) if self.stride is None else self.stride

    @model_validator(mode="after")
    def _check(self) -> Self:
        longest = self.short + self.advance
        if self.max_length <= longest:
            raise UsageError(
                f"texts of {self.max_length} tokens have none whose short context, up to {longest} tokens "
                f"(short {self.short} + stride {self.advance}), leaves anything out",
                expected=f"more than {longest} tokens",
                fix="give a greater --max-length, or a smaller --short and --stride",
            )
        if self.key_tokens is not None and self.evaluator is not None:
            raise UsageError("both --evaluator and --key-tokens are given", fix="leave out one of them")
        return self

    def facts(self, model: Reader, other: Reader) -> dict[str, Any]:
        """The evaluator, or that of the earlier run."""
        of_the_evaluator = {
            "evaluator": other.name,
            "evaluator_bos_id": self.bos_id(other),
            "evaluator_trained": other.trained_length,
        }
        if self.key_tokens is not None:
            earlier = self._earlier().provenance["measurement"]
            of_the_evaluator = {name: earlier[name] for name in of_the_evaluator}
        return super().facts(model, other) | of_the_evaluator | {"stride": self.advance}

    def items(self, model: Reader, text: tuple[Corpus, TokenDocuments], other: Reader) -> list[Item]:
        """The texts: windows of the evaluator's tokens, or those of the earlier run; by their characters."""
        whole, tokens = text[0].documents, text[1]
        places: list[tuple[str, int, int, Record | None]] = []
        if self.key_tokens is not None:
            if other is not model:
                raise UsageError("both an evaluator and key_tokens are given", fix="leave out one of them")
            records = self._earlier().records.values()
            places = [(found["document"], found["start"], found["end"], found) for found in records]
        else:
            for window in self.sampled(tokens, self.max_length):
                name = window.document_id
                _, offsets = _encode(other, whole[name])
                begin, end = offsets[window.start, 0], offsets[window.start + self.max_length - 1, 1]
                places.append((name, int(begin), int(end), None))
        # The first short window is the beginning, which is read with all context.
        windows = -(-(self.max_length - self.short) // self.advance) - 1
        finding = self.max_length + windows * (self.short + self.advance)
        items = []
        for index, (name, begin, end, found) in enumerate(places):
            content = whole.get(name, "")[begin:end]
            crc = zlib.crc32(content.encode())
            if found is not None and crc != found["crc"]:
                raise UsageError(
                    f"characters {begin} to {end} of {name!r} are not the text that the key tokens were found in",
                    expected="the text of the earlier run",
                )
            to_read = (
                self.max_length if found is not None else finding + (0 if model is other else self.max_length)
            )
            items.append(
                Item(
                    key=f"longppl/L{self.max_length}/K{self.short}/t{index:04d}",
                    facts={"document": name, "start": begin, "end": end, "crc": crc},
                    content=(content, found),
                    tokens=to_read,
                    longest=self.max_length,
                    stretch=self.max_length,
                    words=f"characters {begin} to {end - 1} of {name!r}",
                )
            )
        return items

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The summed losses of the key tokens and of all."""
        from lengthwise.subjects import naming_bad_logits

        for item in items:
            text, found = item.content
            ids, offsets = _encode(model, text)
            losses, jeffreys = None, None
            if found is None:
                with naming_bad_logits(other, item.words or item.key):
                    found, own = self.find_key_tokens(other, text)
                if other is model:
                    losses, jeffreys = own, found["jeffreys"]
            if losses is None:
                model.check_ready(len(ids))
                tokens = view(ids, 0, len(ids) - 1, self.bos_id(model))
                [read] = model.read([Reading(tokens=tokens, labels=ids[1:])])
                losses = read.losses.numpy()
            key = tokens_within(offsets, found["spans"])
            yield {
                "key_tokens": len(key),
                "key_loss": float(losses[key - 1].sum()),
                "tokens": len(losses),
                "loss": float(losses.sum()),
                "spans": found["spans"],
                "compared": found["compared"],
                "jeffreys": jeffreys,
            }

    def find_key_tokens(self, evaluator: Predictor, text: str) -> tuple[Record, NDArray[np.float64]]:
        """The key tokens of a text of any length, of which the evaluator reads `batch_size` short windows at a time.

        Returns:
            `spans`, characters of the key tokens, neighbours joined; `compared`, how many tokens were read with two
            contexts; `jeffreys`, the disagreement of their two predictions, summed (nats; None from an endpoint). And
            the evaluator's losses with all context, one for each of its tokens but the first.
        """
        from lengthwise.measure.distributions import in_step, jeffreys, losses_of

        short, stride, bos_id = self.short, self.advance, self.bos_id(evaluator)
        ids, offsets = _encode(evaluator, text)
        starts = range(stride, max(stride, len(ids) - short), stride)
        want = Want.ROWS if Want.ROWS in evaluator.gives else Want.LOSS
        reading = Reading(tokens=view(ids, 0, len(ids) - 1, bos_id), labels=ids[1:], want=want)
        [whole] = evaluator.read([reading])
        # Tokens up to the end of the first short window have one context only. Token t has loss t - 1.
        early = losses_of(whole, ids[1 : short + stride]).numpy()
        compared = [np.empty((0, 3 if whole.rows else 2))]
        for group in in_groups(starts, self.batch_size):
            labels = [ids[start + short : start + short + stride] for start in group]
            readings = [
                Reading(tokens=view(ids, start, short + len(own) - 1, bos_id), labels=own, want=want)
                for start, own in zip(group, labels, strict=True)
            ]
            for start, own, cut in zip(group, labels, evaluator.read(readings), strict=True):
                at = start + short - 1
                if whole.rows is None or cut.rows is None:
                    compared.append(np.stack([whole.losses[at : at + len(own)], cut.losses], axis=1))
                else:
                    rows = in_step(whole.rows, cut.rows, own, jeffreys, first=at, other=short - 1)
                    compared.append(rows.numpy())
        loss, loss_short, *apart = np.concatenate(compared).T
        key = np.flatnonzero((loss_short - loss > self.alpha) & (loss < -self.beta)) + short + stride
        found = {"spans": joined(offsets[key]), "compared": len(loss)}
        return found | {"jeffreys": float(apart[0].sum()) if apart else None}, np.concatenate([early, loss])

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of all texts; `jeffreys` only where the model is its own evaluator, from the same passes."""
        return [
            self.statistic(
                records,
                lambda record, names=(value, count): [record[name] for name in names],
                estimator=estimator,
                metric=metric,
                unit=unit,
                length=self.max_length,
                n=sum(record[count] for record in records),
            )
            for metric, unit, value, count, estimator in (_METRICS if records else ())
            if all(record[value] is not None for record in records)
        ]

    def rows(self, statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
        """The numbers; the share of key tokens has no interval: few documents do not show how rare they are."""
        return [
            replace(row, stderr=None, ci_low=None, ci_high=None) if row.metric == "key_share" else row
            for row in super().rows(statistics, records)
        ]

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """As every measurement; and what the key tokens are worth."""
        records = results.records.values()
        notes = super().notes(model, other, items, results)
        trained = results.provenance["measurement"]["evaluator_trained"]
        if trained is not None and trained < self.max_length:
            notes.append(
                f"The evaluator was trained for {trained} tokens, so its key tokens in texts of "
                f"{self.max_length:,} tokens do not show what needs far context."
            )
        if records and not any(record["key_tokens"] for record in records):
            notes.append("LongPPL is not defined: no token of these texts needs far context.")
        if any(record["jeffreys"] is not None for record in records):
            notes.append(
                "The model found the key tokens itself; compare LongPPL only between runs of one evaluator."
            )
        return notes

    def _earlier(self) -> Results:
        """The run that the key tokens come from, which must be of the texts and settings of this one."""
        earlier = read_run(named_path(str(self.key_tokens), what="--key-tokens"))
        if earlier.kind != self.about.kind:
            raise UsageError(f"{self.key_tokens} is a run of {earlier.kind!r}", expected="a run of 'longppl'")
        own = {**dict(self), "stride": self.advance}
        with of_this_version(f"the settings of {self.key_tokens}"):
            settings = earlier.provenance["measurement"]
            other = [name for name in (*_SHARED, *_LEVELS) if settings[name] != own[name]]
        if other:
            raise UsageError(
                f"the key tokens in {self.key_tokens} were found with another {', '.join(other)}",
                expected=f"the settings of that run, with alpha {settings['alpha']} and beta {settings['beta']}",
                fix=" ".join(f"--{name.replace('_', '-')} {settings[name]}" for name in _SHARED),
            )
        return earlier


def _encode(model: Reader, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids [T] and the characters of each token [T, 2], without special tokens; UsageError for a slow tokenizer."""
    if not model.tokenizer.is_fast:
        raise UsageError(
            f"the tokenizer of {model.name} does not say which characters its tokens are",
            expected="a fast tokenizer (tokenizer.json)",
        )
    found = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = np.asarray(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    return np.asarray(known_ids(model.tokenizer, found["input_ids"]), dtype=np.int64), offsets
