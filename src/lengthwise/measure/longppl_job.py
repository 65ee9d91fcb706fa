"""`lengthwise longppl` as a job: two models, and a text that each reads in its own tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.measure.job import Job, Part
from lengthwise.measure.longppl import SHORT, STRIDE, check_longppl, measure_longppl
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
    length: int = 2 * SHORT
    """Evaluator's tokens in a text."""
    short: int = SHORT
    stride: int = STRIDE
    texts: int = 8

    def __post_init__(self) -> None:
        self._check()
        check_longppl(length=self.length, texts=self.texts, short=self.short, stride=self.stride)

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
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

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""
        windows = -(-(self.length - self.short) // self.stride)
        tokens = self.length + windows * (self.short + self.stride)
        if self.evaluator is not None:
            tokens += self.length
        return [Part("texts", self.texts, self.length, tokens, self.length)]
