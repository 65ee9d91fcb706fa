"""The bridge on a needle: k = 1 in the data at distance D, in a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.machine import progress
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.models import load
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.studies.precision import fast_dtype
from lengthwise.studies.skeleton import Claim, Part, Verdict, claims_table
from lengthwise.studies.sparsity.influence_page import FEWEST_DOCUMENTS, TOO_FEW
from lengthwise.studies.sparsity.needles import ANSWERS, SENTENCE, examine_needle, planted
from lengthwise.studies.sparsity.shares import read_scale
from lengthwise.text import Split, load_corpus, sample_windows, tokenize

MOST = 0.8
"""The share of the gain that counts as nearly all."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the needle part is.

    Args:
        model: a name that `load` takes.
        split: of the books. Seven held-out ones are too few for a verdict, and nothing is trained here.
        prompts: texts for each distance, the same ones at all.
        length: tokens of a text.
        short: near tokens.
        distances: of the needle's answer to the place where it is asked for.
        kept: distant tokens that are kept.
        candidates: distant tokens that greedy tries.
    """

    model: str = "smollm2-135m"
    split: Split = "all"
    prompts: int = 12
    length: int = 512
    short: int = 64
    distances: tuple[int, ...] = (32, 96, 256, 480)
    kept: tuple[int, ...] = (1, 2, 4)
    candidates: int = 10


SCALES = {
    "default": Scale(),
    "smoke": Scale(
        model="tiny-books",
        split="test",
        prompts=2,
        length=64,
        short=16,
        distances=(12, 40),
        kept=(1, 2),
        candidates=3,
    ),
}


def run(out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Examine every needle; a finished one is not examined again."""
    config = {"scale": asdict(scale)}
    with RunFolder(out, kind="bridge-needle", config=config, resume=resume, overwrite=overwrite) as folder:
        if finished := folder.finished:
            return finished
        model = load(scale.model, dtype=fast_dtype())
        sentence, *answers = (
            np.array(model.tokenizer(text, add_special_tokens=False)["input_ids"])
            for text in (SENTENCE, *ANSWERS)
        )
        documents = tokenize(load_corpus("books", split=scale.split), model.tokenizer)
        windows = sample_windows(documents, scale.length, count=scale.prompts, seed=0)
        places = [(index, distance) for index in range(scale.prompts) for distance in scale.distances]
        missing = [place for place in places if _key(*place) not in folder.samples]
        for index, distance in progress(missing, what="needles"):
            window, answer = windows[index], int(answers[index % len(answers)][0])
            found = examine_needle(
                model,
                planted(window.ids, sentence, answer, distance),
                short=scale.short,
                kept=scale.kept,
                candidates=scale.candidates,
                batch_size=32,
            )
            folder.samples.append(_key(index, distance), {"document": window.document_id, **found})
        records = {
            distance: [folder.samples[_key(index, distance)] for index in range(scale.prompts)]
            for distance in scale.distances
        }
        results = Results(
            kind="bridge-needle",
            model_name=scale.model,
            config=config,
            rows=rows_of(records, scale),
            notes=[
                f"{scale.prompts} texts of {scale.length} tokens of books, the same at every distance; near "
                f"context {scale.short} tokens. `{SENTENCE.strip()}` with one of {len(ANSWERS)} words, twice.",
                "Intervals over documents. Removed tokens are masked for every query in every layer: a kept answer "
                "alone does not know what came before it.",
            ],
            provenance={"model": model.describe()},
        )
        folder.write_results(results)
        return results


def _key(index: int, distance: int) -> str:
    return f"needle/w{index:03d}/D{distance}"


def rows_of(records: dict[int, list[dict[str, Any]]], scale: Scale) -> list[Row]:
    """Every number by distance, with intervals over documents."""
    found: list[Row] = []

    def add(
        metric: str,
        distance: int,
        pair: Callable[[dict[str, Any]], tuple[float, float]],
        *,
        unit: str = "nats",
        kept: int | None = None,
    ) -> None:
        pairs = [(one["document"], pair(one)) for one in records[distance]]
        row = Row(
            model=scale.model,
            task="needle",
            metric=metric,
            value=None,
            unit=unit,
            length=scale.length,
            distance=distance,
            kept=kept,
            n=len(pairs),
        )
        found.append(estimate(Statistic.of(row, pairs)))

    for distance in scale.distances:
        add("gain", distance, lambda one: (one["short"] - one["long"], 1.0))
        add("loss_long", distance, lambda one: (one["long"], 1.0))
        add("jeffreys", distance, lambda one: (one["jeffreys"], 1.0))
        if "rank" not in records[distance][0]:
            continue
        add("rank", distance, lambda one: (one["rank"], 1.0), unit="rank")
        add("first", distance, lambda one: (float(one["rank"] == 1), 1.0), unit="share")
        for name in ("alone", "sentence"):
            add(
                f"recovered_{name}",
                distance,
                lambda one, name=name: (one["short"] - one[name], one["short"] - one["long"]),
                unit="share",
            )
        for column, k in enumerate(scale.kept):
            add(
                "recovered_greedy",
                distance,
                lambda one, column=column: (
                    one["short"] - one["greedy"][column],
                    one["short"] - one["long"],
                ),
                unit="share",
                kept=k,
            )
            add(
                "chosen_in_needle",
                distance,
                lambda one, column=column, k=k: (one["chosen"][column], k),
                unit="share",
                kept=k,
            )
    return found


