"""Does training on more and less context forget where predictions are sparse and far? In neither paper.

The study examines tokens of real text one by one, with `influence`, and groups what training forgets by what the
model before training needs for a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.report.html import Section
from lengthwise.report.tables import Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise_studies.arms import Scale
from lengthwise_studies.claims import Claim, Decision, Rule, judge, placed, verdict_table
from lengthwise_studies.far.studies import (
    CONTROL,
    EVERY,
    HALF,
    START,
    TRUNCATION_JEFFREYS,
    TRUNCATION_SCE,
    far_experiment,
)
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity.influence import REAL, Token, decided, tokens_of
from lengthwise_studies.store import sample_log

FEW = 4
"""A prediction is sparse if so many distant tokens, or fewer, are enough for it."""
NO_GAIN, SPARSE, DENSE = "no gain", "far and sparse", "far and dense"
GROUPS = (NO_GAIN, SPARSE, DENSE)
ALIGNED = (TRUNCATION_JEFFREYS.name, TRUNCATION_SCE.name)
"""Arms that make more and less context agree."""
OTHERS = (HALF.name, EVERY.name)
"""Other forms of training, each compared with the first aligned arm."""
TRAINED = (CONTROL, TRUNCATION_JEFFREYS, TRUNCATION_SCE, HALF, EVERY)
EXPERIMENT = far_experiment(
    "sparsity-bridge-real",
    replace(START, compared=False),
    # The model before training says what a token needs; for the trained models, losses are enough.
    *(replace(arm, measures={"influence": {"targets": 0}}) for arm in TRAINED),
    notes=(
        "Every trained arm: LoRA, {recipe.steps} steps of {recipe.batch.size} windows of {recipe.length} tokens "
        "of {recipe.data.corpus}. {seeds}, so nothing is said of the spread over seeds.",
        "Held-out text: {documents} whole documents. Every arm examines the same tokens, grouped by what the "
        "model before training needs. Intervals over documents. Computed in {precision}.",
    ),
)


def group_of(token: Token, threshold: float) -> str | None:
    """What the token needs of the distant context; None if it gains and was not tried."""
    if token.gain <= threshold:
        return NO_GAIN
    if token.needed is None:
        return None
    return SPARSE if token.needed <= FEW else DENSE


def forgotten(
    tokens: Sequence[Token], control: Sequence[Token], start: Sequence[Token], threshold: float, **place: Any
) -> list[Row]:
    """Loss with all context of `tokens` minus that of the control, on the same tokens, by what `start` needs.

    Last comes "far and sparse" minus "no gain": whether the arm forgets these tokens in particular.
    """
    changes: dict[str | None, list[tuple[str, float]]] = {}
    for one, other, before in zip(tokens, control, start, strict=True):
        assert (one.key, one.place) == (other.key, other.place) == (before.key, before.place)
        changes.setdefault(group_of(before, threshold), []).append((one.document, one.long - other.long))
    row = Row(task="bridge", metric="forgotten", value=None, **place)
    found = [
        Statistic.of(
            replace(row, bucket=group, n=len(changes[group])),
            [(document, (value, 1.0)) for document, value in changes[group]],
        )
        for group in GROUPS
        if group in changes
    ]
    if SPARSE in changes and NO_GAIN in changes:
        totals = [(name, (value, 1.0, 0.0, 0.0)) for name, value in changes[SPARSE]]
        totals += [(name, (0.0, 0.0, value, 1.0)) for name, value in changes[NO_GAIN]]
        more = replace(row, metric="forgotten_more", n=len(changes[SPARSE]))
        found.append(Statistic.of(more, totals, estimator=_difference))
    return [estimate(one) for one in found]


def _difference(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]


def bridge_rows(
    start: Sequence[Token], trained: dict[tuple[str, int], list[Token]], threshold: float, model: str
) -> list[Row]:
    """The change of loss by group, for every trained arm and seed: against the control, or the first aligned arm."""
    return [
        row
        for (name, seed), tokens in trained.items()
        for reference in (CONTROL.name, *(ALIGNED[:1] if name in OTHERS else ()))
        if name != reference
        for row in forgotten(
            *(tokens, trained[reference, seed], start, threshold),
            model=model,
            arm=name,
            seed=seed,
            reference=reference,
        )
    ]


def claims() -> Iterator[Claim]:
    """What alignment forgets, and whether the other forms spare it."""
    ours = partial(Claim, place="the bridge", paper="in neither paper")
    for arm in (*ALIGNED, *OTHERS):
        yield ours(
            says=f"{arm} forgets far and sparse tokens more than those without a gain",
            test=Rule(
                "change of the loss on far and sparse tokens minus that on tokens without a gain; above 0 in "
                "every seed (interval over documents)",
                partial(in_every_seed, arm, CONTROL.name, "forgotten_more", None, 1),
            ),
        )
    for arm in OTHERS:
        yield ours(
            says=f"{arm} spares the far and sparse tokens that {ALIGNED[0]} forgets",
            test=Rule(
                f"its loss on far and sparse tokens minus that of {ALIGNED[0]}; below 0 in every seed "
                "(interval over documents)",
                partial(in_every_seed, arm, ALIGNED[0], "forgotten", SPARSE, -1),
            ),
        )


def in_every_seed(
    arm: str, reference: str, metric: str, group: str | None, sign: int, rows: Sequence[Row]
) -> Decision | None:
    """Whether a change has this sign in every seed, with its whole interval."""
    which = (arm, reference, metric, group)
    found = [row for row in rows if (row.arm, row.reference, row.metric, row.bucket) == which]
    if not found:
        return None
    return decided(
        "; ".join(row_estimate(row).text for row in found),
        found,
        lambda *ends: np.min(sign * np.array(ends)) > 0,
        lambda *ends: np.max(sign * np.array(ends)) <= 0,
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """What training forgets."""
    influence = results.config["measures"]["influence"]
    text = results.config["recipe"]["data"]["corpus"]

    def examined(label: str) -> list[Token]:
        return tokens_of(sample_log(results, label, "influence"), influence["kept"])

    start = examined(START.name)
    trained = {
        (arm.name, seed): examined(f"{arm.name}, seed {seed}")
        for arm in TRAINED
        for seed in range(results.config["seeds"])
    }
    rows = bridge_rows(start, trained, influence["gain"], results.model_name)
    verdicts = verdict_table(judge(placed(claims(), text), rows), ours="ours, nats a token, by seed")
    return [
        Section(
            title=f"What training forgets: {results.model_name}, {text}",
            paragraphs=[
                f"Loss with all context minus that of `{CONTROL.name}`, on the same {len(start)} tokens; positive "
                f"is worse. A token is far and sparse if, before training, it gains over {influence['gain']:g} nats "
                f"from distant context and {FEW} distant tokens are enough.",
            ],
            tables=[*([verdicts] if verdicts.rows else []), groups_table(rows)],
            notes=results.notes,
        ),
    ]


def groups_table(rows: Sequence[Row]) -> Table:
    """One line for each arm and seed, one column for each group; changes are from the control."""
    lines: dict[str, dict[str | None, Row]] = {}
    for row in rows:
        if (row.metric, row.reference) == ("forgotten", CONTROL.name):
            lines.setdefault(f"{row.arm}, seed {row.seed}", {})[row.bucket] = row
    return Table(
        columns=["", *GROUPS],
        rows=[
            [label, *(row_estimate(groups[name]) if name in groups else None for name in GROUPS)]
            for label, groups in lines.items()
        ],
        caption="Change of the loss, nats per token, 95 % intervals over documents",
    )


def _scales(text: str, windows: int) -> dict[str, Scale]:
    def scale(windows: int, targets: int, model: str = "smollm2-135m", **settings: Any) -> Scale:
        sizes = {"length": 384, "short": 32, "gain": 0.5, "batch_size": 64}
        influence = {**REAL, **sizes, "windows": windows, "targets": targets}
        return Scale(model=model, measures={"influence": influence}, text=text, **settings)

    corpus = f"data.corpus={text}"
    small = ("length=64", "positions.target_length=256", corpus)
    return {
        "default": scale(windows, 3, changes=(corpus,)),
        "laptop": scale(8, 2, steps=30, changes=(corpus,)),
        "smoke": scale(3, 3, model="tiny-books", steps=2, changes=small),
    }


def _claims(scale: Scale) -> list[Claim]:
    return placed(claims(), scale.text)


BRIDGE_REAL = Study(
    title="What does alignment forget in a real model?",
    # Seven held-out books decide nothing by the rule; 33 files of code do.
    parts=(
        EXPERIMENT.part(sections, _scales("books", 24), folder="text", heading="Books", claims=_claims),
        EXPERIMENT.part(sections, _scales("code", 40), folder="code", heading="Code", claims=_claims),
    ),
    lead=(
        "Alignment of more and less context, from one paper, against sparsity and locality, from the other.",
    ),
    takes=("seeds", "steps"),
)
