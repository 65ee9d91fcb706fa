"""A real model read to twice its context: each rope method untrained, and PI before and after a short LoRA run.

SmolLM2 was trained for 8192 tokens. Every arm predicts the same held-out tokens in windows of 16384, so losses by
position and their differences are paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.files import atomic_write_text
from lengthwise.measure import Measurement, PerplexitySpec, measure_perplexity, paired_difference
from lengthwise.models import LoadedModel, load
from lengthwise.models.extension import extend
from lengthwise.report.figures import loss_by_position
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.studies.produced import Produced
from lengthwise.studies.real_model import training_precision
from lengthwise.text import TokenDocuments, load_corpus, tokenize
from lengthwise.training import open_run, read_recipe, train

MODEL = "smollm2-135m"
NONE = "none"
FACTOR = 2.0


@dataclass(frozen=True)
class Arm:
    """One curve: a rope method, and what LoRA steps were taken after it."""

    method: str | None
    divergence: str | None = None
    alpha: float | None = None
    """None is no training, 0 plain cross entropy on both windows."""


ARMS: dict[str, Arm] = {
    NONE: Arm(None),
    "dynamic": Arm("dynamic_ntk"),
    "YaRN x2": Arm("yarn"),
    "NTK x2": Arm("ntk"),
    "PI x2": Arm("pi"),
    "PI x2, LoRA with CE": Arm("pi", "sce", 0.0),
    "PI x2, LoRA with Jeffreys 10": Arm("pi", "jeffreys", 10.0),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured and trained."""

    length: int = 16384
    segments: int = 3
    bins: int = 16
    training_length: int = 1024
    steps: int = 20
    arms: tuple[str, ...] = tuple(ARMS)


def run_extension(
    out: Path | str,
    *,
    plan: Plan = Plan(),
    model: str = MODEL,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Loss by position of every arm, and paired differences from the model as it is.

    Measured in bfloat16 where the processor multiplies it at full speed: collapse is a matter of nats.

    Raises:
        Interrupted: Ctrl-C; finished segments and training steps stay.
    """
    precision = training_precision()
    settings = {**asdict(plan), "arms": list(plan.arms), "model": model, "precision": precision}
    with RunFolder(out, kind="extension", config=settings, resume=resume, overwrite=overwrite) as folder:
        if folder.finished:
            return folder.read_results()
        parts = folder.path / "parts"
        documents = tokenize(load_corpus("books", split="test"), load(model).tokenizer)
        measured: dict[str, Measurement] = {}
        rows: list[Row] = []
        for name in plan.arms:
            place = parts / name.replace(" ", "-").replace(",", "").lower()
            loaded = _prepared(ARMS[name], model, precision, plan, place)
            measured[name] = _measure(loaded, documents, plan, place)
            rows += [replace(row, model=model, arm=name) for row in measured[name].rows]
            if NONE in measured and name != NONE:
                differences = paired_difference(measured[name], measured[NONE])
                rows += [replace(row, model=model, arm=name, reference=NONE) for row in differences]
            del loaded
        results = Results(
            kind="extension",
            model_name=model,
            config=settings,
            rows=rows,
            notes=[
                *measured[plan.arms[0]].notes,
                f"{plan.segments} windows of {plan.length} tokens of held-out books; every arm predicts the same "
                f"tokens. Computed in {precision}.",
                f"LoRA: {plan.steps} steps of two windows of {plan.training_length} tokens, the same in all arms.",
            ],
        )
        folder.write_results(results)
        return results


def _prepared(arm: Arm, model: str, precision: str, plan: Plan, place: Path) -> LoadedModel:
    place.mkdir(parents=True, exist_ok=True)
    if arm.alpha is not None:
        return load(
            model, dtype=precision, adapter=str(_trained(arm, model, precision, plan, place / "train"))
        )
    loaded = load(model, dtype=precision)
    if arm.method is not None:
        extend(loaded.model, arm.method, factor=FACTOR)
    return loaded


def _trained(arm: Arm, model: str, precision: str, plan: Plan, folder: Path) -> Path:
    """The adapter's folder; trained once, and gone on with after an interruption."""
    recipe = read_recipe(
        "smollm2-lora",
        [
            f"model={model}",
            f"precision={precision}",
            f"length={plan.training_length}",
            f"steps={plan.steps}",
            "batch.size=1",
            "batch.micro=1",
            f"extend.method={arm.method}",
            f"extend.factor={FACTOR}",
            f"objective.divergence={arm.divergence}",
            f"objective.alpha={arm.alpha}",
        ],
    )
    begun = (folder / "config.yaml").exists()
    with open_run(folder, recipe, resume=begun) as run:
        train(recipe, run, resume=begun)
    return folder / "model"


def _measure(loaded: LoadedModel, documents: TokenDocuments, plan: Plan, place: Path) -> Measurement:
    return measure_perplexity(
        loaded,
        documents,
        PerplexitySpec(lengths=(plan.length,), segments=plan.segments, position_bins=plan.bins),
        log=SampleLog(place / "perplexity.jsonl"),
    )


def produce_extension(out: Path, *, resume: bool = False, overwrite: bool = False) -> Produced:
    """Run the study in `out` (or go on with it) and write its page; raises as `run_extension`."""
    results = run_extension(out, resume=resume, overwrite=overwrite)
    section = extension_section(results)
    page = out / "report.html"
    provenance: dict[str, Any] = {"settings": results.config, **results.provenance}
    atomic_write_text(
        page,
        render_page(
            "How far does a model hold, and which extension carries it further?",
            section.paragraphs[0],
            [section],
            {"Where it comes from": provenance},
            partial=results.partial,
        ),
    )
    return Produced(page, list(section.tables))


def extension_section(results: Results) -> Section:
    """Table and picture of the loss by position."""
    drawn = [row for row in results.rows if row.reference is None]
    pictures = (loss_by_position(drawn, name="extension-loss-by-position"),)
    return Section(
        title="Loss by position to twice the context",
        paragraphs=[
            f"`{results.model_name}` was trained for 8192 tokens and is read here to {results.config['length']}. "
            "The loss of the same tokens by their position in the window, for each way to extend the context."
        ],
        tables=[position_table(results)],
        figures=[picture for picture in pictures if picture is not None],
        notes=results.notes,
    )


def position_table(results: Results) -> Table:
    """One line for each stretch of positions, one column for each arm; nats per token."""
    arms = list(results.config["arms"])
    rows = [row for row in results.rows if row.task == "perplexity" and row.metric == "loss"]
    plain = [row for row in rows if row.reference is None]
    stretches = sorted({(row.position, row.position_end) for row in plain if row.position is not None})

    def line(rows_of: list[Row]) -> Iterator[Estimate | None]:
        for arm in arms:
            found = [row for row in rows_of if row.arm == arm]
            yield Estimate(found[0].value, found[0].ci_low, found[0].ci_high) if found else None

    cells: list[list[Cell]] = []
    for begin, end in stretches:
        here = [row for row in plain if (row.position, row.position_end) == (begin, end)]
        cells.append([f"{begin}-{(end or 0) - 1}", *line(here)])
    cells.append(["all", *line([row for row in plain if row.position is None])])
    return Table(
        columns=["position", *arms],
        rows=cells,
        caption="Loss (nats per token) by position, with 95 % intervals over documents",
    )
