"""Do a few tokens suffice? Figures 2 and 6 of the sparsity paper in small, on books and on code.

The paper trains its own models on C4 and keeps the k tokens of the long context that its Eq. 20 names; neither sizes
nor that equation were found. Here a released model is measured, and the choices are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from lengthwise.measure.influence import METHODS
from lengthwise.report.figures import recovered_by_kept
from lengthwise.report.html import Section, influential_passages
from lengthwise.report.tables import Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.skeleton import Claim, Part, Study, Verdict, claims_table
from lengthwise_studies.sparsity.bridge import tokens_of
from lengthwise_studies.sparsity.token_ranks import rank_table
from lengthwise_studies.store import sample_log

ARM = Arm(name="as it is")
NEARLY_ALL, MOST = 0.8, 0.5
FEWEST_DOCUMENTS = 8
"""Intervals over fewer are too rough for a verdict."""
TOO_FEW = f"not decided: fewer than {FEWEST_DOCUMENTS} documents"
Numbers = dict[tuple[str, int | None], Row]


def most_kept(numbers: Numbers) -> int:
    """The largest k that was measured."""
    return max(kept for _, kept in numbers if kept is not None)


def at_least(metric: str, threshold: float) -> Callable[[Numbers], Verdict | None]:
    """Judges whether the 95 % interval of a share, with the largest k, is above a threshold."""

    def judge(numbers: Numbers) -> Verdict | None:
        k = most_kept(numbers)
        row = numbers.get((metric, k))
        if row is None:
            return None
        ours = f"{row_estimate(row).text} with {k} tokens"
        if row.ci_low is None or row.ci_high is None or (row.documents or 0) < FEWEST_DOCUMENTS:
            return ours, TOO_FEW
        if row.ci_low >= threshold:
            return ours, "holds"
        return ours, "does not hold" if row.ci_high < threshold else "not decided"

    return judge


def above_controls(numbers: Numbers) -> Verdict | None:
    """Judges whether the interval of greedy is above those of all controls, with the largest k."""
    k = most_kept(numbers)
    greedy = numbers["recovered_greedy", k]
    controls = [numbers[f"recovered_{name}", k] for name in ("random", "recent", "copies")]
    texts = ", ".join(
        f"{row.metric.removeprefix('recovered_')} {row_estimate(row).text}" for row in (greedy, *controls)
    )
    ends = [row.ci_high for row in controls]
    if (
        greedy.ci_low is None
        or any(end is None for end in ends)
        or (greedy.documents or 0) < FEWEST_DOCUMENTS
    ):
        return texts, TOO_FEW
    highest = max(end for end in ends if end is not None)
    best = max(row.value for row in controls if row.value is not None)
    if greedy.ci_low > highest:
        return texts, "holds"
    return texts, "does not hold" if (greedy.value or 0) <= best else "not decided"


CLAIMS = (
    Claim(
        place="Fig. 2, 6",
        claim="a few tokens of the long context predict nearly as well as all of them",
        paper="drawn, no number",
        judge=at_least("recovered_greedy", NEARLY_ALL),
        rule=f"greedy recovers {NEARLY_ALL:.0%} of the gain or more with the largest k (whole interval)",
    ),
    Claim(
        place="Fig. 2, 6",
        claim="the same, beyond what choosing by the reported loss recovers from a foreign text",
        paper="not considered",
        judge=at_least("recovered_net", MOST),
        rule=f"recovered_net is {MOST:.0%} or more with the largest k (whole interval)",
    ),
    Claim(
        place="Fig. 2, 6",
        claim="which tokens are kept matters",
        paper="drawn, no number",
        judge=above_controls,
        rule="the interval of greedy is above those of random, recent and copies",
    ),
)


def numbers_of(rows: Sequence[Row]) -> Numbers:
    """The rows by metric and k."""
    return {(row.metric, row.kept): row for row in rows if row.reference is None}


def recovery_table(numbers: Numbers, *, caption: str) -> Table:
    """One line for each choice and control, one column for each k."""
    sizes = sorted({kept for _, kept in numbers if kept is not None})
    metrics = [
        (f"recovered_{name}", name.replace("_", " "))
        for name in (*METHODS, "net")
        if (f"recovered_{name}", sizes[0]) in numbers
    ]
    cells = [
        [name, *(row_estimate(numbers[metric, k]) for k in sizes)]
        for metric, name in (*metrics, ("enough", "targets for which greedy is enough"))
    ]
    return Table(columns=["share of the gain", *(f"k = {k}" for k in sizes)], rows=cells, caption=caption)


def sections(results: Results, folder: Path) -> list[Section]:
    """One text: claims, recovery by k, and passages."""
    numbers = numbers_of(results.rows)
    text = folder.name.removeprefix("influence-")
    claims = claims_table(CLAIMS, numbers, ours="ours")
    picture = recovered_by_kept(results.rows, name=folder.name)
    samples = sample_log(results, ARM.name, "influence")
    tokens = tokens_of(samples, results.config["measures"]["influence"]["kept"], keys=sorted(samples))
    gain, gaining = numbers["gain", None], numbers["gaining", None]
    return [
        Section(
            title=f"Do a few tokens suffice? {text.capitalize()}",
            paragraphs=[
                f"Of the examined tokens of `{results.model_name}` on {text}, "
                f"{row_estimate(gaining).text} gain from long context; {gain.n} of them were targets, which gain "
                f"{row_estimate(gain).text} nats each. With k distant tokens kept and all other distant ones "
                "removed:",
            ],
            tables=[
                *([claims] if claims else []),
                recovery_table(numbers, caption=f"Recovered gain on {text}, 95 % intervals over documents"),
                rank_table(tokens),
            ],
            figures=[picture] if picture else [],
            passages=influential_passages(samples, results.model_name),
            notes=results.notes,
        )
    ]


def _part(text: str) -> Part:
    experiment = Experiment(
        kind="influence-study",
        dtype="fast",
        arms=(ARM,),
        notes=(
            "Up to {measures[influence][windows]} windows of {measures[influence][length]} tokens of {documents} "
            "documents; near context {measures[influence][short]} tokens, {measures[influence][candidates]} "
            "candidates by gradient. Context stays within what the model was trained for.",
            "A removed token is masked for every query in every layer. So a kept token is read without its "
            "neighbours, which is harder than hiding removed tokens from the target alone.",
        ),
    )
    return experiment.part(
        sections,
        {
            "default": _scale(text, 40, targets=3),
            "laptop": _scale(text, 12, targets=2),
            "smoke": _smoke(text),
        },
        folder=f"influence-{text}",
        heading=f"Where it comes from: {text}",
    )


def _scale(text: str, windows: int, *, targets: int) -> Scale:
    # Seven held-out books are too few for a verdict, and nothing here was trained on the others.
    split = "all" if text == "books" else "test"
    influence = {
        "length": 512,
        "short": 48,
        "kept": [1, 2, 4, 8],
        "windows": windows,
        "examined": 32,
        "targets": targets,
    }
    return Scale(
        model="smollm2-135m",
        text=text,
        split=split,
        measures={"influence": {**influence, "candidates": 10, "batch_size": 32}},
    )


def _smoke(text: str) -> Scale:
    influence = {"length": 96, "short": 16, "kept": [1, 4], "windows": 3, "examined": 12, "targets": 1}
    return Scale(
        model="tiny-books",
        text=text,
        measures={"influence": {**influence, "candidates": 5, "gain": 0.1, "batch_size": 32}},
    )


INFLUENCE = Study(
    title="Do a few tokens of a long context suffice?",
    parts=(_part("books"), _part("code")),
    lead=(
        "How much of the gain from long context do k well-chosen distant tokens recover? After figures 2 and 6 of "
        "The Role of Sparsity for Length Generalization in LLMs.",
    ),
)
