"""Claims that compare trained arms of two settings of a table. An experiment compares only its own arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lengthwise.results import Row
from lengthwise.studies.arms import Scale
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.measured_model import Measured, differences
from lengthwise.studies.paired_claims import PairedClaim


@dataclass(frozen=True)
class Block:
    """A setting that has been run.

    Args:
        named: what an arm of the experiment is called in the table.
        experiment: of the setting.
        scale: that it was run at.
        parts: where its arms are.
    """

    named: Callable[[str], str]
    experiment: Experiment
    scale: Scale
    parts: Path

    @property
    def measured_on(self) -> object:
        """What two blocks must share so that their arms predict the same tokens."""
        return (self.scale.text, self.scale.split, self.scale.of_trained, self.scale.seeds)


def differences_between(blocks: Sequence[Block], claims: Sequence[PairedClaim]) -> list[Row]:
    """The paired differences for these claims, of arms after all steps.

    Arms are read from their folders, which takes one load of each model.

    Raises:
        Interrupted: Ctrl-C.
    """
    places = {
        block.named(arm.name): (block, arm.name) for block in blocks for arm in block.experiment.trained_arms
    }

    @cache
    def measured(named: str, seed: int | None) -> Measured:
        block, name = places[named]
        return block.experiment.measured_arm(block.scale, block.parts, name, seed)

    rows: list[Row] = []
    for pair in dict.fromkeys((claim.arm, claim.against) for claim in claims):
        if not all(name in places for name in pair):
            continue
        one, other = (places[name][0] for name in pair)
        if one is other:
            continue
        assert one.measured_on == other.measured_on, pair
        for seed in one.experiment.seeds(one.scale):
            own, its = (measured(name, seed) for name in pair)
            rows += differences(own, its, arm=pair[0], reference=pair[1], seed=seed)
    return rows
