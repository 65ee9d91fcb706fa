"""The tables of the hardware page (`make tables`). Computed, but for `measured`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.errors import UsageError
from lengthwise.measure.limit import MOST_REFERENCE
from lengthwise.report.tables import Cell, Table
from tools.docs.hardware import (
    EVAL,
    FORMS,
    LENGTHS,
    READINGS,
    SIZES,
    WAYS,
    Reading,
    Way,
    one_sample,
    reading_memory,
    reading_operations,
    training_memory,
    window_operations,
)

RATE = 4e14
"""bfloat16 operations a second that all times take: an H100 at 40 % of its peak, as the recipes assume."""
AN_EXAMPLE = 32768
"""The length, in tokens, at which the table of samples counts what is read."""


def _digits(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _gigabytes(size: float) -> str:
    return _digits(size / 1e9)


def duration(operations: float) -> str:
    """The time of so many operations at `RATE`."""
    seconds = operations / RATE
    for unit, one in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= one:
            return f"{_digits(seconds / one)} {unit}"
    return f"{_digits(1000 * seconds)} ms"


def _by_length(first: tuple[str, ...], rows: Sequence[Sequence[Cell]]) -> Table:
    return Table(columns=[*first, *(f"{length // 1024}k" for length in LENGTHS)], rows=rows)


def _samples() -> Table:
    """What each verb reads for one sample, and how many samples it takes by default."""

    def line(reading: Reading) -> list[Cell]:
        spec = reading.made(AN_EXAMPLE)
        read = _digits(sum(item.tokens for item in one_sample(spec, AN_EXAMPLE)) / AN_EXAMPLE)
        return [reading.command, getattr(spec, spec.wanted), spec.wanted, f"{read} L"]

    return Table(
        columns=["command", "samples by default", "which are", f"tokens read for one (L = {AN_EXAMPLE:,})"],
        rows=[
            *(line(reading) for reading in READINGS),
            [EVAL, 10, "contexts of five questions", "1.0 L"],
        ],
    )


def _reading_memory() -> Table:
    """GB at the default batch sizes.

    `limit` and `eval` keep the keys and values of a row, and of the copy that a question continues. `limit` reads a
    row in blocks, and short contexts of the reference length.
    """

    def need(size: str, verb: str, length: int) -> str:
        if verb == "eval":
            return _gigabytes(reading_memory(size, length, kept=2 * length))
        spec = next(each for each in READINGS if each.verb == verb).made(length)
        longest = MOST_REFERENCE if verb == "limit" else one_sample(spec, length)[0].longest
        return _gigabytes(
            reading_memory(size, spec.batch_size * longest, kept=2 * length if verb == "limit" else 0)
        )

    names = {"ppl": "measure, ppl, recall, longppl"}
    return _by_length(
        ("model", "verbs"),
        [
            [size, names.get(verb, verb), *(need(size, verb, length) for length in LENGTHS)]
            for size in SIZES
            for verb in ("ppl", "limit", "eval", "influence")
        ],
    )


def _reading_time() -> Table:
    """Of one sample, by verb."""

    def time(size: str, parts: list[tuple[int, int]] | None) -> str:
        return "" if parts is None else duration(reading_operations(size, parts))

    rows: list[list[Cell]] = []
    for size in SIZES:
        for reading in READINGS:
            rows.append([size, reading.verb, *(time(size, reading.parts(length)) for length in LENGTHS)])
        rows.append([size, "eval", *(time(size, [(length, length)]) for length in LENGTHS)])
    return _by_length(("model", "verb"), rows)


def _training_memory(views: str) -> Table:
    """GB on each device; `views` is how many views of a window are trained."""

    def need(size: str, way: Way, length: int) -> str:
        return _gigabytes(training_memory(size, way, views=int(views), length=length))

    return _by_length(
        ("model", "trained"),
        [
            [size, way.name, *(need(size, way, length) for length in LENGTHS)]
            for size in SIZES
            for way in WAYS
        ],
    )


def _training_time() -> Table:
    """Of one window on one device, by form."""
    lora, every = Way(name="LoRA", lora=True), Way(name="all weights")
    return _by_length(
        ("model", "trained", "form"),
        [
            [
                size,
                way.name,
                form,
                *(duration(window_operations(size, way, form, length)) for length in LENGTHS),
            ]
            for size in SIZES
            for way in (lora, every)
            for form in FORMS
        ],
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measured number, with the words of the page that has it."""

    what: str
    value: str
    machine: str
    page: str
    """Below `docs`."""
    quoted: str


_ONE_CORE = "one CPU core"
MEASURED = (
    Measured(
        what="eval, 135M, five questions ranked on one context of 1,024 tokens, above the model",
        value="4.4 s, 0.47 GB",
        machine=_ONE_CORE + ", quiet machine",
        page="explanation/evaluation.md",
        quoted="4.4 seconds and 473 MB",
    ),
    Measured(
        what="reproduce extension, 135M: seven readings of three windows of 16,384 tokens, two trainings of 20 steps",
        value="40 min",
        machine=_ONE_CORE,
        page="explanation/methods.md",
        quoted="about 40 minutes of one core",
    ),
    Measured(
        what="one LoRA step of two views of 1,024 tokens, 135M, float32",
        value="21 s",
        machine=_ONE_CORE,
        page="explanation/performance.md",
        quoted="| LoRA, fused L* | 21.0 (19.0-23.1) |",
    ),
    Measured(
        what="one step of all weights, two views of 1,024 tokens, 135M, float32",
        value="24 s",
        machine=_ONE_CORE,
        page="explanation/performance.md",
        quoted="| all weights, fused L* | 24.4 (23.9-24.9) |",
    ),
    Measured(
        what="weights, gradients and AdamW's moments of every 7B and 8B recipe (on a tiny model, two processes)",
        value="the plan's number to the byte",
        machine="CPU",
        page="how-to/parallel.md",
        quoted="the first process had allocated exactly the planned number of bytes",
    ),
)


def _measured(root: Path) -> Table:
    """The measured numbers.

    Raises:
        UsageError: a page no longer says so.
    """
    for one in MEASURED:
        if one.quoted not in " ".join((root / "docs" / one.page).read_text().split()):
            raise UsageError(f"docs/{one.page} does not say {one.quoted!r}", fix="change MEASURED")
    return Table(
        columns=["what", "measured", "machine", "source"],
        rows=[[one.what, one.value, one.machine, one.page] for one in MEASURED],
    )


TABLES: dict[str, Callable[..., Table]] = {
    "samples": lambda root: _samples(),
    "reading-memory": lambda root: _reading_memory(),
    "reading-time": lambda root: _reading_time(),
    "training-memory": lambda root, views: _training_memory(views),
    "training-time": lambda root: _training_time(),
    "measured": _measured,
}
"""Name of a table of the page -> its maker, from the repository and the arguments."""
