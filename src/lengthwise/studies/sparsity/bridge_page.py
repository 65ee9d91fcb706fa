"""Does disagreement between more and less context fall where predictions are sparse and local? In neither paper.

Planted tasks have exact answers (`lengthwise.sparsity.bridge`). On books, the tokens that `influence` examines are
compared one by one: Jeffreys against the gain from distant context, the number of tokens needed, and LongPPL's key
tokens. The arms of the study gap-views are trained, and what each forgets is told by what a token needs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lengthwise.measure.statistics import estimate
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise.sparsity.bridge import (
    FEW,
    GROUPS,
    Token,
    forgotten,
    group_of,
    mean_of,
    planted_jeffreys,
    planted_price,
    rank_correlation_by_document,
    share_touched,
    tokens_of,
)
from lengthwise.studies.experiments import Experiment, Scale
from lengthwise.studies.gap_views import BASELINE, START
from lengthwise.studies.gap_views import EXPERIMENT as GAP_VIEWS
from lengthwise.studies.skeleton import Claim, Study, Verdict, claims_table
from lengthwise.studies.sparsity.influence_page import FEWEST_DOCUMENTS, TOO_FEW

EXPERIMENT = Experiment(
    kind="sparsity-bridge",
    recipe="tiny-books-gap",
    reference=BASELINE,
    seeded=True,
    arms=GAP_VIEWS.arms,
    notes=(
        "Held-out text: {documents} whole books. {seeds} of one pretrained checkpoint; every arm examines the same "
        "tokens, grouped by what the model before fine-tuning needs.",
        "All arms have YaRN x4. Intervals over documents.",
    ),
)
ALIGNED, TEACHER = "truncation, Jeffreys 10", "gap, teacher 1"
PLANTED_LENGTH, PLANTED_CUT, PLANTED_NOISE = 100, 50, 0.01


def sections(results: Results, folder: Path) -> list[Section]:
    """The planted tasks, the tokens one by one, and what training forgets."""
    settings = results.config["measures"]["influence"]
    threshold = settings["gain"]
    arms = _tokens(results, folder)
    start = arms[START, None]
    rows = bridge_rows(arms, threshold, results.model_name)
    claims = claims_table(CLAIMS, rows, ours="ours, nats a token, by seed")
    return [
        Section(
            title="Planted tasks: exact",
            paragraphs=[
                f"Parity of k planted bits among {PLANTED_LENGTH} tokens, flipped with probability {PLANTED_NOISE:g};"
                f" the first {PLANTED_CUT} are cut off. Disagreement of the best predictions is proportional to "
                "the share of samples in which the cut touches a planted bit. It rises with k; locality lowers it, "
                "but not below the share that is cut off. The price is what perfect agreement costs.",
            ],
            tables=[planted_table()],
        ),
        Section(
            title="Real text, token by token",
            paragraphs=[
                f"`{results.model_name}` before fine-tuning, {len(start)} examined tokens. A token is far and sparse "
                f"if it gains more than {threshold:g} nats from distant context and {FEW} distant tokens are enough.",
            ],
            tables=[
                rank_table(start),
                groups_table(rows, "jeffreys", [START], "Jeffreys by what a token needs"),
            ],
        ),
        Section(
            title="What training forgets",
            paragraphs=[
                f"Loss with all context minus that of `{BASELINE}`, on the same tokens; positive is worse."
            ],
            tables=[
                *([claims] if claims else []),
                groups_table(
                    rows,
                    "forgotten",
                    [arm.name for arm in EXPERIMENT.arms if arm.compared and arm.name != BASELINE],
                    "Change of the loss, nats per token",
                ),
            ],
            notes=results.notes,
        ),
    ]


def _tokens(results: Results, folder: Path) -> dict[tuple[str, int | None], list[Token]]:
    """The examined tokens of every arm and seed, in one order."""
    kept = sorted(set(results.config["measures"]["influence"]["kept"]))
    found: dict[tuple[str, int | None], list[Token]] = {}
    for arm in EXPERIMENT.arms:
        for seed in [None] if arm.changes is None else range(results.config["seeds"]):
            place = folder / "parts" / (arm.slug if seed is None else f"seed-{seed}/{arm.slug}")
            log = SampleLog(place / "influence.jsonl")
            found[arm.name, seed] = tokens_of(log, kept, keys=sorted(log))
    return found


def bridge_rows(arms: dict[tuple[str, int | None], list[Token]], threshold: float, model: str) -> list[Row]:
    """Jeffreys and change of loss by group, for every arm and seed."""
    start = arms[START, None]
    statistics = []
    for (name, seed), tokens in arms.items():
        place = {"model": model, "arm": name, "seed": seed}
        for group in GROUPS:
            pairs = [
                (token.document, token.jeffreys)
                for token, before in zip(tokens, start, strict=True)
                if group_of(before, threshold) == group
            ]
            if pairs:
                statistics.append(mean_of("jeffreys", pairs, bucket=group, **place))
        if seed is not None and name != BASELINE:
            control = arms[BASELINE, seed]
            statistics += forgotten(tokens, control, start, threshold, reference=BASELINE, **place)
    return [estimate(statistic) for statistic in statistics]


def planted_table() -> Table:
    """Share touched, Jeffreys and price by k and locality; k = 1 is a needle at a random place."""
    rows: list[list[Cell]] = []
    for k in (1, 2, 4, 8):
        cells: list[Cell] = [k]
        for width in (None, PLANTED_LENGTH // 4, PLANTED_LENGTH // 10):
            touched = share_touched(PLANTED_LENGTH, PLANTED_CUT, k, width)
            jeffreys, price = (of(touched, PLANTED_NOISE) for of in (planted_jeffreys, planted_price))
            cells.append(f"{touched:.3f}: {jeffreys:.2f}, {price:.2f}")
        rows.append(cells)
    return Table(
        columns=["k", "anywhere", f"within {PLANTED_LENGTH // 4}", f"within {PLANTED_LENGTH // 10}"],
        rows=rows,
        caption="Share of samples touched by the cut: Jeffreys, price (nats)",
        notes=[
            "k = 1 is a needle at a random place. At a known distance D from the end, Jeffreys is 0 if D is at most "
            "the near context and full beyond it."
        ],
    )


def rank_table(tokens: list[Token]) -> Table:
    """Spearman's rho of Jeffreys with what a token gains and needs."""
    tried = [token for token in tokens if token.needed is not None]
    keys = [float(token.is_key) for token in tokens]
    pairs: list[tuple[str, list[Token], Callable[[Token], float]]] = [
        ("gain from distant context", tokens, lambda token: token.gain),
        ("size of the gain, |gain|", tokens, lambda token: abs(token.gain)),
        ("loss with near context", tokens, lambda token: token.short),
        ("distant tokens needed (targets)", tried, lambda token: token.needed or 0.0),
        ("being a key token of LongPPL", tokens, lambda token: float(token.is_key)),
    ]
    rows: list[list[Cell]] = []
    for name, some, value in pairs:
        found = rank_correlation_by_document(
            [token.jeffreys for token in some], [value(token) for token in some], [t.document for t in some]
        )
        rows.append([name, Estimate(found.value, found.low, found.high, signed=True), found.n])
    return Table(
        columns=["Jeffreys against", "Spearman's rho [95 % interval]", "tokens"],
        rows=rows,
        caption="Rank correlation over tokens, documents resampled",
        notes=[f"{int(sum(keys))} of {len(keys)} examined tokens are key tokens."],
    )


