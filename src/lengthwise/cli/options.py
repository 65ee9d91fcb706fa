"""Options that several verbs share, spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lengthwise import settings
from lengthwise.errors import UsageError
from lengthwise.files import named_path


def _note_verbose(context: typer.Context, value: bool) -> bool:
    context.meta["verbose"] = value
    return value


def whole_number(text: str) -> int:
    """The number in an option that can be repeated; Typer's own error does not show the value."""
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a whole number") from error


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A hub id, a folder, a .gguf file, or a name from `lengthwise ls models`.",
        show_default=False,
    ),
]
Text = Annotated[
    str,
    typer.Option(
        help="Text to measure on: books, code, a .txt, .md, .jsonl or .parquet file, a folder, hf://owner/name."
    ),
]
Split = Annotated[Literal["test", "train", "all"], typer.Option(help="Documents of the text to use.")]
Bos = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="Begin each view with BOS; auto does as the tokenizer does."),
]
Seed = Annotated[int, typer.Option(help="Seed of the choice of windows.")]
Device = Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda, cuda:1, ...")]
Dtype = Annotated[
    settings.Dtype, typer.Option(help="auto (as saved), float32, bfloat16, float16 or float64.")
]


def path(text: str) -> Path:
    """The path in an option. An empty one, as from an unset shell variable, would be the current folder."""
    try:
        return named_path(text, what="the path")
    except UsageError as error:
        raise typer.BadParameter(error.problem) from error


Out = Annotated[
    Path | None,
    typer.Option(parser=path, help="Run folder to write. Without it nothing is written.", show_default=False),
]
NeededOut = Annotated[
    Path | None,
    typer.Option(parser=path, help="Run folder to write. Only --dry-run needs none.", show_default=False),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue an unfinished run in --out; a finished one is read, not repeated."
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace the earlier run in --out, which stays until the new one has a result."
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan, with an estimate of time and memory, and stop."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the results object alone on standard output.")]
FailAbove = Annotated[
    float | None,
    typer.Option(
        "--fail-above",
        show_default=False,
        help="Exit with 4 if at any length the value (not its interval) is above this.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Print the full table, and the traceback of an error.", callback=_note_verbose
    ),
]


def examples(*lines: str) -> str:
    """Examples for the end of a verb's help."""
    # \b keeps the formatter from joining the lines.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
