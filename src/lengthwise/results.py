"""The results contract: tidy rows with intervals, and where they came from.

`results.json` of every run folder is one `Results`. Tables and pictures are made from its `rows`.
`docs/reference/results.schema.json` is its JSON schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.json_schema import SkipJsonSchema

from lengthwise.errors import UsageError, require_kind, require_known
from lengthwise.files import named_path, read_json

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SCHEMA_VERSION = 2
SIGNIFICANCE = 0.05
"""The chance of one false "more than noise" in a table that is accepted."""
PLACE = (
    "task",
    "metric",
    "unit",
    "length",
    "context",
    "context_other",
    "position",
    "position_end",
    "distance",
    "kept",
    "depth",
    "bucket",
    "version",
)
"""The fields of a row that say which number it is."""

# The docstring under each field becomes its description in the schema.
_described = with_config(ConfigDict(use_attribute_docstrings=True))


@_described
@dataclass(frozen=True, kw_only=True)
class Row:
    """One number with its interval. Fields that do not apply to a measurement are None."""

    model: str
    """Model as the user named it."""
    task: str
    """What was measured: misalignment, perplexity, limit, training, ..."""
    metric: str
    """Which number: sce, entropy, jeffreys, loss, benefit, ..."""
    value: float | None
    """The number; None where it is undefined (never NaN)."""
    unit: str = "nats"
    """Unit of value and interval: nats (per token), tokens, share, ratio."""
    length: int | None = None
    """Context length in tokens."""
    context: int | None = None
    """The longer of two compared contexts, in tokens (upper end of a bin); `length` is then their maximum, L."""
    context_other: int | None = None
    """The shorter one."""
    position: int | None = None
    """First position (0-based token index in the window) of a bin by position."""
    position_end: int | None = None
    """End (exclusive) of that bin."""
    distance: int | None = None
    """Tokens from a passage to its repetition."""
    kept: int | None = None
    """How many distant tokens the context keeps beside the near ones, for influence."""
    depth: float | None = None
    """Where in the context the answer is, in per cent of it: 0 is its beginning; None averages over all depths."""
    bucket: str | None = None
    """Bucket of lengths (LongBench-E: 0-4k, 4-8k, 8k+, in words); None averages over all rows."""
    version: int | None = None
    """Version of the task."""
    arm: str | None = None
    """Which of several variants, where a run compares variants."""
    seed: int | None = None
    """Which seed, where a run has several."""
    reference: str | None = None
    """For a paired difference: the arm or model that was subtracted."""
    p_holm: float | None = None
    """For a paired difference: its p-value, corrected for the number of differences in the table (Holm)."""
    stderr: float | None = None
    """Bootstrap standard error."""
    ci_low: float | None = None
    """Lower end of the 95 % interval (bootstrap over documents unless a note says otherwise)."""
    ci_high: float | None = None
    """Upper end of that interval."""
    n: int | None = None
    """How many comparisons or target tokens the value averages."""
    documents: int | None = None
    """How many documents they come from."""
    truncated: int = 0
    """How many samples were cut to fit."""
    at_least: bool | None = None
    """True where the value is a lower bound: measuring ended there (for a limit)."""

    @property
    def is_whole(self) -> bool:
        """Whether this is not a detail of another row: a bin, a pair of contexts, one depth or one bucket."""
        return self.position is self.context_other is self.depth is self.bucket is None

    @property
    def is_headline(self) -> bool:
        """Whether a table shows this row first: a whole number of one model, no difference of two."""
        return self.is_whole and self.reference is None

    @property
    def place(self) -> tuple[Any, ...]:
        """Which number this is, whatever the model, arm or seed: equal on both sides of a paired difference."""
        return tuple(getattr(self, name) for name in PLACE)

    def to_dict(self) -> dict[str, Any]:
        """Its fields that apply, and the value."""
        return {name: value for name, value in asdict(self).items() if value is not None or name == "value"}

    @property
    def beyond_noise(self) -> bool | None:
        """Whether a paired difference is more than noise: `p_holm` below SIGNIFICANCE; None if not tested."""
        return None if self.p_holm is None else self.p_holm < SIGNIFICANCE


def rows_with(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Rows whose fields equal `wanted`, in order; there may be none."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


@_described
@dataclass(kw_only=True, repr=False)
class Results:
    """Everything that a run found; `partial` if it was interrupted."""

    kind: str
    """Which verb made it."""
    model_name: str
    """Model or recipe, as the user named it."""
    config: dict[str, Any]
    """Resolved settings; a run with the same settings gives the same rows."""
    rows: list[Row]
    """Tidy records, one number each."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the numbers must know: limits, cut rows, missing intervals."""
    partial: bool = False
    """True when the run was interrupted or limited."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Versions, machine, command, and what the measurement adds (BOS, corpus, dtype, views)."""
    schema_version: int = SCHEMA_VERSION
    """Version of this shape; a reader refuses any other."""
    records: SkipJsonSchema[dict[str, dict[str, Any]]] = field(default_factory=dict, compare=False)
    """The finished items that the rows are made from, by key: those of `samples.jsonl`, not part of the JSON."""

    def __post_init__(self) -> None:
        for row in self.rows:
            for name in ("value", "stderr", "ci_low", "ci_high"):
                number = getattr(row, name)
                assert number is None or math.isfinite(number), f"{row.task}/{row.metric}: {name} is {number}"
        # As they will be read back (tuples become lists), so that results in memory equal those of a file.
        self.config, self.provenance = (
            json.loads(json.dumps(each)) for each in (self.config, self.provenance)
        )

    def to_json(self, **first: Any) -> str:
        """The object as indented JSON, after the entries of `first`; row fields that do not apply are left out."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "records"}
        plain = {**first, **plain, "rows": [row.to_dict() for row in self.rows]}
        return json.dumps(plain, indent=2, allow_nan=False) + "\n"

    def select(self, **wanted: Any) -> list[Row]:
        """Rows whose fields equal `wanted`, in order: `results.select(task="limit", distance=64)`.

        None selects rows that do not have a field. UsageError for a field that no row has, or a value.
        """
        names = [each.name for each in fields(Row)]
        for name, value in wanted.items():
            require_known(name, names, "a row has no field")
            if value is not None:
                known = [each for row in self.rows if (each := getattr(row, name)) is not None]
                require_known(value, known, f"no row has {name} =")
        return rows_with(self.rows, **wanted)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a table, one number a line; columns in which no row has anything are left out.

        Raises:
            MissingError: pandas is not installed.
        """
        from lengthwise.versions import need

        need("pandas")
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows]).dropna(axis="columns", how="all")

    def picture(self, name: str | None = None) -> Figure:
        """A figure of the page, the first or the one of this name, as matplotlib's `Figure`.

        Raises:
            MissingError: matplotlib is not installed.
            UsageError: the run has no picture of that name, or none at all.
        """
        from lengthwise.versions import need

        need("matplotlib")
        return _face("figures").picture_of(self, name)

    def __repr__(self) -> str:
        """How an interpreter shows it: the sentence, and how many rows there are."""
        return f"<Results of {self.kind}, {len(self.rows):,} rows: {_face('sentence').said(self).sentence}>"

    def _repr_html_(self) -> str:
        """How a notebook shows it: the sentence, then the headline numbers."""
        return _face("html").results_html(self)


