"""The verb `card`: its options, and which runs it draws. `report/card_of_runs.py` makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lengthwise.errors import UsageError
from lengthwise.files import named_path
from lengthwise.measure.limit import Limit
from lengthwise.settings import Subject, TextOptions
from lengthwise.versions import need


def card(
    runs: tuple[str, ...],
    *,
    text: str | None = None,
    options: TextOptions,
    measurement: Limit,
    out: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
) -> None:
    """Make a picture to share of how much context a model uses, or of what NEW changes beside BASE.

    Writes card.svg (light and dark), card.png, card-dark.png, badge.svg, card.md for a pull request, and
    model-index.yaml for a model's card. What is no more than a lower bound, or not known, looks so.

    Args:
        runs: One or two runs of limit (BASE NEW), with up to two of compare; or one of compare. A model is measured.
        text: Text to measure a model on: as for limit. Default: books.
        out: Folder for the files. Default: the folder card in the run.

    Examples:
        lengthwise card runs/limit
        lengthwise card runs/limit runs/cache4 runs/cache2 --out card
        lengthwise card runs/limit runs/limit-yarn
        lengthwise card runs/compare
        lengthwise card ./my-model --text notes/ --out runs/card
    """
    need("matplotlib")
    from lengthwise.report.card_of_runs import card_folder, write_card

    models = [name for name in runs if not (named_path(name, what="the run") / "config.yaml").is_file()]
    given = {
        "text": text,
        **options.model_dump(exclude_unset=True),
        **measurement.model_dump(exclude_unset=True),
    }
    if not models and (names := [name for name, value in given.items() if value is not None]):
        raise UsageError(
            f"there is no model to measure, and {', '.join(names)} is given",
            expected="options of measuring with a model's name",
            fix="leave them out, or measure again with lengthwise limit",
        )
    if models and out is None:
        raise UsageError(
            f"{models[0]} is no run folder",
            expected="the --out folder of lengthwise limit or compare, or a model and a folder for its measurement",
            fix="--out runs/NAME measures the model of that name",
        )
    folders = dict(zip(models, ["limit"] if len(models) == 1 else ["base", "new"], strict=False))
    if len(folders) < len(models):
        raise UsageError(
            f"{', '.join(models)} are no run folders", expected="at most two models", fix="BASE NEW"
        )
    if models:
        from lengthwise.measure.runner import run

        card_folder(out or "")
        about = {name: value for name, value in given.items() if name in ("text", *TextOptions.model_fields)}
        for name, folder in folders.items():
            subject = Subject(model=name, **{key: value for key, value in about.items() if value is not None})
            run(measurement, subject, out=Path(out or "") / folder, resume=True)
    found, files = write_card(
        [str(Path(out or "") / folders[name]) if name in folders else name for name in runs], out
    )
    print(found.sentence, *files, sep="\n")
