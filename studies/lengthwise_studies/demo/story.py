"""A story in chapters: each is a question, the commands that answer it, and what is said of what they write.

The commands are run as a user types them, in this process.
"""

from __future__ import annotations

import io
import re
import shlex
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from tqdm import tqdm

from lengthwise.cli.main import command_line
from lengthwise.machine import environment
from lengthwise.report.drawing import Picture
from lengthwise.report.html import Section
from lengthwise.results import Results, read_results

WIDTH = 80


@dataclass(frozen=True)
class Ran:
    """What a command left, and its exit code."""

    results: Results
    code: int


@dataclass(frozen=True)
class Told:
    """What a chapter says: its sentences, its picture, and what limits both."""

    sentences: Sequence[str]
    picture: Picture | None
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A question and what answers it.

    Args:
        name: of its folder.
        question, about: the heading, and what a reader has to know.
        commands: by the name of what they write: without `lengthwise` and `--out`, with the fields of the size in
            braces, and the folder of the chapter as `{here}`.
        seconds: on two cores without AVX-512, for the time that is left.
        tell: what it says, from what its commands left and the folder where it lies.
        shown: the commands that are shown, by name; default: all.
    """

    name: str
    question: str
    about: str
    commands: Mapping[str, str]
    seconds: int
    tell: Callable[[Mapping[str, Ran], Path], Told]
    shown: Sequence[str] = ()

    def typed(self, size: Any, folder: Path) -> list[str]:
        """The commands as a user types them: with `--out` where another one reads what they write."""
        lines = {name: line.format(**asdict(size), here=folder) for name, line in self.commands.items()}
        read = {name for name in lines if any(f"{folder / name}" in line for line in lines.values())}
        return [
            f"lengthwise {lines[name]}" + (f" --out {folder / name}" if name in read else "")
            for name in self.shown or lines
        ]

    def run(self, size: Any, folder: Path, *, resume: bool, overwrite: bool) -> dict[str, int]:
        """Run the commands, with `resume` those that are not finished; returns their exit codes.

        Raises:
            LengthwiseError: whatever stops a command.
        """
        codes = {}
        for name, line in self.commands.items():
            words = [*shlex.split(line.format(**asdict(size), here=folder)), "--out", str(folder / name)]
            if words[0] != "extend":
                words += ["--resume"] * resume + ["--overwrite"] * overwrite
            elif (folder / name).exists():
                # The same model: it takes neither option.
                continue
            # What it prints is on the page; its bar is on standard error.
            with redirect_stdout(io.StringIO()):
                codes[name] = command_line(words)(words, exit_on_error=False, print_error=False) or 0
        return codes

    def told(self, folder: Path, codes: Mapping[str, int]) -> Told:
        """What it says of what lies in `folder`."""
        left = {name: folder / name / "results.json" for name in self.commands}
        return self.tell(
            {name: Ran(read_results(file), codes[name]) for name, file in left.items() if file.exists()},
            folder,
        )

    def section(self, size: Any, folder: Path, codes: Mapping[str, int]) -> Section:
        """Its part of the page."""
        told = self.told(folder, codes)
        return Section(
            title=self.question,
            lead=told.sentences,
            paragraphs=[self.about.format(**asdict(size))],
            figures=[told.picture] if told.picture else [],
            passages=[_block(self.typed(size, folder))],
            notes=told.notes,
        )


def run_story(
    chapters: Sequence[Chapter], out: Path, size: Any, *, resume: bool = False, overwrite: bool = False
) -> Results:
    """Run the chapters in order, and print each when it is done. The results have settings, and no rows."""
    began, planned, codes = time.perf_counter(), 0, {}
    for place, chapter in enumerate(chapters):
        # What is planned is for one kind of machine; from the second chapter on the pace is that of this one.
        pace = max((time.perf_counter() - began) / planned, 0.5) if planned else 1.0
        left = tqdm.format_interval(pace * sum(each.seconds for each in chapters[place:]))
        heading = f"{place + 1} of {len(chapters)}  {chapter.question}"
        print(f"{heading:<{WIDTH - 16}}about {left} left", flush=True)
        planned += chapter.seconds
        folder = out / chapter.name
        codes[chapter.name] = chapter.run(size, folder, resume=resume, overwrite=overwrite)
        for text in chapter.told(folder, codes[chapter.name]).sentences:
            print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))
        for line in chapter.typed(size, folder):
            print(pasted(line))
        print(flush=True)
    return Results(
        kind="demo",
        model_name="demo",
        config={"size": asdict(size), "exit codes": codes},
        rows=[],
        provenance={**environment(), "seconds": round(time.perf_counter() - began)},
    )


def pasted(line: str) -> str:
    """A command in lines of 80 columns that can be pasted; an option stays beside its value."""
    lines = [""]
    for part in re.split(" (?=--)", line):
        if len(lines[-1]) + len(part) > WIDTH - 8:
            lines.append("")
        lines[-1] = f"{lines[-1]} {part}".lstrip()
    return "  $ " + " \\\n      ".join(lines)


def _block(lines: Sequence[str]) -> Markup:
    code = Markup("\n").join(Markup("<code>{}</code>").format(line) for line in lines)
    return Markup('<div class="passage"><blockquote>{}</blockquote></div>').format(code)