Numbers = dict[tuple[int, str, int | None], Row]
"""By distance, metric and k."""


def sections(results: Results, folder: Path) -> list[Section]:
    """The needle by distance."""
    scale = read_scale(Scale, results)
    numbers: Numbers = {(row.distance or 0, row.metric, row.kept): row for row in results.rows}
    claims = claims_table(claims_of(scale), numbers, ours="ours")
    return [
        Section(
            title="A needle: k = 1 at distance D",
            paragraphs=[
                f"`{scale.model}` reads `{SENTENCE.strip()} ...` in a text of books, and is asked for the word D "
                "tokens later. The answer is in one place. How far do predictions with and without the distant "
                "tokens disagree, and how many of them does the model need?",
            ],
            tables=[*([claims] if claims else []), distances_table(scale, numbers)],
            notes=results.notes,
        )
    ]


def distances_table(scale: Scale, numbers: Numbers) -> Table:
    """One line for each number, one column for each distance."""
    lines: list[tuple[str, str, int | None]] = [
        ("loss with all context, nats", "loss_long", None),
        ("gain from distant context, nats", "gain", None),
        ("Jeffreys, nats", "jeffreys", None),
        ("rank of the answer's token by gradient", "rank", None),
        ("rank 1, share of texts", "first", None),
        ("gain recovered by the answer's token alone", "recovered_alone", None),
        ("by the whole needle", "recovered_sentence", None),
        *((f"by {k} greedy token{'s' if k > 1 else ''}", "recovered_greedy", k) for k in scale.kept),
        *((f"share of these in the needle, k = {k}", "chosen_in_needle", k) for k in scale.kept),
    ]
    rows: list[list[Cell]] = []
    for name, metric, k in lines:
        found = [numbers.get((distance, metric, k)) for distance in scale.distances]
        rows.append(
            [name, *(None if row is None else Estimate(row.value, row.ci_low, row.ci_high) for row in found)]
        )
    return Table(
        columns=["", *(f"D = {distance}" for distance in scale.distances)],
        rows=rows,
        caption=f"A needle at distance D; near context {scale.short} tokens, 95 % intervals over documents",
    )


def claims_of(scale: Scale) -> tuple[Claim, ...]:
    """The bridge's statements on the needle."""
    far = [distance for distance in scale.distances if distance > scale.short]
    near = [distance for distance in scale.distances if distance <= scale.short]

    def few(rows: list[Row]) -> str | None:
        decided = all((row.documents or 0) >= FEWEST_DOCUMENTS and row.ci_low is not None for row in rows)
        return None if decided else TOO_FEW

    def full(numbers: Numbers) -> Verdict | None:
        inside = [numbers[distance, "jeffreys", None] for distance in near]
        outside = [numbers[distance, "jeffreys", None] for distance in far]
        ours = _texts([*inside, *outside])
        if (said := few([*inside, *outside])) is not None:
            return ours, said
        pairs = [(beyond, within) for beyond in outside for within in inside]
        if all((beyond.ci_low or 0.0) > (within.ci_high or 0.0) for beyond, within in pairs):
            return ours, "holds"
        below = any((beyond.ci_high or 0.0) < (within.ci_low or 0.0) for beyond, within in pairs)
        return ours, "does not hold" if below else "not decided"

    def at_least(metric: str) -> Callable[[Numbers], Verdict | None]:
        def judge(numbers: Numbers) -> Verdict | None:
            rows = [numbers[distance, metric, None] for distance in far]
            if (said := few(rows)) is not None:
                return _texts(rows), said
            if all((row.ci_low or 0.0) >= MOST for row in rows):
                return _texts(rows), "holds"
            below = any(row.ci_high is not None and row.ci_high < MOST for row in rows)
            return _texts(rows), "does not hold" if below else "not decided"

        return judge

    return (
        Claim(
            place="the bridge",
            claim="disagreement is small up to the near context and full beyond it",
            paper="in neither paper",
            judge=full,
            rule="every interval of Jeffreys beyond the near context lies above every one within it",
        ),
        Claim(
            place="the bridge",
            claim="the answer's token, alone, is enough: one token in the data is one in the model",
            paper="in neither paper",
            judge=at_least("recovered_alone"),
            rule=f"it recovers {MOST:.0%} of the gain or more at every far distance (whole interval)",
        ),
        Claim(
            place="the bridge",
            claim="the needle's sentence is enough",
            paper="in neither paper",
            judge=at_least("recovered_sentence"),
            rule=f"it recovers {MOST:.0%} of the gain or more at every far distance (whole interval)",
        ),
    )


def _texts(rows: list[Row]) -> str:
    return "; ".join(
        f"D = {row.distance}: {Estimate(row.value, row.ci_low, row.ci_high).text}" for row in rows
    )


NEEDLE = Part(run=run, sections=sections, scales=SCALES, folder="needle", heading="The needle")
