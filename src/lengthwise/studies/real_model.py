"""A real model before and after a few steps with the objective: what so few steps can show, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lengthwise.models import load
from lengthwise.report.differences import paired_differences
from lengthwise.report.figures import (
    jeffreys_by_position,
    loss_by_length,
    misalignment_parts,
    recall_by_distance,
    training_curves,
)
from lengthwise.report.html import Section
from lengthwise.report.row_tables import difference_rows, headline_rows, side_by_side
from lengthwise.report.tables import Table
from lengthwise.report.terminal import sce_sentence
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder, read_metrics
from lengthwise.studies.evaluation import Plan, evaluate
from lengthwise.text import load_corpus, tokenize
from lengthwise.training import open_run, read_recipe, train

RECIPE = "smollm2-lora"
BEFORE = "before"
AFTER = "after"

PLAN = Plan(
    misalignment_length=512,
    windows=12,
    loss_lengths=(256, 512, 1024),
    segments=6,
    distances=(64, 256, 1024),
    pairs=7,
    batch_size=4,
)

_SHOWN = ("sce", "entropy", "jeffreys", "loss", "perplexity", "benefit")


def run_real_model(
    out: Path | str,
    *,
    steps: int | None = None,
    model: str | None = None,
    plan: Plan = PLAN,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Measure, train a LoRA adapter for a few steps, measure the same tokens again.

    Args:
        out: the run folder; it keeps the adapter and every sample, so an interrupted run goes on.
        steps, model: in place of the recipe's.
        plan: how much is measured.
        resume, overwrite: as in `RunFolder`.

    Returns:
        Rows of both arms, and the paired differences (`reference`).

    Raises:
        Interrupted: Ctrl-C; what is finished stays.
    """
    changes = [
        f"precision={training_precision()}",
        *([f"steps={steps}"] if steps is not None else []),
        *([f"model={model}"] if model is not None else []),
    ]
    recipe = read_recipe(RECIPE, changes)
    settings: dict[str, Any] = {"recipe": recipe.to_dict(), "plan": plan.to_dict()}
    with RunFolder(out, kind="real-model", config=settings, resume=resume, overwrite=overwrite) as folder:
        if folder.finished:
            return folder.read_results()
        parts = folder.path / "parts"
        start = load(recipe.model, dtype="float32")
        documents = tokenize(load_corpus(recipe.data.corpus, split="test"), start.tokenizer)
        before = evaluate(start, documents, plan, folder=parts / BEFORE)
        described = start.describe()
        # Two copies of a large model need not be held at once.
        del start
        begun = (parts / "train" / "config.yaml").exists()
        with open_run(parts / "train", recipe, resume=begun) as run:
            trained = train(recipe, run, resume=begun)
        adapted = load(recipe.model, dtype="float32", adapter=str(parts / "train" / "model"))
        after = evaluate(adapted, documents, plan, folder=parts / AFTER)
        results = Results(
            kind="real-model",
            model_name=recipe.model,
            config=settings,
            rows=[
                *before.rows(arm=BEFORE),
                *after.rows(arm=AFTER),
                *after.differences(before, arm=AFTER, reference=BEFORE),
            ],
            notes=[
                f"{recipe.steps} steps of {recipe.batch.size} pairs of {recipe.length} tokens are "
                f"{recipe.steps * recipe.batch.size * recipe.length * 2:,} tokens: enough to see that the objective "
                "trains and what its parts do. They cannot show how the model behaves far beyond its "
                "training length, nor whether a benchmark score moves.",
                "There is no control arm here: a change can come from training on these books as well as from "
                "the term. Part B separates the two.",
                f"Held-out text: {len(documents)} whole books; before and after are measured on the same tokens.",
            ],
            provenance={"model": described, "training": trained.provenance},
        )
        folder.write_results(results)
        return results


def training_precision() -> str:
    """bfloat16 where the processor multiplies it at full speed, else float32.

    A matter of minutes on a CPU with bf16 units, and of hours on one that emulates them. Measurements are made in
    float32 on both: bf16 rounding alone is a few hundredths of the disagreement measured here.
    """
    processor = torch.cpu.get_capabilities()
    fast = any(processor.get(unit) for unit in ("avx512_bf16", "amx_bf16"))
    if fast or (torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)):
        return "bfloat16"
    return "float32"


def real_model_section(results: Results, folder: Path) -> Section:
    """The run as one part of a page; `folder` is its run folder (for the training log)."""
    values = [row for row in headline_rows(results.rows) if row.metric in _SHOWN]
    changes = [row for row in difference_rows(results.rows) if row.metric in _SHOWN]
    recipe = results.config["recipe"]
    pictures = (
        misalignment_parts(results.rows, name="real-parts"),
        jeffreys_by_position(results.rows, name="real-jeffreys-by-position"),
        loss_by_length(results.rows, name="real-loss-by-length"),
        recall_by_distance(results.rows, name="real-recall"),
        paired_differences(
            [row for row in changes if row.metric == "loss"], better="lower", name="real-loss-differences"
        ),
        training_curves(
            {"LoRA": read_metrics(folder / "parts" / "train" / "metrics.jsonl")}, name="real-training"
        ),
    )
    first = [row for row in results.rows if row.arm == BEFORE]
    said = sce_sentence(first)
    return Section(
        title="A real model",
        paragraphs=[
            f"`{results.model_name}` on books that it is not trained on here: measured, trained for "
            f"{recipe['steps']} LoRA steps with {recipe['objective']['divergence']} at weight "
            f"{recipe['objective']['alpha']:g} (L = {recipe['length']}), and measured again on the same tokens.",
            *([said] if said else []),
            *_reading(changes),
        ],
        tables=[_table(values, changes)],
        figures=[picture for picture in pictures if picture is not None],
        notes=results.notes,
    )


def _table(values: list[Row], changes: list[Row]) -> Table:
    return side_by_side(
        [*values, *(_as_column(row) for row in changes)],
        caption="Before and after on the same tokens, with 95 % intervals over documents",
    )


def _as_column(row: Row) -> Row:
    return replace(row, arm="after - before")


def _reading(changes: list[Row]) -> list[str]:
    """Which changes are larger than their paired interval, in one sentence."""
    clear = [
        f"{row.metric} at {row.distance or row.length} ({row.value:+.4f})"
        for row in changes
        if row.metric in ("jeffreys", "entropy", "loss", "benefit")
        and row.value is not None
        and row.ci_low is not None
        and row.ci_high is not None
        and (row.ci_low > 0 or row.ci_high < 0)
    ]
    if not clear:
        return ["No change is larger than its paired interval: so few steps show nothing beyond noise here."]
    return ["Changes whose paired 95 % interval excludes zero: " + ", ".join(clear) + "."]