def groups_table(rows: list[Row], metric: str, arms: list[str], caption: str) -> Table:
    """One line for each arm and seed, one column for each group."""
    lines: list[list[Cell]] = []
    for arm in arms:
        for seed in sorted(
            {row.seed for row in rows if row.arm == arm}, key=lambda one: -1 if one is None else one
        ):
            ours = {row.bucket: row for row in rows if (row.arm, row.seed, row.metric) == (arm, seed, metric)}
            name = arm if seed is None else f"{arm}, seed {seed}"
            lines.append([name, *(_cell(ours.get(group), metric) for group in GROUPS)])
    return Table(columns=["", *GROUPS], rows=lines, caption=f"{caption}, 95 % intervals over documents")


def _cell(row: Row | None, metric: str) -> Cell:
    if row is None:
        return None
    return Estimate(row.value, row.ci_low, row.ci_high, signed=metric == "forgotten")


def forgets_more(arm: str) -> Callable[[list[Row]], Verdict | None]:
    """Judges whether an arm forgets far and sparse tokens more than others: every seed's interval is above 0."""

    def judge(rows: list[Row]) -> Verdict | None:
        found = [row for row in rows if (row.arm, row.metric) == (arm, "forgotten_more")]
        if not found:
            return None
        ours = "; ".join(Estimate(row.value, row.ci_low, row.ci_high, signed=True).text for row in found)
        ends = [(row.ci_low, row.ci_high) for row in found]
        if any(None in pair for pair in ends) or min(row.documents or 0 for row in found) < FEWEST_DOCUMENTS:
            return ours, TOO_FEW
        if all(low is not None and low > 0 for low, _ in ends):
            return ours, "yes"
        return ours, "no" if all(high is not None and high <= 0 for _, high in ends) else "not decided"

    return judge


CLAIMS = tuple(
    Claim(
        place="the bridge",
        claim=f"`{arm}` forgets far and sparse tokens more than those without a gain",
        paper="in neither paper",
        judge=forgets_more(arm),
        rule="change of the loss on far and sparse tokens minus that on tokens without a gain; above 0 in every seed",
    )
    for arm in (ALIGNED, TEACHER)
)


def _scale(windows: int, *, seeds: int, steps: int | None = None) -> Scale:
    influence = {
        "length": 384,
        "short": 32,
        "kept": [1, 2, 4, 8],
        "windows": windows,
        "examined": 32,
        "targets": 3,
    }
    return Scale(
        model="tiny-books",
        measures={"influence": {**influence, "candidates": 10, "gain": 0.5, "batch_size": 64}},
        seeds=seeds,
        steps=steps,
    )


SCALES = {"default": _scale(60, seeds=3), "laptop": _scale(60, seeds=3), "smoke": _scale(3, seeds=1, steps=2)}
BRIDGE = Study(
    title="Does disagreement fall where predictions are sparse and local?",
    parts=(EXPERIMENT.part(sections, SCALES),),
    lead=(
        "Alignment of more and less context, from one paper, against sparsity and locality, from the other.",
    ),
    takes=("seeds", "steps"),
)
