"""Finished trainings of earlier runs, which an experiment takes over instead of training the same recipe again.

    lengthwise reproduce table4 --scale laptop --arms-from runs/table2 --out runs/table4

Tables of the paper share arms: table 4 has those of table 2 and two more. A training is taken over if its recipe is
the same, down to the seed, and if the model that it starts from and its text have the same fingerprints. Samples are
taken over of measures with the same settings, on the same text.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.files import atomic_write_text, read_json
from lengthwise.runs import finished_results
from lengthwise.settings import parse_yaml, read_yaml, to_yaml
from lengthwise.studies.arms import Arm, samples_file, slug
from lengthwise.text import load_corpus
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.training_run import run_inputs

if TYPE_CHECKING:
    from lengthwise.training.recipe import Recipe

EARLIER_RUNS: ContextVar[tuple[Path, ...]] = ContextVar("EARLIER_RUNS", default=())
"""The runs whose arms experiments may take over."""


@dataclass(frozen=True)
class EarlierArm:
    """A finished training, and the samples beside it.

    Args:
        folder: of the arm: `train/`, samples by measure, `after-STEPS/`.
        recipe: that it was trained with.
        settings: of the experiment that it belongs to.
        inputs: fingerprints of the model that it started from and of its text.
    """

    folder: Path
    recipe: Mapping[str, Any]
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def trained_as(self, recipe: Mapping[str, Any]) -> bool:
        """Whether it was trained with that recipe. It may have kept more checkpoints, which change nothing else."""
        kept, wanted = ({*of.get("save_at", ())} for of in (self.recipe, recipe))
        return wanted <= kept and {**self.recipe, "save_at": []} == {**recipe, "save_at": []}


@contextlib.contextmanager
def arms_from(runs: Sequence[Path]) -> Iterator[None]:
    """Let experiments inside the block take finished arms of these runs.

    Raises:
        UsageError: a run holds no finished training of an experiment.
    """
    for run in runs:
        if next(earlier_arms([run]), None) is None:
            raise UsageError(
                f"{run} holds no finished training of a study's arm",
                expected="the --out of an earlier `lengthwise reproduce`",
            )
    token = EARLIER_RUNS.set(tuple(runs))
    try:
        yield
    finally:
        EARLIER_RUNS.reset(token)


def earlier_arms(runs: Sequence[Path]) -> Iterator[EarlierArm]:
    """Every finished training below these folders."""
    for run in runs:
        for train in sorted(run.rglob("train")):
            arm = train.parent
            # RUN/parts/[seed-S/]ARM/train
            parts = arm.parent if arm.parent.name == "parts" else arm.parent.parent
            if parts.name == "parts" and (parts.parent / "config.yaml").is_file() and finished_results(train):
                yield EarlierArm(
                    arm,
                    recipe=read_yaml(train / "config.yaml"),
                    settings=read_yaml(parts.parent / "config.yaml"),
                    inputs=read_json(train / "inputs.json", expected="fingerprints of a training's inputs"),
                )


def take_arms(
    wanted: Iterable[tuple[Path, Arm, Recipe]], settings: Mapping[str, Any], parts: Path
) -> dict[str, str]:
    """Copy arms that are finished elsewhere into their folders below `parts`, unless they were begun there.

    Args:
        wanted: the folder of each arm that is to be trained, the arm and its recipe.
        settings: of the experiment, as its run folder records them.
        parts: what the names of arms that were taken over are relative to.

    Returns:
        The folder of each arm that was taken over, and where it came from.
    """
    found = list(earlier_arms(EARLIER_RUNS.get()))
    inputs: dict[str, Mapping[str, Any]] = {}
    taken: dict[str, str] = {}
    for target, arm, recipe in wanted:
        if target.exists():
            continue
        plain = parse_yaml(to_yaml({"kind": "train", **recipe.to_dict()}), source="recipe")
        alike = [one for one in found if one.trained_as(plain)]
        if not alike:
            continue
        # Names of models and texts say too little: another model may lie in the same folder by now.
        read = to_yaml({name: plain.get(name) for name in _READ})
        if read not in inputs:
            data = recipe.data
            corpus = load_corpus(data.corpus, split=data.split, text_field=data.text_field)
            inputs[read] = run_inputs(load_for_training(recipe), corpus.fingerprint)
        if (same := next((one for one in alike if one.inputs == inputs[read]), None)) is not None:
            _copy(same, target, plain, _shared_samples(same, arm, settings))
            taken[str(target.relative_to(parts))] = str(same.folder)
    return taken


_READ = ("model", "extend", "seed", "shifted_sparse", "quantize", "precision", "adapter", "device", "data")
"""The parts of a recipe that decide which model and text a training reads; the seed draws CLEX's own weights."""


def _copy(earlier: EarlierArm, target: Path, recipe: Mapping[str, Any], samples: Sequence[str]) -> None:
    # Whole or not at all: an arm that was begun is never taken over.
    begun = target.with_name(f".{target.name}.part")
    shutil.rmtree(begun, ignore_errors=True)
    shutil.copytree(earlier.folder / "train", begun / "train")
    atomic_write_text(begun / "train" / "config.yaml", to_yaml(recipe))
    for name in samples:
        if (earlier.folder / name).is_file():
            (begun / name).parent.mkdir(exist_ok=True)
            shutil.copy2(earlier.folder / name, begun / name)
    begun.rename(target)


def _shared_samples(earlier: EarlierArm, arm: Arm, settings: Mapping[str, Any]) -> list[str]:
    """The files of samples that both experiments would take with the same settings."""
    theirs = earlier.settings
    alike = all(
        theirs.get(name) == settings.get(name) for name in ("dtype", "model", "starts", "text", "split")
    )
    other = next((of for name, of in theirs.get("arms", {}).items() if slug(name) == earlier.folder.name), {})
    own = settings["arms"][arm.name]
    if not alike or any(own.get(name) != other.get(name) for name in ("method", "factor")):
        return []
    found = [samples_file(measure) for measure in _same(_measures(theirs), _measures(settings))]
    for steps in set(theirs.get("marks", ())) & set(settings.get("marks", ())):
        of = (theirs.get("mark_measures", {}), settings.get("mark_measures", {}))
        found += [f"after-{steps}/{samples_file(measure)}" for measure in _same(*of)]
    return found


def _measures(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """What trained arms are measured by."""
    return settings.get("trained_measures", settings["measures"])


def _same(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    return [name for name, of in ours.items() if theirs.get(name) == of]
