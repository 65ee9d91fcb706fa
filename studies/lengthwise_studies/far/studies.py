"""The studies of far context, each with parts that train the same arms and ask something else of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.results import Results
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.claims import Claim
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.far.arms import (
    CONTROL,
    FEWER,
    HALF,
    LOSSES,
    NO_SKIP,
    NOTES,
    REPEATS,
    START,
    TRACKING,
    TRAINED,
    changed,
    far_experiment,
    far_scales,
    questions,
)
from lengthwise_studies.far.claims import claims_on, gold_claim, long_text_claims, question_claims
from lengthwise_studies.far.page import Claims, far_sections
from lengthwise_studies.paired_claims import Paired
from lengthwise_studies.skeleton import Part, Study

ON_BOOKS = (CONTROL, REPEATS)
ON_CODE = tuple(changed(arm, "data.corpus=code", name="on code: {}") for arm in ON_BOOKS)


@dataclass(frozen=True)
class FarPart:
    """Arms and what is asked of them, with claims and a heading. The kind of its results names it."""

    heading: str
    experiment: Experiment
    scales: dict[str, Scale]
    claims: Claims | None = None

    def part(self) -> Part:
        """As a part of a study, in a folder of the kind's name."""
        return self.experiment.part(
            lambda results, folder: far_sections(
                results, self.heading, self.experiment.reference, self.claims
            ),
            self.scales,
            folder=self.experiment.kind,
            heading=self.heading,
        )


def _needles(results: Results) -> list[Claim[Paired]]:
    """What the form has to do against cross entropy, and that it answers more than skips alone."""
    beyond = claims_on(REPEATS.name, HALF.name, results)[0]
    return [*question_claims(REPEATS.name, CONTROL.name, results), replace(beyond, place="beyond skips")]


def _gemma(results: Results) -> list[Claim[Paired]]:
    """What the form has to do, and that it makes the right answer more probable: twelve contexts hold few answers."""
    found = claims_on(REPEATS.name, CONTROL.name, results)
    return [*found, gold_claim(found[0])]


def _claims_of(
    make: Callable[[str, str, Results], list[Claim[Paired]]], *pairs: tuple[Arm, Arm]
) -> Callable[[Results], list[Claim[Paired]]]:
    """The claims of one kind on several pairs of a form and its control."""
    return lambda results: [
        claim for form, control in pairs for claim in make(form.name, control.name, results)
    ]


_LONG = {
    "perplexity": {"lengths": [1024, 4096, 8192], "segments": 6},
    "longppl": {"length": 8192, "short": 1024, "stride": 1024, "texts": 4},
    # Half as long again as the trained length, so that a limit at its end can be seen.
    "limit": {"length": 12288, "windows": 3},
}
_SMOKE_LONG = {
    "perplexity": {"lengths": [64, 128], "segments": 2},
    "longppl": {"length": 128, "short": 32, "texts": 2},
    "limit": {"length": 256, "reference": 32, "windows": 2, "passage": 16, "scored": 12},
}
_GEMMA = {"model": "gemma3-270m", "changes": ("positions.target_length=32768",)}
_CODE_NOTE = (
    "Every trained arm: LoRA, {recipe.steps} steps of {recipe.length} tokens of books, or of code where its name "
    "says so. {seeds}."
)
_LONG_NOTE = (
    "Held-out text: {documents} whole documents. All arms predict the same tokens. The key tokens of LongPPL "
    "are those of the model before training. Computed in {precision}."
)


def _with_yarn(kind: str, factor: int, *arms: Arm) -> Experiment:
    """YaRN alone, and each of these arms with it. The first arm is the reference."""
    extend = ("extend.method=yarn", f"extend.factor={factor}")
    extended = [
        replace(arm, name=f"YaRN x{factor}, {arm.name}", changes=(*extend, *(arm.changes or ())))
        for arm in arms
    ]
    alone = Arm(name=f"YaRN x{factor}", method="yarn", factor=float(factor), question="the extension alone")
    return far_experiment(kind, alone, *extended, reference=extended[0].name)


