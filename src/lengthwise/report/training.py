"""Training curves from `metrics.jsonl`: what each step cost, and how the parts of SCE moved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.figures import describe

PANELS = (
    ("cross_entropy", "Cross entropy"),
    ("entropy", "Entropy part"),
    ("jeffreys", "Jeffreys part"),
)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, by step; a torn last line of a killed run is left out.

    A step that was logged twice (before and after a resume) counts with its last line.
    """
    by_step: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                by_step[record["step"]] = record
    return [by_step[step] for step in sorted(by_step)]


def training_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, name: str = "training-curves"
) -> Picture | None:
    """Cross entropy, entropy and Jeffreys by step, one colour for each run; `runs` maps labels to records.

    A run of more than 40 steps is drawn as the mean over the last 5 % of its steps before each step.
    """
    panels = [
        (
            title,
            [
                curve
                for style, (label, records) in enumerate(runs.items())
                if (curve := _curve(label, records, key, style)) is not None
            ],
        )
        for key, title in PANELS
    ]
    panels = [(title, curves) for title, curves in panels if curves]
    if not panels:
        return None
    title = "Training, step by step"
    with drawn(height=2.9, panels=(1, len(panels)), legend=panels[0][1]) as (figure, grid):
        for axes, (panel_title, curves) in zip(grid[0], panels, strict=True):
            draw_curves(axes, curves)
            axes.set(title=panel_title, xlabel="step")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        grid[0][0].set_ylabel("nats per token")
        legend_below(figure, grid[0][0])
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. "
            + " ".join(f"{panel_title}: {describe(curves)}" for panel_title, curves in panels),
            caption="Each step sees other text, so single steps scatter; mind the scale of each panel. "
            "SCE is the sum of the entropy part (sharpness) and the Jeffreys part (disagreement).",
        )


def _curve(label: str, records: Sequence[Mapping[str, Any]], key: str, style: int) -> Curve | None:
    points = [
        (record["step"], float(record[key]))
        for record in records
        if isinstance(record.get(key), (int, float)) and math.isfinite(record[key])
    ]
    if not points:
        return None
    steps, values = (list(column) for column in zip(*points, strict=True))
    width = len(values) // 20 if len(values) > 40 else 1
    smooth = [sum(values[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(values))]
    return Curve(label=label, x=steps, y=smooth, style=style)