def _face(name: str) -> Any:
    """What shows results. It lies on a higher floor, and is loaded by its name when somebody looks."""
    return import_module(f"lengthwise.report.{name}")


def read_results(path: Path | str) -> Results:
    """Read a `results.json`, which is named by itself or by its run folder.

    Raises:
        UsageError: not there, not JSON, not this schema, or of another version.
    """
    path = named_path(path, what="the results")
    file = path / "results.json" if path.is_dir() else path
    return parse_results(
        read_json(file, expected="the results.json of a run folder", finite=True), source=file
    )


def parse_results(plain: dict[str, Any], *, source: Path | str = "results") -> Results:
    """`read_results` of the plain values of the JSON; `source` names them in errors."""
    require_kind("results", plain, dict, "the plain values of a results.json")
    version = plain.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{source} has schema_version {version!r}",
            expected=f"{SCHEMA_VERSION}, the results.json of a run folder",
            fix="read it with the version of lengthwise that wrote it, or measure again",
        )
    try:
        return _ADAPTER.validate_python(plain)
    except ValidationError as error:
        raise UsageError(f"{source} does not match the results schema: {error}") from error


def percent(share: float, digits: int | None = 0) -> str:
    """A share in words; with None one that was set, as it was set.

    >>> percent(0.126), percent(0.125, None)
    ('13 %', '12.5 %')
    """
    return f"{100 * share:g} %" if digits is None else f"{100 * share:.{digits}f} %"


_ADAPTER = TypeAdapter(Results)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, by step; a torn last line of a killed run is left out.

    A step has a line of its own numbers and may have some of its evaluation; of equal numbers the last ones count.
    """
    by_step: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                by_step.setdefault(record["step"], {}).update(record)
    return [by_step[step] for step in sorted(by_step)]
