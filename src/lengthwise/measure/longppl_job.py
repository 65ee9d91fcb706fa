"""`lengthwise longppl` as a job: two models, and a text that each reads in its own tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import UsageError
from lengthwise.measure.folders import read_measurement
from lengthwise.measure.job import Job, Part
from lengthwise.measure.key_tokens import SHORT, stride_of
from lengthwise.measure.longppl import LongPplSettings, check_longppl, measure_longppl, measure_on_key_tokens
from lengthwise.models import load

if TYPE_CHECKING:
    from lengthwise.measure.measurement import Measurement
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog
    from lengthwise.text import Corpus, TokenDocuments


@dataclass(frozen=True, kw_only=True)
class LongPplJob(Job):
    """`lengthwise.measure.measure_longppl` of a model by name on a text by name."""

    kind = "longppl"

    evaluator: str | None = None
    """The model that finds the key tokens; None lets the measured one do it."""
    key_tokens: str | None = None
    """Folder of an earlier run: the key tokens that its evaluator found are taken, and no evaluator is loaded."""
    length: int = 2 * SHORT
    """Evaluator's tokens in a text."""
    short: int = SHORT
    stride: int | None = None
    """By how much the short windows advance; None is a quarter of `short`."""
    texts: int = 8

    def __post_init__(self) -> None:
        self._check()
        check_longppl(length=self.length, texts=self.texts, short=self.short, stride=self.stride)
        if self.key_tokens is not None and self.evaluator is not None:
            raise UsageError(
                "an evaluator and the key tokens of an earlier run are given",
                fix="leave out --evaluator; or --key-tokens, to find them anew",
            )

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
        if self.key_tokens is not None:
            earlier = self._earlier()
            settings = LongPplSettings(**earlier.settings)
            return measure_on_key_tokens(model, corpus, earlier.samples, settings, bos=self.bos, log=log)
        same = self.evaluator is None or (self.evaluator == self.model and self.adapter is None)
        evaluator = None if same else load(str(self.evaluator), dtype=self.dtype, device=self.device)
        return measure_longppl(
            model,
            corpus,
            evaluator=evaluator,
            length=self.length,
            texts=self.texts,
            short=self.short,
            stride=self.stride,
            bos=self.bos,
            seed=self.seed,
            batch_size=self.batch_size,
            log=log,
        )

    def _earlier(self) -> Measurement:
        """The run that the key tokens come from, which must be of the texts that this one asks for."""
        kind, earlier = read_measurement(Path(str(self.key_tokens)))
        if kind != "longppl":
            raise UsageError(f"{self.key_tokens} is a run of {kind!r}", expected="a run of 'longppl'")
        wanted = {
            "--max-length": ("length", self.length),
            "--short": ("short", self.short),
            "--stride": ("stride", stride_of(self.short, self.stride)),
            "--limit": ("texts", self.texts),
            "--seed": ("seed", self.seed),
        }
        found = {option: earlier.settings[name] for option, (name, _) in wanted.items()}
        other = [option for option, (_, value) in wanted.items() if found[option] != value]
        if other:
            raise UsageError(
                f"the key tokens in {self.key_tokens} were found with other settings ({', '.join(other)})",
                expected="the settings of that run",
                fix=" ".join(f"{option} {value}" for option, value in found.items()),
            )
        return earlier

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""
        stride = stride_of(self.short, self.stride)
        # The first short window is the beginning that was read already.
        windows = -(-(self.length - self.short) // stride) - 1
        finding = self.length + windows * (self.short + stride)
        tokens = self.length if self.key_tokens else finding + self.length * (self.evaluator is not None)
        return [Part("texts", self.texts, self.length, tokens, self.length)]
