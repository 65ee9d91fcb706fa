"""Parts without training: their rows are computed at once, into a run folder that is read from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder


def computed(
    kind: str,
    rows: Callable[[Any], Iterable[Row]],
    *,
    model_name: str,
    notes: Callable[[Any], Sequence[str]] = lambda _: (),
    **also: Any,
) -> Callable[..., Results]:
    """The `run` of a `Part` of this kind, from its rows and notes at a scale; `also` is recorded beside the scale."""

    def run(out: Path | str, scale: Any, *, resume: bool = False, overwrite: bool = False) -> Results:
        config = {"scale": asdict(scale), **also}
        with RunFolder(out, kind=kind, config=config, resume=resume, overwrite=overwrite) as folder:
            if finished := folder.finished:
                return finished
            found = {"rows": list(rows(scale)), "notes": list(notes(scale))}
            results = Results(kind=kind, model_name=model_name, config=config, **found)
            folder.write_results(results)
            return results

    return run
