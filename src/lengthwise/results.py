"""The results contract: tidy rows with intervals, and where they came from.

`results.json` of every run folder is one `Results`. Its `results` key has lm-eval's shape (task ->
`"metric,none"` -> value, `"metric_stderr,none"` -> standard error) so that existing readers work; `rows`
is what tables and pictures are made from. The JSON schema is `results_schema()`, kept in
`docs/results.schema.json`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from lengthwise.errors import UsageError

SCHEMA_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number with its interval. Fields that do not apply to a measurement stay None."""

    model: str
    """Model as the user named it."""
    task: str
    """What was measured: misalignment, perplexity, recall, training, ..."""
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
    """Distance in tokens, for recall."""
    depth: float | None = None
    """Where the answer stands in the context, in per cent of it; None averages over all depths."""
    bucket: str | None = None
    """Bucket of lengths (LongBench-E: 0-4k, 4-8k, 8k+, in words); None averages over all rows."""
    version: int | None = None
    """Version of the task."""
    arm: str | None = None
    """Which arm of a study."""
    seed: int | None = None
    """Which seed of a study."""
    reference: str | None = None
    """For a paired difference: the arm or model that was subtracted."""
    p_holm: float | None = None
    """For a paired difference: the chance of one so large by noise alone, corrected for all of the table (Holm)."""
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


@dataclass(kw_only=True)
class Results:
    """Everything a finished (or interrupted: `partial`) run says."""

    kind: str
    """Which verb or study made it."""
    model_name: str
    """Model, recipe or study, as the user named it."""
    config: dict[str, Any]
    """Resolved settings; running them again gives the same rows."""
    rows: list[Row]
    """Tidy records, one number each."""
    notes: list[str] = field(default_factory=list)
    """Plain sentences a reader must know: limits, cut rows, missing intervals."""
    partial: bool = False
    """True when the run was interrupted or limited."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Versions, machine, command, and what the measurement adds (BOS, corpus, dtype, views)."""
    schema_version: int = SCHEMA_VERSION
    """Version of this shape; a reader refuses newer ones."""
    results: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """lm-eval's shape of the headline rows; filled from `rows`."""

    def __post_init__(self) -> None:
        for row in self.rows:
            for name in ("value", "stderr", "ci_low", "ci_high"):
                number = getattr(row, name)
                assert number is None or math.isfinite(number), f"{row.task}/{row.metric}: {name} is {number}"
        self.results = _headline(self.rows)

    def to_json(self) -> str:
        """The object as indented JSON; row fields that do not apply are left out."""
        plain = asdict(self)
        plain["rows"] = [
            {k: v for k, v in row.items() if v is not None or k == "value"} for row in plain["rows"]
        ]
        return json.dumps(plain, indent=2, allow_nan=False) + "\n"

    def select(self, **wanted: Any) -> list[Row]:
        """Rows whose fields equal `wanted`, in order: `results.select(task="recall", distance=64)`."""
        unknown = set(wanted) - {f.name for f in fields(Row)}
        assert not unknown, f"no such row field: {unknown}"
        return [row for row in self.rows if all(getattr(row, k) == v for k, v in wanted.items())]


def read_results(path: Path) -> Results:
    """Read a `results.json`.

    Raises:
        UsageError: not JSON, not this schema, or of another version.
    """
    try:
        plain = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read results in {path}: {error}", expected="a results.json of a run folder"
        ) from error
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema_version {version!r}",
            expected=f"{SCHEMA_VERSION}, the results.json of a run folder",
            fix="read it with the version of lengthwise that wrote it, or measure again",
        )
    try:
        return _ADAPTER.validate_python(plain)
    except ValidationError as error:
        raise UsageError(f"{path} does not match the results schema: {error}") from error


def results_schema() -> dict[str, Any]:
    """The JSON schema of `results.json`, generated from the types above."""
    return _ADAPTER.json_schema()


def _headline(rows: list[Row]) -> dict[str, dict[str, float | None]]:
    """Rows that are one number per task, metric and length (no bin, distance, depth, bucket, arm or seed)."""
    table: dict[str, dict[str, float | None]] = {}
    for row in rows:
        detail = (row.position, row.distance, row.depth, row.bucket, row.arm, row.seed, row.reference)
        if any(part is not None for part in (*detail, row.context_other)):
            continue
        task = row.task if row.length is None else f"{row.task}@{row.length}"
        entry = table.setdefault(task, {})
        entry[f"{row.metric},none"] = row.value
        entry[f"{row.metric}_stderr,none"] = row.stderr
    return table


# So that the docstring under each field becomes its description in the schema.
for _kind in (Row, Results):
    with_config(ConfigDict(use_attribute_docstrings=True))(_kind)

_ADAPTER = TypeAdapter(Results)
