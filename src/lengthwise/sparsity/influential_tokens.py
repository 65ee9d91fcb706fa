"""How much of the gain from long context do k well-chosen distant tokens recover?

Of a target token, `long` is its loss with all the context of its window, `short` that with the last `short` tokens
(and the first token of the window, which models use as an attention sink). The target gains if short - long is more
than a threshold. With k distant tokens kept beside the near ones, and the others removed
(`lengthwise.sparsity.kept_context` says what that means),

    recovered = sum(short - loss with k kept) / sum(short - long)     over the targets that gain.

The experiment is that of figures 2 and 6 of "The Role of Sparsity for Length Generalization in LLMs" (ICML 2025).
Its rule for choosing tokens (Eq. 20) was not found; ours are in `lengthwise.sparsity.selection`.

A choice that looks at the target's loss also lowers it where nothing is to be found. `greedy_foreign` makes the same
choice where the distant tokens are those of another window, and `recovered_net` is what greedy recovers beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import model_validator

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import (
    Measurement,
    bos_note,
    collect,
    few_samples_note,
    unfinished,
    window_record,
    window_words,
)
from lengthwise.progress import progress
from lengthwise.samples import SampleLog
from lengthwise.sparsity.influence_rows import ENOUGH, METHODS, statistics_of
from lengthwise.spec import Count, Finite, Option, RunSpec, Samples, Spec, Tokens, Whole, ascending
from lengthwise.text import as_documents, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel, ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window

DISPLAY = Display(
    title="Influential tokens",
    question="How many distant tokens does a prediction need?",
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
    better={"recovered_greedy": "higher", "jeffreys": "lower"},
    figures=("lengthwise.report.influence:recovered_by_kept",),
    answer="lengthwise.report.influence:influence_answer",
    passages="lengthwise.report.influence:influential_passages",
)


class InfluenceSpec(Spec):
    """How many distant tokens does a prediction need?

    Of tokens that gain from long context: how much of the gain remains if only k well-chosen distant tokens are kept
    and the others are removed (masked in every layer, positions kept)? 1 is all of it. The page shows passages with
    the tokens that carried a prediction.
    """

    kind = "influence"
    examples = (
        "lengthwise influence smollm2-135m --dtype bfloat16 --out runs/influence",
        "lengthwise influence tiny-books --max-length 128 --short 16 --kept 1 --kept 4",
        "lengthwise influence ./my-model --selector ./its-sibling --text notes.txt",
    )
    not_of_the_run = ("served_model", "tokenizer")

    length: Annotated[Count, Option("--max-length", metavar="TOKENS")] = 256
    """Tokens of a window; targets are in its second half."""
    short: Annotated[Count, Option(metavar="TOKENS")] = 16
    """The near tokens, which are always kept."""
    kept: Annotated[tuple[Tokens, ...], MinLen(1), Option("--kept", metavar="TOKENS")] = (1, 2, 4)
    """Distant tokens that are kept, k; repeat it for several. As many as there are candidates leave no choice."""
    selector: Annotated[str | None, Option(metavar="MODEL")] = None
    """The model that chooses the tokens, with the same tokenizer. Default: the measured model."""
    gain: Annotated[Finite, Option(metavar="NATS")] = 1.0
    """A token gains if long context lowers its loss by more than this."""
    windows: Annotated[Count, Option("--limit")] = 48
    """Windows."""
    examined: Annotated[Count, Option(on="set")] = 32
    """Tokens of a window that are examined for a gain, at random places."""
    targets: Annotated[Whole, Ge(0), Option(on="set")] = 4
    """Targets of a window: at most so many of those that gain, at random. 0 examines tokens and chooses none."""
    candidates: Annotated[Count, Option(on="set")] = 8
    """Distant tokens that are tried one by one: those with the largest norm of gradient times embedding."""
    batch_size: Count = 16
    """Contexts at a time. More needs more memory; the numbers stay the same."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        fewest = self.length // 2 - self.short - 1
        if fewest < max(self.candidates, *self.kept):
            raise UsageError(
                f"windows of {self.length} tokens leave {max(fewest, 0)} distant tokens before the first target "
                f"(short {self.short}), for {max(self.kept)} kept ones and {self.candidates} candidates",
                fix="give a greater --max-length, or a smaller --short, --kept and --set candidates=...",
            )
        if self.candidates < max(self.kept):
            raise UsageError(
                f"{max(self.kept)} tokens are kept of {self.candidates} candidates",
                fix=f"--set candidates={max(self.kept)}, or a smaller --kept",
            )
        if self.examined > self.length - self.length // 2:
            raise UsageError(
                f"examined is {self.examined}",
                expected=f"at most {self.length - self.length // 2}, the second half of a window",
            )
        return self

    def samples(self) -> list[Samples]:
        """The windows, with as many targets as they can have."""
        near, most = self.short + 1, max(self.kept)
        greedy = sum((self.candidates - step) * (near + step + 1) for step in range(most))
        rest = (self.candidates + 2) * self.length + len(METHODS) * sum(near + k for k in self.kept)
        tokens = self.length + self.examined * near + self.targets * (2 * greedy + rest)
        return [Samples("windows", self.windows, self.length, tokens, self.length)]

    def model(self, run: RunSpec) -> LoadedModel:
        """The model, whose weights must be here."""
        from lengthwise.models import weights_of

        return weights_of(super().model(run), **_INFLUENCE)

    def others(self, run: RunSpec, model: Predictor) -> dict[str, Any]:
        """The selector, loaded as the measured model is."""
        return {"selector": run.load_beside(model, self.selector)}


