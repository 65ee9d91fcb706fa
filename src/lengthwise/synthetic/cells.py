"""What a sweep runs: cells (one configuration each) at a scale. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained from several seeds at once.

    Args:
        task: a name of `tasks.BIT_TASKS`.
        encoding: a name of `encodings.ENCODINGS`.
        function: the output reparameterization, a name of `reparameterization.FUNCTIONS`.
        shift: train on function(y + shift).
        train_length: lengths in training are uniform on 1 .. this.
        optimizer: a name of `optimizers.OPTIMIZERS`.
        alignment: the long-short alignment trained with, a name of `alignment.ALIGNMENTS`; None for none.
        weight: its alpha, 0 without.
    """

    task: str
    encoding: str = "none"
    function: str = "identity"
    shift: int = 0
    train_length: int = 10
    optimizer: str = "adam"
    alignment: str | None = None
    weight: float = 0.0

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        shifted = f"(y+{self.shift})" if self.shift else ""
        aligned = f", aligned by {self.alignment} {self.weight:g}" if self.alignment else ""
        return (
            f"{self.task}, {self.encoding}, {self.function}{shifted}, 1..{self.train_length}, "
            f"{self.optimizer}{aligned}"
        )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a sweep is.

    Args:
        name: as it is chosen.
        seeds: models of each cell.
        steps: training steps; an optimizer may take a multiple of them.
        batch: samples a step and model.
        test_length: tested at every length 1 .. this.
        samples: test strings for each length, the same for all models.
        width, layers, heads: of every model; the inner layer is four times as wide.
        table: positions of encodings that have a table.
    """

    name: str
    seeds: int
    steps: int
    batch: int
    test_length: int
    samples: int
    width: int = 16
    layers: int = 2
    heads: int = 4
    table: int = 128


SCALES: dict[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(name="default", seeds=5, steps=3000, batch=16, test_length=50, samples=256),
        Scale(
            name="smoke", seeds=2, steps=20, batch=8, test_length=12, samples=8, width=8, layers=1, heads=2
        ),
    )
}
