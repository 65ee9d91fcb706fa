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

from lengthwise.machine import process_count
from lengthwise.models import LoadedModel, load
from lengthwise.models.extending import extend
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.settings import Dtype
from lengthwise.studies.arms import Arm, Scale, arm_after, kept_checkpoints, seed_folder, steps_at
from lengthwise.studies.earlier_arms import EARLIER_RUNS, take_arms
from lengthwise.studies.measured_model import Measured, differences, measure
from lengthwise.studies.precision import fast_dtype
from lengthwise.studies.recorded_settings import recorded_settings
from lengthwise.studies.skeleton import Part, Section
from lengthwise.studies.step_times import measure_step_times
from lengthwise.text import Corpus, load_corpus
from lengthwise.training import read_recipe, train
from lengthwise.training.recipe import Recipe

FAN_OUT: ContextVar[Callable[[Experiment, Scale, Path], None] | None] = ContextVar("FAN_OUT", default=None)
"""What fills the folders of arms and seeds before they are read: `studies.jobs`, or Ray (`studies.fan_out`)."""


def train_or_resume(recipe: Recipe, folder: Path) -> Path:
    """Train in `folder`, or continue or read the run of the same recipe there; its model's folder.

    Raises:
        UsageError, LengthwiseError, Interrupted: as `train`.
    """
    train(recipe, folder, resume=(folder / "config.yaml").exists())
    return folder / "model"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms, measures and what is said of them.

    Args:
        kind: of the results.
        arms: in the order of tables.
        recipe: that all trained arms start from.
        reference: the arm that the others are compared with; None for no differences.
        contrasts: further pairs of arms that are compared: the first minus the second.
        equal_time: whether arms train for as long as the reference, by their measured time a step, in place of as
            many steps.
        seeded: whether rows tell seeds apart.
        only_seed: the one seed of a seeded experiment that is run; None: all of the scale.
        dtype: of the measurements, a name that `load` takes, or "fast": that of `fast_dtype`.
        fast_training: whether arms train in `fast_dtype`, whatever the recipe says.
        notes: with `{documents}`, `{seeds}`, `{tokens}`, `{precision}`, `{recipe...}` and `{measures...}` filled in.
    """

    kind: str
    arms: tuple[Arm, ...]
    recipe: str | None = None
    reference: str | None = None
    contrasts: tuple[tuple[str, str], ...] = ()
    equal_time: bool = False
    seeded: bool = False
    only_seed: int | None = None
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
        return Part(
            run=self.run,
            sections=sections,
            scales=scales,
            folder=folder,
            heading=heading,
            plan=lambda scale: [(self, scale)],
            has_arms=True,
        )

    def run(self, out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
        """Train and measure every arm; finished arms and samples stay in `out`.

        Returns:
            Rows by arm (and seed), and the paired differences from the reference.

        Raises:
            UsageError: see `RunFolder`.
            Interrupted: Ctrl-C. Finished arms and samples stay.
        """
        settings = recorded_settings(
            scale,
            arms=self.arms,
            recipe=self.recipe_of(scale),
            dtype=self._dtype(),
            equal_time=self.equal_time,
        )
        with RunFolder(
            out, kind=self.kind, config=settings, writes=("parts",), resume=resume, overwrite=overwrite
        ) as folder:
            if finished := folder.finished:
                return finished
            taken = self._take_arms(scale, folder)
            if (fan_out := FAN_OUT.get()) is not None:
                fan_out(self, scale, folder.path / "parts")
            results = self.fill(scale, folder.path / "parts")
            if taken:
                results.provenance["taken over"] = taken
            results.config = settings
            folder.write_results(results)
            return results

    def fill(self, scale: Scale, parts: Path) -> Results:
        """Train and measure every arm in the folder `parts`, or what is left of it; the results have no settings.

        Raises:
            Interrupted: Ctrl-C. Finished arms and samples stay.
        """
        recipe = self.recipe_of(scale)
        provenance = self._provenance(scale)
        text = load_corpus(scale.text, split=scale.split)
        paces, rows = self._paces(scale, parts)
        untrained: dict[str, Measured] = {}
        if not scale.starts:
            untrained = self._untrained(scale, text, parts, None)
            rows += _rows_of(untrained)
        for seed in self.seeds(scale):
            folder = seed_folder(parts, seed)
            if scale.starts:
                untrained = self._untrained(scale, text, folder, seed)
                rows += _rows_of(untrained, seed=seed)
            trained: dict[str, Measured] = {}
            marked: dict[int, dict[str, Measured]] = {mark: {} for mark in scale.marks}
            for arm in self.trained_arms:
                own, at = folder / arm.slug, paces.get(arm.name, 1.0)
                trained[arm.name] = self._train_and_measure(arm, scale, text, own, seed, at)
                for mark in scale.marks:
                    kept = own / "train" / "checkpoints" / f"checkpoint-{steps_at(mark, at)}"
                    model = self._extended(arm, self._loaded(str(kept), scale, seed), scale)
                    marked[mark][arm.name] = measure(model, text, scale.mark_measures, own / f"after-{mark}")
            # Differences are paired, so arms that were measured otherwise have none.
            alike = trained if scale.trained_measures is not None else {**untrained, **trained}
            rows += _rows_of(trained, seed=seed) + self._differences(alike, seed)
            for mark, measured in marked.items():
                rows += _rows_of(measured, seed=seed, after=mark) + self._differences(
                    measured, seed, after=mark
                )
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

    def measured_arm(self, scale: Scale, parts: Path, name: str, seed: int | None) -> Measured:
        """The measurements of a trained arm after all steps; trains or measures what is missing in `parts`.

        Raises:
            Interrupted: Ctrl-C. Samples stay.
        """
        arm = next(arm for arm in self.trained_arms if arm.name == name)
        paces, _ = self._paces(scale, parts)
        text = load_corpus(scale.text, split=scale.split)
        folder = seed_folder(parts, seed) / arm.slug
        return self._train_and_measure(arm, scale, text, folder, seed, paces.get(name, 1.0))

    @property
    def trained_arms(self) -> list[Arm]:
        """The arms that are trained, in order."""
        return [arm for arm in self.arms if arm.changes is not None]

    def seeds(self, scale: Scale) -> list[int | None]:
        """The seeds that are run; [None] where rows do not tell them apart."""
        if not self.seeded:
            return [None]
        return list(range(scale.seeds)) if self.only_seed is None else [self.only_seed]

    def alone(self, scale: Scale) -> list[Experiment]:
        """One experiment for each arm and seed, which together fill the same folders.

        An untrained arm is one, unless every seed has its own start.
        """
        return [
            replace(self, arms=(arm,), reference=None, only_seed=seed)
            for arm in self.arms
            for seed in ([None] if arm.changes is None and not scale.starts else self.seeds(scale))
        ]

    def _take_arms(self, scale: Scale, folder: RunFolder) -> dict[str, str]:
        """Take over what earlier runs have finished, where the user names some."""
        if not EARLIER_RUNS.get():
            return {}
        parts = folder.path / "parts"
        paces, _ = self._paces(scale, parts)
        wanted = (
            (seed_folder(parts, seed) / arm.slug, arm, recipe)
            for seed in self.seeds(scale)
            for arm in self.trained_arms
            if (recipe := self.recipe_of(scale, arm, seed, paces.get(arm.name, 1.0))) is not None
        )
        return take_arms(wanted, folder.config, parts)

    def _provenance(self, scale: Scale) -> dict[str, Any]:
        start = load(scale.start(0), dtype=self._dtype())
        provenance: dict[str, Any] = {"model": start.describe()}
        pretraining = Path(start.source) / "pretraining.json"
        if pretraining.is_file():
            provenance["pretraining"] = json.loads(pretraining.read_text())
        return provenance

    def _paces(self, scale: Scale, parts: Path) -> tuple[dict[str, float], list[Row]]:
        """In equal-time mode, steps of each arm for one of the reference, and the measured times as rows."""
        if not self.equal_time:
            return {}, []
        assert self.reference is not None
        recipes = {
            arm.name: recipe
            for arm in self.trained_arms
            if (recipe := self.recipe_of(scale, arm, 0)) is not None
        }
        seconds = measure_step_times(recipes, parts / "step-times.json")
        base = seconds[self.reference]
        row = Row(model=scale.model, task="training", metric="seconds_per_step", value=None, unit="seconds")
        return {name: base / value for name, value in seconds.items()}, [
            replace(row, arm=name, value=value) for name, value in seconds.items()
        ]

    def _differences(
        self, measured: Mapping[str, Measured], seed: int | None, *, after: int | None = None
    ) -> list[Row]:
        if self.reference is None:
            return []
        pairs = [
            (arm.name, self.reference) for arm in self.arms if arm.compared and arm.name != self.reference
        ]
        pairs += [pair for pair in self.contrasts if pair not in pairs]
        return [
            row
            for one, other in pairs
            if one in measured and other in measured
            for row in differences(
                measured[one],
                measured[other],
                arm=arm_after(one, after),
                reference=arm_after(other, after),
                seed=seed,
            )
        ]

    def _untrained(self, scale: Scale, text: Corpus, parts: Path, seed: int | None) -> dict[str, Measured]:
        """Every arm that is not trained: the model as it is, or extended."""
        found: dict[str, Measured] = {}
        for arm in self.arms:
            if arm.changes is None:
                model = self._extended(arm, load(scale.start(seed), dtype=self._dtype()), scale)
                found[arm.name] = measure(
                    model, text, scale.measures, parts / arm.slug, evaluator=scale.start(seed)
                )
        return found

    def _train_and_measure(
        self, arm: Arm, scale: Scale, text: Corpus, folder: Path, seed: int | None, pace: float
    ) -> Measured:
        """A trained arm after all steps."""
        model = self._trained(arm, scale, folder / "train", seed, pace)
        return measure(model, text, scale.of_trained, folder, evaluator=scale.start(seed))

    def _trained(self, arm: Arm, scale: Scale, folder: Path, seed: int | None, pace: float) -> LoadedModel:
        recipe = self.recipe_of(scale, arm, seed, pace)
        assert recipe is not None
        model = self._loaded(str(train_or_resume(recipe, folder)), scale, seed)
        return self._extended(arm, model, scale)

    def _loaded(self, trained: str, scale: Scale, seed: int | None) -> LoadedModel:
        """The model, or adapter on the model that it was trained on, in a folder."""
        if (Path(trained) / "adapter_config.json").is_file():
            return load(scale.start(seed), dtype=self._dtype(), adapter=trained)
        return load(trained, dtype=self._dtype())

    def _extended(self, arm: Arm, model: LoadedModel, scale: Scale) -> LoadedModel:
        if arm.method is not None:
            extend(model.model, arm.method, factor=arm.factor)
        # Rows name the study's model; arm and seed tell which training. A path would differ between machines.
        model.name = scale.model
        return model

    def recipe_of(
        self, scale: Scale, arm: Arm | None = None, seed: int | None = None, pace: float = 1.0
    ) -> Recipe | None:
        """The recipe at this scale, of an arm and seed where given, for `pace` times as many steps."""
        if self.recipe is None:
            return None
        changes = [f"model={scale.model if arm is None else scale.start(seed)}", *scale.changes]
        if process_count() == 1:
            # Shares of the training state need several processes; one has it whole.
            changes.append("parallel=null")
        if self.fast_training:
            changes.append(f"precision={fast_dtype()}")
        if arm is not None:
            changes += arm.changes or ()
        if seed is not None:
            changes.append(f"seed={seed}")
        if scale.steps is not None:
            changes.append(f"steps={scale.steps}")
        recipe = read_recipe(self.recipe, changes)
        if arm is None:
            return recipe
        changes += kept_checkpoints([steps_at(mark, pace) for mark in scale.marks])
        return read_recipe(self.recipe, [*changes, f"steps={steps_at(recipe.steps, pace)}"])

    def _dtype(self) -> Dtype:
        return fast_dtype() if self.dtype == "fast" else self.dtype


def _rows_of(
    measured: Mapping[str, Measured], *, seed: int | None = None, after: int | None = None
) -> list[Row]:
    return [
        replace(row, arm=arm_after(name, after), seed=seed)
        for name, measurements in measured.items()
        for one in measurements.values()
        for row in one.rows
    ]
