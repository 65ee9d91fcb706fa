"""The door of the synthetic studies: one name, run to its page. Imports no torch before it runs."""

from __future__ import annotations

from pathlib import Path

from lengthwise.studies.produced import Produced
from lengthwise.studies.synthetic.figures import figure_named, scale_named


def produce(
    name: str,
    out: Path,
    *,
    scale: str = "default",
    seeds: int | None = None,
    steps: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Produced:
    """Run the synthetic study `name` in `out`, or go on with it, to its page.

    Raises:
        UsageError: no such study or scale; seeds or steps below 1; see `RunFolder`.
        Interrupted: Ctrl-C; finished configurations stay.
    """
    figure = figure_named(name)
    chosen = scale_named(scale, seeds=seeds, steps=steps, scales=figure.scales)
    if figure.name == "plane":
        from lengthwise.studies.synthetic.plane_page import produce_plane

        return produce_plane(figure, chosen, out, resume=resume, overwrite=overwrite)
    from lengthwise.studies.synthetic.page import produce_figure

    return produce_figure(figure, chosen, out, resume=resume, overwrite=overwrite)
