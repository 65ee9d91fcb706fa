"""Studies of language models: arms and measures as data, every arm trained (or resumed) and measured once.

All arms of an experiment are measured on the same tokens, so their differences are paired by document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from lengthwise.measure import MEASUREMENTS, Measurement, paired_difference
from lengthwise.models import LoadedModel, load
from lengthwise.models.extension import extend
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.spec import Dtype
from lengthwise.studies.skeleton import Part, Section
from lengthwise.text import Corpus, load_corpus, tokenize
from lengthwise.training import read_recipe, train_or_resume
from lengthwise.training.recipe import Recipe

MEASURES = {entry.task or entry.name: entry for entry in MEASUREMENTS.values()}
"""The measurements by the names that scales use: the task of their rows, "eval" for questions."""

Measures = Mapping[str, Mapping[str, Any]]
"""The settings of each measure, by name."""
Measured = dict[str, Measurement]
FAN_OUT: ContextVar[Callable[[Experiment, Scale, Path], None] | None] = ContextVar("FAN_OUT", default=None)
"""What fills the folders of arms and seeds on other machines before they are read (`studies.fan_out`)."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One model of an experiment.

    Args:
        name: of the curve or column.
        question: what the arm is for.
        changes: what differs from the experiment's recipe in training; None: not trained.
        method: a rope method switched on without training, by `factor`.
        factor: of `method`.
        compared: whether the arm is compared with the reference.
    """

    name: str
    question: str = ""
    changes: tuple[str, ...] | None = None
    method: str | None = None
    factor: float = 1.0
    compared: bool = True

    @property
    def slug(self) -> str:
        """Its folder's name."""
        return self.name.replace(",", "").replace(" ", "-").lower()


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large an experiment is.

    Args:
        model: what all arms start from.
        measures: what is measured of every arm.
        seeds: fine-tuning seeds (data order and offsets); each trains every arm.
        steps: training steps; None: as the recipe says.
        changes: of the recipe, for all arms.
        text: what arms are measured on: the test split of this corpus.
    """

    model: str
    measures: Measures
    seeds: int = 1
    steps: int | None = None
    changes: tuple[str, ...] = ()
    text: str = "books"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms, measures and what is said of them.

    Args:
        kind: of the results.
        arms: in the order of tables.
        recipe: that all trained arms start from.
        reference: the arm that the others are compared with; None for no differences.
        seeded: whether rows tell seeds apart.
        dtype: of the measurements, a name that `load` takes, or "fast": that of `training_precision`.
        fast_training: whether arms train in `training_precision`, whatever the recipe says.
        notes: with `{documents}`, `{seeds}`, `{tokens}`, `{precision}`, `{recipe...}` and `{measures...}` filled in.
    """

    kind: str
    arms: tuple[Arm, ...]
    recipe: str | None = None
    reference: str | None = None
    seeded: bool = False
    dtype: Dtype | Literal["fast"] = "auto"
    fast_training: bool = False
    notes: tuple[str, ...] = ()

    def part(
        self,
        sections: Callable[[Results, Path], list[Section]],
        scales: Mapping[str, Scale],
        *,
        folder: str = ".",
        heading: str = "Where it comes from",
    ) -> Part:
        """The experiment as a part of a study."""
        return Part(run=self.run, sections=sections, scales=scales, folder=folder, heading=heading)

    def run(self, out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
        """Train and measure every arm; finished arms and samples stay in `out`.

        Returns:
            Rows by arm (and seed), and the paired differences from the reference.

        Raises:
            UsageError: see `RunFolder`.
            Interrupted: Ctrl-C. Finished arms and samples stay.
        """
        recipe = self._recipe(scale)
        settings = {
            "model": scale.model,
            "dtype": self._dtype(),
            "seeds": scale.seeds,
            "steps": None if recipe is None else recipe.steps,
            "measures": {name: dict(of) for name, of in scale.measures.items()},
            "arms": {arm.name: _set_fields(arm) for arm in self.arms},
            "recipe": None if recipe is None else recipe.to_dict(),
        }
        with RunFolder(
            out, kind=self.kind, config=settings, writes=("parts",), resume=resume, overwrite=overwrite
        ) as folder:
            if folder.finished:
                return folder.read_results()
            if (fan_out := FAN_OUT.get()) is not None:
                fan_out(self, scale, folder.path / "parts")
            results = self._measured(scale, recipe, folder.path / "parts")
            results.config = settings
            folder.write_results(results)
            return results

    def _measured(self, scale: Scale, recipe: Recipe | None, parts: Path) -> Results:
        start = load(scale.model, dtype=self._dtype())
        text = load_corpus(scale.text, split="test")
        provenance: dict[str, Any] = {"model": start.describe()}
        pretraining = Path(start.source) / "pretraining.json"
        if pretraining.is_file():
            provenance["pretraining"] = json.loads(pretraining.read_text())
        # Large models are not held twice.
        del start
        untrained = {
            arm.name: self._measure(arm, scale, text, parts / arm.slug)
            for arm in self.arms
            if arm.changes is None
        }
        rows = [row for name, measured in untrained.items() for row in _rows(measured, arm=name)]
        for seed in self._seeds(scale):
            folder = parts if seed is None else parts / f"seed-{seed}"
            trained = {
                arm.name: self._measure(arm, scale, text, folder / arm.slug, seed=seed)
                for arm in self.arms
                if arm.changes is not None
            }
            for name, measured in trained.items():
                rows += _rows(measured, arm=name, seed=seed)
            rows += self._differences({**untrained, **trained}, seed)
        facts = {
            "documents": len(text.documents),
            "seeds": f"{scale.seeds} fine-tuning seed{'s' if scale.seeds > 1 else ''}",
            "precision": self._dtype(),
            "recipe": recipe,
            "measures": scale.measures,
            "tokens": 0 if recipe is None else recipe.steps * recipe.batch.size * recipe.length * 2,
        }
        return Results(
            kind=self.kind,
            model_name=scale.model,
            config={},
            rows=rows,
            notes=[note.format_map(facts) for note in self.notes],
            provenance=provenance,
        )

    def _seeds(self, scale: Scale) -> list[int | None]:
        return list(range(scale.seeds)) if self.seeded else [None]

    def _differences(self, measured: Mapping[str, Measured], seed: int | None) -> list[Row]:
        if self.reference is None:
            return []
        base = measured[self.reference]
        return [
            replace(row, arm=arm.name, reference=self.reference, seed=seed)
            for arm in self.arms
            if arm.compared and arm.name != self.reference
            for name, own in measured[arm.name].items()
            for row in paired_difference(own, base[name])
        ]

    def _measure(
        self, arm: Arm, scale: Scale, text: Corpus, folder: Path, *, seed: int | None = None
    ) -> Measured:
        model = self._prepared(arm, scale, folder / "train", seed)
        return measure(model, text, scale.measures, folder)

    def _prepared(self, arm: Arm, scale: Scale, folder: Path, seed: int | None) -> LoadedModel:
        """The model of an arm: as it is, extended, or trained."""
        dtype = self._dtype()
        if arm.changes is None:
            model = load(scale.model, dtype=dtype)
        else:
            recipe = self._recipe(scale, arm, seed)
            assert recipe is not None
            trained = str(train_or_resume(recipe, folder))
            if recipe.adapter or recipe.peft:
                model = load(scale.model, dtype=dtype, adapter=trained)
            else:
                model = load(trained, dtype=dtype)
        if arm.method is not None:
            extend(model.model, arm.method, factor=arm.factor)
        # Rows name the study's model; arm and seed tell which training. A path would differ between machines.
        model.name = scale.model
        return model

    def _recipe(self, scale: Scale, arm: Arm | None = None, seed: int | None = None) -> Recipe | None:
        """The recipe at this scale, of an arm and seed where given."""
        if self.recipe is None:
            return None
        changes = [f"model={scale.model}", *scale.changes]
        if self.fast_training:
            changes.append(f"precision={training_precision()}")
        if arm is not None:
            changes += arm.changes or ()
        if seed is not None:
            changes.append(f"seed={seed}")
        if scale.steps is not None:
            changes.append(f"steps={scale.steps}")
        return read_recipe(self.recipe, changes)

    def _dtype(self) -> Dtype:
        return training_precision() if self.dtype == "fast" else self.dtype


def measure(model: LoadedModel, text: Corpus, measures: Measures, folder: Path) -> Measured:
    """Every measurement of one model. Finished samples stay in `folder`, from where a second call continues.

    Raises:
        Interrupted: Ctrl-C. Finished samples stay.
        UsageError: the folder holds samples of other text or settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # One call for all measurements: the text is tokenised once.
    documents = tokenize(text, model.tokenizer)
    return {
        name: MEASURES[name].load(MEASURES[name].function)(
            model,
            text if name == "eval" else documents,
            MEASURES[name].spec_class(**settings),
            log=SampleLog(folder / f"{name}.jsonl"),
        )
        for name, settings in measures.items()
    }


def training_precision() -> Dtype:
    """bfloat16 where the processor multiplies it at full speed, else float32.

    It decides between minutes and hours on a CPU. Small disagreements need float32 all the same: bf16 rounding alone
    is a few hundredths of a nat.
    """
    processor = torch.cpu.get_capabilities()
    fast = any(processor.get(unit) for unit in ("avx512_bf16", "amx_bf16"))
    if fast or (torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)):
        return "bfloat16"
    return "float32"


def _rows(measured: Measured, *, arm: str, seed: int | None = None) -> list[Row]:
    return [replace(row, arm=arm, seed=seed) for one in measured.values() for row in one.rows]


def _set_fields(arm: Arm) -> dict[str, Any]:
    """What makes the arm another model than the others."""
    extended = {} if arm.method is None else {"method": arm.method, "factor": arm.factor}
    return extended if arm.changes is None else {**extended, "changes": list(arm.changes)}
