from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from tests.report import made_rows


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run folder: `write_run("name", kind="measure", rows=..., metrics=..., partial=...)`."""

    def write(
        name: str,
        *,
        kind: str,
        rows: list[Row] | None,
        model: str = "smollm2-135m",
        metrics: list[dict[str, Any]] | None = None,
        partial: bool = False,
        notes: list[str] | None = None,
    ) -> Path:
        config = {"model": model, "text": "books", "lengths": list(made_rows.LENGTHS), "seed": 0}
        with RunFolder(tmp_path / name, kind=kind, config=config) as folder:
            for record in metrics or []:
                folder.append_metrics(record)
            if rows is not None:
                folder.write_results(
                    Results(
                        kind=kind,
                        model_name=model,
                        config={},
                        rows=rows,
                        notes=notes or [],
                        partial=partial,
                        provenance={"bos": "none", "seconds": 12.5},
                    )
                )
            return folder.path

    return write
