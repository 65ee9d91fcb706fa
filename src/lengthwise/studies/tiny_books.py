"""The small controlled study: what does each term of the objective do to a model of 1M parameters?

`tiny-books` is trained from scratch at L = 128, then fine-tuned in arms that share data, offsets e and both
cross entropies, so that only the term differs. Beside them stands the same model with YaRN x4 switched on
and no training, so that nobody takes a gain at 4L for a solution.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.models import LoadedModel, load
from lengthwise.models.extension import extend
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.studies.evaluation import Evaluation, Plan, evaluate
from lengthwise.text import TokenDocuments, load_corpus, tokenize
from lengthwise.training import open_run, read_recipe, train

MODEL = "tiny-books"
LENGTH = 128
PLAIN = "plain CE"
YARN = "YaRN x4, untrained"
START = "before fine-tuning"


@dataclass(frozen=True)
class Arm:
    """One way to fine-tune: the term of the objective and its weight."""

    name: str
    divergence: str
    alpha: float
    question: str


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(PLAIN, "sce", 0.0, "the baseline: the same windows, no term"),
        Arm("SCE 0.1", "sce", 0.1, "the paper's objective at the weight that it recommends"),
        Arm("entropy 0.1", "entropy", 0.1, "the control: is SCE more than sharpening?"),
        Arm("Jeffreys 10", "jeffreys", 10.0, "the disagreement alone, weighted to matter"),
    )
}

PLAN = Plan(
    misalignment_length=LENGTH,
    windows=96,
    loss_lengths=(LENGTH, 2 * LENGTH, 4 * LENGTH),
    segments=64,
    distances=(64, 128, 256),
    pairs=192,
)


def run_tiny_books(
    out: Path | str,
    *,
    seeds: int = 1,
    steps: int | None = None,
    plan: Plan = PLAN,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Run the study; every arm and every measurement is kept in `out`, so an interrupted run goes on.

    Args:
        out: the run folder.
        seeds: fine-tuning seeds (order of the data and offsets e); each runs every arm.
        steps: fine-tuning steps in place of the recipe's.
        plan: how much is measured.
        resume, overwrite: as in `RunFolder`.

    Returns:
        Rows by arm and seed, and for each the paired difference from plain CE (`reference`).

    Raises:
        UsageError: fewer than one seed; see `RunFolder`.
        Interrupted: Ctrl-C; finished arms stay.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}", expected="1 or more")
    recipe = read_recipe(MODEL)
    settings = {"seeds": seeds, "steps": steps or recipe.steps, "plan": plan.to_dict()}
    with RunFolder(
        out, kind=MODEL, config=settings, writes=("parts",), resume=resume, overwrite=overwrite
    ) as folder:
        if folder.finished:
            return folder.read_results()
        start, extended = load(MODEL), load(MODEL)
        extend(extended.model, "yarn", factor=4)
        documents = tokenize(load_corpus("books", split="test"), start.tokenizer)
        parts = folder.path / "parts"
        rows: list[Row] = []
        untrained = {
            START: evaluate(start, documents, plan, folder=parts / "start"),
            YARN: evaluate(extended, documents, plan, folder=parts / "yarn"),
        }
        for name, evaluation in untrained.items():
            rows += evaluation.rows(arm=name)
        for seed in range(seeds):
            rows += _run_seed(
                seed, untrained, documents, plan, steps=settings["steps"], folder=parts / f"seed-{seed}"
            )
        results = Results(
            kind=MODEL,
            model_name=MODEL,
            config=settings,
            rows=rows,
            notes=_notes(documents, seeds),
            provenance={"model": start.describe(), "pretraining": _pretraining(start)},
        )
        folder.write_results(results)
        return results


def _run_seed(
    seed: int,
    untrained: dict[str, Evaluation],
    documents: TokenDocuments,
    plan: Plan,
    *,
    steps: int,
    folder: Path,
) -> list[Row]:
    evaluations: dict[str, Evaluation] = {}
    for arm in ARMS.values():
        place = folder / arm.name.lower().replace(" ", "-")
        model = _fine_tuned(arm, seed, steps=steps, folder=place / "train")
        evaluations[arm.name] = evaluate(model, documents, plan, folder=place)
    rows: list[Row] = []
    for name, evaluation in evaluations.items():
        rows += evaluation.rows(arm=name, seed=seed)
    plain = evaluations.pop(PLAIN)
    for name, evaluation in {**untrained, **evaluations}.items():
        rows += evaluation.differences(plain, arm=name, reference=PLAIN, seed=seed)
    return rows


def _fine_tuned(arm: Arm, seed: int, *, steps: int, folder: Path) -> LoadedModel:
    recipe = read_recipe(
        MODEL,
        [
            f"objective.divergence={arm.divergence}",
            f"objective.alpha={arm.alpha}",
            f"seed={seed}",
            f"steps={steps}",
        ],
    )
    begun = (folder / "config.yaml").exists()
    with open_run(folder, recipe, resume=begun) as run:
        train(recipe, run, resume=begun)
    model = load(str(folder / "model"))
    # Rows name the study's model; arm and seed tell which training, and a folder's path is no one else's.
    model.name = MODEL
    return model


def _pretraining(model: LoadedModel) -> dict[str, Any]:
    """How the checkpoint was made, as its folder records it."""
    return json.loads((Path(model.source) / "pretraining.json").read_text())


def _notes(documents: Sequence[Any], seeds: int) -> list[str]:
    return [
        f"Held-out text: {len(documents)} whole books that neither training saw; every arm is measured on the "
        "same tokens.",
        "Intervals of one model are over documents. Differences are paired: same tokens, and in training the "
        "same windows, offsets e and cross entropies.",
        f"{seeds} fine-tuning seed{'s' if seeds > 1 else ''} of one pretrained checkpoint; another checkpoint "
        "may differ by more than the intervals say.",
        "The model is tiny, its context is 128 tokens, and it uses little text from far back: perplexity "
        "hardly punishes forgetting, so read recall beside it.",
    ]