def _beyond(factor: int, length: int, losses: dict[str, Any] = LOSSES) -> dict[str, Scale]:
    """Skips up to the extended length, and prompts within and beyond the trained one: 7,000 and `length` tokens."""
    return far_scales(
        {"eval": questions(lengths=[7000, length], samples=12), "perplexity": losses},
        changes=(f"positions.target_length={factor * TRAINED}",),
    )


PARTS = {
    part.experiment.kind: part
    for part in (
        FarPart(
            "Repeats on longer windows",
            far_experiment(
                "far-repeats", START, CONTROL, HALF, REPEATS, contrasts=((REPEATS.name, HALF.name),)
            ),
            far_scales(
                {
                    "eval": questions(),
                    "perplexity": LOSSES,
                    "recall": {"distances": [2048, 7500], "pairs": 8},
                },
                seeds=3,
            ),
            _needles,
        ),
        FarPart(
            "Where someone is",
            far_experiment("far-tracking", START, CONTROL, REPEATS),
            far_scales(tasks=TRACKING, seeds=3),
            _claims_of(claims_on, (REPEATS, CONTROL)),
        ),
        FarPart(
            "Long texts",
            far_experiment("far-long-texts", START, CONTROL, HALF, REPEATS, notes=(NOTES[0], _LONG_NOTE)),
            far_scales(_LONG, smoke=_SMOKE_LONG, seeds=3),
            _claims_of(long_text_claims, (HALF, CONTROL), (REPEATS, CONTROL)),
        ),
        FarPart(
            "On source code",
            far_experiment(
                "far-code",
                START,
                *ON_BOOKS,
                *ON_CODE,
                contrasts=((ON_CODE[1].name, ON_CODE[0].name),),
                notes=(_CODE_NOTE, *NOTES[1:]),
            ),
            far_scales(text="code", seeds=3),
            _claims_of(question_claims, (REPEATS, CONTROL), (ON_CODE[1], ON_CODE[0])),
        ),
        FarPart(
            "A second model",
            far_experiment("far-gemma-repeats", START, CONTROL, REPEATS),
            far_scales(
                {"eval": questions(lengths=[7000], samples=12), "perplexity": LOSSES}, seeds=3, **_GEMMA
            ),
            _gemma,
        ),
        FarPart(
            "Where someone is, on a second model",
            far_experiment("far-gemma-tracking", START, CONTROL, REPEATS),
            far_scales(
                {"eval": questions(*TRACKING, lengths=[7000]), "perplexity": LOSSES}, tasks=TRACKING, **_GEMMA
            ),
        ),
        FarPart(
            "Skips, repeats, and both",
            far_experiment("far-parts", START, CONTROL, HALF, REPEATS, FEWER, NO_SKIP),
            far_scales(),
        ),
        FarPart(
            "Loss, LongPPL and the useful context",
            far_experiment(
                "far-reach", START, CONTROL, HALF, REPEATS, FEWER, NO_SKIP, notes=(NOTES[0], _LONG_NOTE)
            ),
            far_scales(_LONG, smoke=_SMOKE_LONG),
        ),
        FarPart(
            "Beyond the trained length, with YaRN x2",
            _with_yarn("far-extension", 2, CONTROL, HALF),
            _beyond(2, 12_000),
        ),
        FarPart(
            "Beyond the trained length, with YaRN x4",
            _with_yarn("far-yarn-4", 4, CONTROL, REPEATS),
            _beyond(4, 20_000, {"lengths": [1024, 8192, 16384], "segments": 4}),
        ),
    )
}
"""By the kind of their results."""


def _study(title: str, *kinds: str) -> Study:
    return Study(title=title, parts=tuple(PARTS[kind].part() for kind in kinds), takes=("seeds", "steps"))


FAR = _study(
    "Which training makes a model use far context?",
    "far-repeats",
    "far-tracking",
    "far-long-texts",
    "far-code",
)
FAR_PARTS = _study("What does it: the skips or the repeats?", "far-parts", "far-reach")
FAR_GEMMA = _study(
    "Does a second model use far context after training with skips and repeats?",
    "far-gemma-repeats",
    "far-gemma-tracking",
)
