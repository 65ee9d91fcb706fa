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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup
from tqdm import tqdm

from lengthwise.cli.main import command_line
from lengthwise.machine import environment
from lengthwise.report.html import Section, prose
from lengthwise.results import Results

_WIDTH = 80
Tell = Callable[[Path, Mapping[str, int]], Section]
"""What is said of the run folders of a chapter, given the exit codes of its commands: sentences, picture, notes."""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A question and what answers it.

    Args:
        name: of its folder.
        question, about: the heading, and what a reader has to know.
        commands: by the folder that they write; `{here}` is that of the chapter, other braces are fields of the size.
        seconds: on two cores without AVX-512.
        tell: what it says.
        shown: the commands that are shown; default: all.
    """

    name: str
    question: str
    about: str
    commands: Mapping[str, str]
    seconds: int
    tell: Tell
    shown: Sequence[str] = ()

    def lines(self, size: Any, here: Path) -> dict[str, str]:
        """The commands as a user types them, by the folder that they write."""
        plain = {name: line.format(**asdict(size), here=here) for name, line in self.commands.items()}
        return {name: f"lengthwise {line} --out {here / name}" for name, line in plain.items()}

    def run(self, size: Any, here: Path, *, resume: bool, overwrite: bool) -> dict[str, int]:
        """Run the commands, with `resume` what is missing of them; their exit codes. Raises what stops one."""
        codes = {}
        for name, line in self.lines(size, here).items():
            _, *words = shlex.split(line)
            if words[0] != "extend":
                words += ["--resume"] * resume + ["--overwrite"] * overwrite
            elif (here / name).exists():
                # The same model: it takes neither option.
                continue
            # What it prints is on the page; its bar is on standard error.
            with redirect_stdout(io.StringIO()):
                codes[name] = command_line(words)(words, exit_on_error=False, print_error=False) or 0
        return codes

    def section(self, size: Any, here: Path, codes: Mapping[str, int]) -> Section:
        """Its part of the page."""
        lines = self.lines(size, here)
        code = Markup("\n").join(prose(f"`$ {lines[name]}`") for name in self.shown or lines)
        block = Markup('<div class="passage"><blockquote>{}</blockquote></div>').format(code)
        about = [self.about.format(**asdict(size))]
        return replace(self.tell(here, codes), title=self.question, paragraphs=about, passages=[block])


def run_story(
    chapters: Sequence[Chapter], out: Path, size: Any, *, resume: bool = False, overwrite: bool = False
) -> Results:
    """Run the chapters in order, and print each when it is done. The results have settings, and no rows."""
    began, planned, codes = time.perf_counter(), 0, {}
    for place, chapter in enumerate(chapters):
        # From the second chapter on the pace is that of this machine.
        pace = max((time.perf_counter() - began) / planned, 0.5) if planned else 1.0
        left = tqdm.format_interval(pace * sum(each.seconds for each in chapters[place:]))
        heading = f"{place + 1} of {len(chapters)}  {chapter.question}"
        print(f"{heading:<{_WIDTH - 16}}about {left} left", flush=True)
        planned += chapter.seconds
        here = out / chapter.name
        codes[chapter.name] = chapter.run(size, here, resume=resume, overwrite=overwrite)
        for text in chapter.tell(here, codes[chapter.name]).lead:
            print(textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  "))
        lines = chapter.lines(size, here)
        print(*(pasted(lines[name]) for name in chapter.shown or lines), "", sep="\n", flush=True)
    about = {**environment(), "seconds": round(time.perf_counter() - began)}
    config = {"size": asdict(size), "exit codes": codes}
    return Results(kind="demo", model_name="demo", config=config, rows=[], provenance=about)


def pasted(line: str) -> str:
    """A command in lines of 80 columns that can be pasted; an option stays beside its value."""
    lines = [""]
    for part in re.split(" (?=--)", line):
        if len(lines[-1]) + len(part) > _WIDTH - 8:
            lines.append("")
        lines[-1] = f"{lines[-1]} {part}".lstrip()
    return "  $ " + " \\\n      ".join(lines)