class InfluenceSettings(InfluenceSpec):
    """The spec, and what model and text decided."""

    available: int
    """Windows that the text has, at most `windows`."""
    bos_id: int | None


_INFLUENCE = {
    "needs": "influence masks tokens and takes gradients, which no endpoint does",
    "fix": "the checkpoint that it serves",
}


def measure_influence(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: InfluenceSpec = InfluenceSpec(),  # noqa: B008
    *,
    selector: ModelLike | None = None,
    log: SampleLog | None = None,
) -> Measurement:
    """How much of the gain from long context k well-chosen distant tokens recover.

    Rows of task "influence": `gain`, `gaining`, `loss_long`, `loss_short`, `jeffreys`, and for each k (`Row.kept`)
    `recovered_*` of every choice and control, `recovered_net` and `enough`.

    Args:
        model: loaded and in eval mode, a name, or a pair of model and tokenizer. It finds the targets and judges.
        text: the text in this model's tokens, a corpus, a name, or a list of strings.
        spec: the settings.
        selector: chooses the tokens, in place of the spec's. Without either the model chooses itself.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: no examined token gains; too short a text; a model in which a token cannot be removed exactly;
            a selector with another tokenizer; a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import as_model, weights_of
    from lengthwise.sparsity.kept_context import check_removal

    model = weights_of(as_model(model), **_INFLUENCE)
    chooser = weights_of(as_model(selector or spec.selector or model), **_INFLUENCE)
    documents = as_documents(text, model.tokenizer)
    for one in {id(model): model, id(chooser): chooser}.values():
        one.check_ready(spec.length)
        check_removal(one, spec.length)
    _check_tokenizer(model, chooser)
    windows = sample_windows(documents, spec.length, count=spec.windows, seed=spec.seed, allow_fewer=True)
    settings = InfluenceSettings.of(
        spec,
        kept=ascending(spec.kept),
        selector=None if chooser is model else chooser.name,
        available=len(windows),
        bos_id=resolve_bos(model.tokenizer, spec.bos),
    )
    measured = collect(
        log,
        lambda samples: _fill(samples, model, chooser, settings, windows),
        lambda samples: summarise(samples, settings, model.name),
    )
    if spec.targets and not any(measured.samples[key]["targets"] for key in measured.keys):
        raise UsageError(
            f"none of the {len(windows) * spec.examined} examined tokens gains more than {spec.gain:g} nats from "
            f"up to {spec.length} tokens of context over the last {spec.short}",
            expected="a text in which distant tokens help this model",
            fix="a smaller --gain or --short, a greater --max-length, more windows (--limit), or another text",
        )
    return measured


def summarise(log: SampleLog, settings: InfluenceSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    keys = [key for index in range(settings.available) if (key := _key(settings, index)) in log]
    records = [log[key] for key in keys]
    notes = [
        bos_note(settings.bos_id),
        "A removed token is masked for every query in every layer, so a kept one is read with kept ones alone; the "
        "first token of a window is always kept.",
    ]
    if settings.selector is None:
        notes.append(
            "The measured model chose the tokens by the loss that is reported, which flatters the choice; "
            "recovered_greedy_foreign says by how much, recovered_net is without it."
        )
    if settings.available < settings.windows:
        notes.append(few_samples_note(settings.available, settings.windows, "windows", settings.length))
    return Measurement.of(
        statistics_of(records, settings, model_name) if records else [],
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available,
    )


def _fill(
    log: SampleLog,
    model: LoadedModel,
    chooser: LoadedModel,
    settings: InfluenceSettings,
    windows: Sequence[Window],
) -> None:
    """Examine the windows that the log does not hold yet."""
    from lengthwise.models import naming_bad_logits
    from lengthwise.sparsity.examination import examine_window

    missing = unfinished(log, windows, lambda index: [_key(settings, index)])
    for index, window in progress(log.share(missing), what="influence"):
        ids = view(window.ids, 0, settings.length, settings.bos_id)
        foreign = _foreign(windows, index)
        with naming_bad_logits(model, window_words(window)):
            found = examine_window(model, chooser, settings, window, ids, foreign)
        log.append(_key(settings, index), {**window_record(window), **found})


def _foreign(windows: Sequence[Window], index: int) -> NDArray[np.int32] | None:
    """The next window of another document, else the next one; None if there is one window only."""
    others = [windows[(index + step) % len(windows)] for step in range(1, len(windows))]
    own = windows[index].document_id
    return next((one.ids for one in [*(o for o in others if o.document_id != own), *others]), None)


def _check_tokenizer(model: LoadedModel, chooser: LoadedModel) -> None:
    from lengthwise.text.tokens import tokenizer_fingerprint

    if chooser is not model and tokenizer_fingerprint(chooser.tokenizer) != tokenizer_fingerprint(
        model.tokenizer
    ):
        raise UsageError(
            f"the selector {chooser.name} has another tokenizer than {model.name}",
            expected="a model with the same tokenizer, whose tokens can be kept one by one",
        )


def _key(settings: InfluenceSettings, index: int) -> str:
    return f"influence/L{settings.length}/S{settings.short}/w{index:04d}"
