"""Studies of language models: arms and measures as data. What is trained and measured lies in the store of arms.

Arms that are measured on the same text predict the same tokens, so their differences are paired by document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.checkpoints.extending import extend
from lengthwise.machine import process_count
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.settings import Dtype
from lengthwise.subjects import load
from lengthwise.text import load_corpus
from lengthwise.training import read_recipe
from lengthwise.training.recipe import Recipe
from lengthwise_studies.arms import Arm, Scale, arm_after, steps_at
from lengthwise_studies.contrasts import Contrast, check_contrasts, differences
from lengthwise_studies.skeleton import Part, Sections
from lengthwise_studies.step_times import fast_dtype, measure_step_times
from lengthwise_studies.store import key_of, measured, recipe_key, store_folder, trained

if TYPE_CHECKING:
    from lengthwise_studies.tiny_models import TinyModel

ByArm = dict[str, dict[str, Results]]
"""The results of every measure, by arm and measure."""
FAN_OUT: ContextVar[Callable[[Experiment, Scale], None] | None] = ContextVar("FAN_OUT", default=None)
"""What fills the store before its arms are read: see `fan_out`."""
_OF_AN_ARM = ("recipe", "changes", "method", "factor", "text", "measures")
"""What makes an arm another model than the others."""

# All arms, seeds and marks are measured on the same few texts.
_text = lru_cache(maxsize=3)(load_corpus)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms, measures and what is compared.

    Args:
        kind: of the results.
        arms: in the order of tables.
        recipe: that trained arms start from, unless they have their own.
        reference: the arm that the others are compared with; None for no differences.
        contrasts: what claims compare, beside each arm and its reference.
        equal_time: whether arms train for as long as the one that they are compared with, by their measured time a
            step, in place of as many steps.
        seeded, only_seed: whether rows tell seeds apart; the one seed that is run, None: all of the scale.
        dtype: of the measurements, a name that `load` takes, or "fast": that of `fast_dtype`.
        fast_training: whether arms train in `fast_dtype`, whatever the recipe says.
        notes: with `{documents}`, `{seeds}`, `{precision}`, `{recipe...}` and `{measures...}` filled in.
    """

    kind: str
    arms: tuple[Arm, ...]
    recipe: str | None = None
    reference: str | None = None
    contrasts: tuple[Contrast, ...] = ()
    equal_time: bool = False
    seeded: bool = False
    only_seed: int | None = None
    dtype: Dtype | Literal["fast"] = "auto"
    fast_training: bool = False
    notes: tuple[str, ...] = ()

    def part(self, sections: Sections, scales: Mapping[str, Scale], **where: Any) -> Part:
        """The experiment as a part of a study."""
        return Part(
            run=self.run, sections=sections, scales=scales, plan=lambda scale: [(self, scale)], **where
        )

    def run(
        self, out: Path | str, scale: Scale, *, settings: dict[str, Any] | None = None, **how: Any
    ) -> Results:
        """Train and measure every arm that the store lacks, and write rows and paired differences to `out`.

        `settings` is what the run records; default: `self.settings(scale)`.

        Raises:
            UsageError: a contrast that cannot be measured, before anything is trained; see also `RunFolder`.
            Interrupted: finished arms and samples stay in the store.
        """
        check_contrasts(self.contrasts, self.arms, scale)
        settings = self.settings(scale) if settings is None else settings
        with RunFolder(out, kind=self.kind, config=settings, **how) as folder:
            if finished := folder.finished:
                return finished
            if (fan_out := FAN_OUT.get()) is not None:
                fan_out(self, scale)
            results = self.fill(scale)
            results.config = settings
            results.provenance = {**self._provenance(scale), **results.provenance}
            folder.write_results(results)
            return results

    def settings(self, scale: Scale) -> dict[str, Any]:
        """What a run records, and a resumed run must agree with."""
        recipe = self.recipe_of(scale)
        return asdict(scale) | {
            "dtype": self._dtype(),
            "equal_time": self.equal_time,
            "arms": {
                arm.name: {name: value for name in _OF_AN_ARM if (value := getattr(arm, name)) is not None}
                for arm in self.arms
            },
            "recipe": None if recipe is None else recipe.to_dict(),
            "steps": None if recipe is None else recipe.steps,
        }

    def fill(self, scale: Scale) -> Results:
        """Train and measure what the store lacks, in this process. The results have no settings yet."""
        paces, rows = self._paces(scale)
        places: dict[str, dict[str, str]] = {}

        def measure(arms: Sequence[Arm], seed: int | None, after: int | None = None) -> ByArm:
            found: ByArm = {}
            for arm in arms:
                found[arm.name], files = self._measured(arm, scale, seed, paces.get(arm.name, 1.0), after)
                if after is None:
                    places[arm.name if seed is None else f"{arm.name}, seed {seed}"] = files
                of_arm = (row for results in found[arm.name].values() for row in results.rows)
                rows.extend(replace(row, arm=arm_after(arm.name, after), seed=seed) for row in of_arm)
            return found

        untrained: ByArm = {}
        for seed in self.seeds(scale):
            if self._has_starts(scale) or not untrained:
                of = seed if self._has_starts(scale) else None
                as_they_are = [arm for arm in self.arms if arm.changes is None and arm.starts_at(of)]
                untrained = measure(as_they_are, of)
            for after in (None, *scale.marks):
                found = measure(self.trained_arms, seed, after)
                alike = {**untrained, **found} if after is None else found
                rows.extend(self._differences(alike, seed, after))
        recipe = self.recipe_of(scale)
        facts = {
            "documents": len(_text(scale.text, split=scale.split).documents),
            "seeds": f"{scale.seeds} fine-tuning seed{'s' if scale.seeds > 1 else ''}",
            "precision": self._dtype(),
            "recipe": recipe,
            "measures": scale.measures,
        }
        return Results(
            kind=self.kind,
            model_name=scale.model,
            config={},
            rows=rows,
            notes=[note.format_map(facts) for note in self.notes],
            provenance={"arms": places},
        )

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
        """One experiment for each arm and seed; an untrained arm is one, unless every seed has its own start."""
        return [
            replace(self, arms=(arm,), reference=None, only_seed=seed)
            for arm in self.arms
            for seed in ([None] if arm.changes is None and not self._has_starts(scale) else self.seeds(scale))
            if arm.starts_at(seed)
        ]

    def recipe_of(
        self, scale: Scale, arm: Arm | None = None, seed: int | None = None, pace: float = 1.0
    ) -> Recipe | None:
        """The recipe at this scale, of an arm and seed where given, for `pace` times as many steps."""
        shipped = (arm and arm.recipe) or self.recipe
        if shipped is None:
            return None
        changes = [f"model={scale.model if arm is None else _folder(scale.start(seed, arm))}", *scale.changes]
        # Shares of the training state need several processes; one has it whole.
        changes += ["parallel=null"] if process_count() == 1 else []
        changes += [f"precision={fast_dtype()}"] if self.fast_training else []
        changes += (arm and arm.changes) or ()
        changes += [] if seed is None else [f"seed={seed}"]
        changes += [] if scale.steps is None else [f"steps={scale.steps}"]
        recipe = read_recipe(shipped, changes)
        if arm is None or (pace == 1 and not scale.marks):
            return recipe
        if scale.marks:
            changes.append(f"save_at={[steps_at(mark, pace) for mark in scale.marks]}")
        return read_recipe(shipped, [*changes, f"steps={steps_at(recipe.steps, pace)}"])

    def _has_starts(self, scale: Scale) -> bool:
        """Whether every seed has a model of its own."""
        return scale.pretrained is not None or any(arm.own_start for arm in self.arms)

    def _against(self, arm: Arm) -> str | None:
        return arm.against or self.reference

    def _provenance(self, scale: Scale) -> dict[str, Any]:
        if all(arm.own_start for arm in self.arms):
            return {}
        return {"model": load(_folder(scale.start(0)), dtype=self._dtype()).describe()}

    def _paces(self, scale: Scale) -> tuple[dict[str, float], list[Row]]:
        """In equal-time mode, steps of each arm for one of its reference, and the measured times as rows."""
        if not self.equal_time:
            return {}, []
        found = ((arm.name, self.recipe_of(scale, arm, 0)) for arm in self.trained_arms)
        recipes = {name: recipe for name, recipe in found if recipe is not None}
        keys = {name: recipe_key(recipe) for name, recipe in recipes.items()}
        seconds = measure_step_times(recipes, store_folder() / f"step-times-{key_of(keys)}.json")
        row = Row(model=scale.model, task="training", metric="seconds_per_step", value=None, unit="seconds")
        paces = {
            arm.name: seconds[against] / seconds[arm.name]
            for arm in self.trained_arms
            if (against := self._against(arm)) is not None
        }
        return paces, [replace(row, arm=name, value=value) for name, value in seconds.items()]

    def _differences(self, found: ByArm, seed: int | None, after: int | None) -> list[Row]:
        pairs = [
            (arm.name, against)
            for arm in self.arms
            if arm.compared and (against := self._against(arm)) is not None
        ]
        pairs += [(each.arm, each.against) for each in self.contrasts]
        return [
            replace(row, arm=arm_after(one, after), reference=arm_after(other, after), seed=seed)
            for one, other in dict.fromkeys(pairs)
            if one in found and other in found
            for row in differences(found, one, other, self.contrasts)
        ]

    def _measured(
        self, arm: Arm, scale: Scale, seed: int | None, pace: float, after: int | None
    ) -> tuple[dict[str, Results], dict[str, str]]:
        """The results of every measure of an arm, and the files of their samples; `after` so many steps if given."""
        start, measures, facts = scale.start(seed, arm), scale.measures_of(arm), {}
        source = _folder(start)
        if arm.changes is None:
            model = load(source, dtype=self._dtype())
            folder = store_folder() / key_of({"model": model.fingerprint()})
        else:
            recipe = self.recipe_of(scale, arm, seed, pace)
            assert recipe is not None
            folder = trained(recipe)
            of = folder / "train" / "model"
            if after is not None:
                measures, facts = scale.mark_measures, {"steps": steps_at(after, pace)}
                of = folder / "train" / "checkpoints" / f"checkpoint-{facts['steps']}"
            adapter = (of / "adapter_config.json").is_file()
            files = str(of)
            model = load(
                source if adapter else files, dtype=self._dtype(), adapter=files if adapter else None
            )
        if arm.method is not None:
            extend(model.model, arm.method, factor=arm.factor)
        # Rows name the study's model; arm and seed tell which training. A path would differ between machines.
        own = start if isinstance(start, str) else start.name
        model.name = scale.model if arm.own_start is None else own
        text = _text(arm.text or scale.text, split=scale.split)
        facts |= {"dtype": self._dtype(), "method": arm.method, "factor": arm.factor}
        return measured(model, text, measures, folder, evaluator=source, **facts)

    def _dtype(self) -> Dtype:
        return fast_dtype() if self.dtype == "fast" else self.dtype


def _folder(start: TinyModel | str) -> str:
    """The name or folder of a model, pretrained at the first call."""
    return start if isinstance(start, str) else str(start.build())
