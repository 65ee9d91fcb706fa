"""Does disagreement between more and less context fall where predictions are sparse and local? In neither paper.

The study compares tokens of real text one by one, and groups what training forgets by what a token needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lengthwise.measure.statistics import estimate
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise_studies.arms import Scale
from lengthwise_studies.claims import Claim, Decision, Rule, judge, verdict_table
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
from lengthwise_studies.sparsity.bridge import (
    FEW,
    GROUPS,
    SPARSE,
    Token,
    decided,
    forgotten,
    group_of,
    mean_of,
    rank_table,
    tokens_of,
)
from lengthwise_studies.store import sample_log

ALIGNED = (TRUNCATION_JEFFREYS.name, TRUNCATION_SCE.name)
"""Arms that make more and less context agree."""
OTHERS = (HALF.name, EVERY.name)
"""Other forms of training, each compared with the first aligned arm."""
EXPERIMENT = far_experiment(
    "sparsity-bridge-real",
    replace(START, compared=False),
    # The model before training says what a token needs; for the trained models, losses are enough.
    *(
        replace(arm, measures={"influence": {"targets": 0}})
        for arm in (CONTROL, TRUNCATION_JEFFREYS, TRUNCATION_SCE, HALF, EVERY)
    ),
    notes=(
        "Every trained arm: LoRA, {recipe.steps} steps of {recipe.batch.size} windows of {recipe.length} tokens "
        "of {recipe.data.corpus}. {seeds}, so nothing is said of the spread over seeds.",
        "Held-out text: {documents} whole documents. Every arm examines the same tokens, grouped by what the "
        "model before training needs. Intervals over documents. Computed in {precision}.",
    ),
)
Arms = dict[tuple[str, int | None], list[Token]]
"""The examined tokens of every arm and seed, in one order."""


def arms_of(results: Results) -> Arms:
    """The examined tokens of a run, from its samples."""
    kept = results.config["measures"]["influence"]["kept"]
    return {
        (arm.name, seed): tokens_of(sample_log(results, _label(arm.name, seed), "influence"), kept)
        for arm in EXPERIMENT.arms
        for seed in ([None] if arm.changes is None else range(results.config["seeds"]))
    }


def bridge_rows(arms: Arms, threshold: float, model: str) -> list[Row]:
    """Jeffreys and change of loss by group, for every arm and seed."""
    start = arms[START.name, None]
    statistics = []
    for (name, seed), tokens in arms.items():
        at = {"model": model, "arm": name, "seed": seed}
        for group in GROUPS:
            pairs = [
                (token.document, token.jeffreys)
                for token, before in zip(tokens, start, strict=True)
                if group_of(before, threshold) == group
            ]
            if pairs:
                statistics.append(mean_of("jeffreys", pairs, bucket=group, **at))
        for reference in (CONTROL.name, *(ALIGNED[:1] if name in OTHERS else ())):
            if seed is not None and name != reference:
                control = arms[reference, seed]
                statistics += forgotten(tokens, control, start, threshold, reference=reference, **at)
    return [estimate(statistic) for statistic in statistics]


def claims() -> Iterator[Claim]:
    """What alignment forgets, and whether the other forms spare it."""
    ours = {"place": "the bridge", "paper": "in neither paper"}
    for arm in (*ALIGNED, *OTHERS):
        yield Claim(
            **ours,
            says=f"{arm} forgets far and sparse tokens more than those without a gain",
            test=Rule(
                "change of the loss on far and sparse tokens minus that on tokens without a gain; above 0 in "
                "every seed (interval over documents)",
                partial(in_every_seed, arm, CONTROL.name, "forgotten_more", None, 1),
            ),
        )
    for arm in OTHERS:
        yield Claim(
            **ours,
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
    found = [
        row
        for row in rows
        if (row.arm, row.reference, row.metric, row.bucket) == (arm, reference, metric, group)
    ]
    if not found:
        return None
    return decided(
        "; ".join(row_estimate(row).text for row in found),
        found,
        lambda ends: all(min(sign * low, sign * high) > 0 for low, high in ends),
        lambda ends: all(max(sign * low, sign * high) <= 0 for low, high in ends),
        ("yes", "no"),
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """The tokens one by one, and what training forgets."""
    threshold = results.config["measures"]["influence"]["gain"]
    text = results.config["recipe"]["data"]["corpus"]
    arms = arms_of(results)
    start = arms[START.name, None]
    rows = bridge_rows(arms, threshold, results.model_name)
    verdicts = verdict_table(judge(claims(), rows), ours="ours, nats a token, by seed")
    trained = [arm.name for arm in EXPERIMENT.arms if arm.changes is not None]
    changed = [name for name in trained if name != CONTROL.name]
    return [
        Section(
            title=f"Token by token: {results.model_name}, {text}",
            paragraphs=[
                f"`{results.model_name}` before fine-tuning, {len(start)} examined tokens. A token is far and "
                f"sparse if it gains more than {threshold:g} nats from distant context and {FEW} distant tokens "
                "are enough.",
            ],
            tables=[
                rank_table(start),
                groups_table(rows, "jeffreys", [START.name], "Jeffreys by what a token needs"),
            ],
        ),
        Section(
            title=f"What training forgets: {results.model_name}, {text}",
            paragraphs=[
                f"Loss with all context minus that of `{CONTROL.name}`, on the same tokens; positive is worse."
            ],
            tables=[
                *([verdicts] if verdicts.rows else []),
                groups_table(rows, "forgotten", changed, "Change of the loss, nats per token"),
                groups_table(rows, "jeffreys", trained, "Jeffreys after training"),
            ],
            notes=results.notes,
        ),
    ]


def groups_table(rows: list[Row], metric: str, arms: list[str], caption: str) -> Table:
    """One line for each arm and seed, one column for each group; changes are from the control."""
    reference = CONTROL.name if metric == "forgotten" else None
    ours: dict[tuple[str, int | None], dict[str | None, Row]] = {}
    for row in rows:
        if row.arm in arms and (row.metric, row.reference) == (metric, reference):
            ours.setdefault((row.arm, row.seed), {})[row.bucket] = row
    lines: list[list[Cell]] = [
        [
            _label(arm, seed),
            *(row_estimate(groups[name]) if name in groups else None for name in GROUPS),
        ]
        for (arm, seed), groups in ours.items()
    ]
    return Table(columns=["", *GROUPS], rows=lines, caption=f"{caption}, 95 % intervals over documents")


def _label(arm: str, seed: int | None) -> str:
    return arm if seed is None else f"{arm}, seed {seed}"


def _scales(text: str, windows: int) -> dict[str, Scale]:
    def scale(windows: int, targets: int, model: str = "smollm2-135m", **settings: Any) -> Scale:
        influence = {
            "length": 384,
            "short": 32,
            "kept": [1, 2, 4, 8],
            "windows": windows,
            "examined": 32,
            "targets": targets,
            "candidates": 10,
            "gain": 0.5,
            "batch_size": 64,
        }
        return Scale(
            model=model,
            measures={"influence": influence},
            text=text,
            **settings,
        )

    corpus = f"data.corpus={text}"
    small = ("length=64", "positions.target_length=256", corpus)
    return {
        "default": scale(windows, 3, changes=(corpus,)),
        "laptop": scale(8, 2, steps=30, changes=(corpus,)),
        "smoke": scale(3, 3, model="tiny-books", steps=2, changes=small),
    }


BRIDGE_REAL = Study(
    title="What does alignment forget in a real model?",
    # Seven held-out books decide nothing by the rule; 33 files of code do.
    parts=(
        EXPERIMENT.part(sections, _scales("books", 24), folder="text", heading="Books"),
        EXPERIMENT.part(sections, _scales("code", 40), folder="code", heading="Code"),
    ),
    lead=(
        "Alignment of more and less context, from one paper, against sparsity and locality, from the other.",
    ),
    takes=("seeds", "steps"),
)
