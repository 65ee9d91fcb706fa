"""Runs the blocks of the pages of docs/use that state their cost, each in a folder, and writes the outputs.

    python -m tools.tutorials [measure extend train own-loop compare]

`tests/tools/test_tutorials.py` runs the same blocks in small. A page is plain Markdown, of which this file reads:

    ```bash                            run by `bash -e`; `lengthwise ...` and `torchrun ...` each by itself
    ```python                          run in one set of names, as the cells of a notebook are
    <!-- not run: WHY -->              above a block: it is only shown
    <!-- small only: WHY -->           above a block: only the small run runs it
    <!-- in small: A => B -->          the small run reads B for A in every block of the page; A has to occur
    <!-- server: MODEL at URL -->      from here on a stand-in for a server (tests/served/stub.py) answers at URL
    <!-- output --> .. <!-- /output --> what the block before printed; `output: a b`: of it the lines of `a` and `b`
    <!-- figure: FILE -->              above an image: FILE of the folder is the image
    <!-- cost --> .. <!-- /cost -->    processor time and memory of the page's blocks

The real run writes the last three. The small run has a model `tiny` and a folder `texts` at hand, and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import resource
import shlex
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from lengthwise.machine import processor

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in (ROOT / "docs" / "use").glob("*.md")
    if "<!-- cost -->" in path.read_text(encoding="utf-8")
)

_ITEM = re.compile(
    r"(?:<!-- (?P<mark>not run|small only): [^\n]* -->\n)?```(?P<language>bash|python)\n(?P<code>.*?)```\n"
    r"|<!-- server: (?P<model>\S+) at (?P<url>\S+) -->\n"
    r"|<!-- figure: (?P<file>\S+) -->\n!\[[^\]]+\]\((?P<image>\S+)\)"
    r"|<!-- output(?:: (?P<only>[^\n]+?))? -->\n(?P<output>.*?)<!-- /output -->",
    re.DOTALL,
)
_COST = re.compile(r"<!-- cost -->\n(.*?)<!-- /cost -->", re.DOTALL)
_IN_SMALL = re.compile(r"<!-- in small: (.+?) => (.*?) -->")


@dataclass
class Cost:
    """Of the blocks that were run: processor time in seconds, and the most memory of one process in bytes."""

    seconds: float = 0.0
    memory: int = 0

    def add(self, used: resource.struct_rusage, *, before: float = 0.0) -> None:
        """What a process has used, less the processor time that it had used `before`."""
        self.seconds += used.ru_utime + used.ru_stime - before
        self.memory = max(self.memory, 1024 * used.ru_maxrss)

    def __str__(self) -> str:
        minutes = max(1, round(self.seconds / 60))
        said = (
            f"Measured: all commands of this page take about {minutes} minute{'s' if minutes > 1 else ''} of one "
            f"processor core ({processor()}, no GPU) and at most {self.memory / 1e9:.1f} GB of memory. Starting "
            "each command adds a few seconds."
        )
        return textwrap.fill(said, 110)


@dataclass
class PageRun:
    """One page, run once.

    Args:
        page: its Markdown file.
        folder: where its blocks run.
        command: runs `lengthwise ...` or `torchrun ...`, given as words, and returns its standard output.
        small: whether this is the small run.
    """

    page: Path
    folder: Path
    command: Callable[[list[str]], str]
    small: bool

    def __call__(self) -> str:
        """Run all blocks; the text of the page with what they printed."""
        text = self.page.read_text(encoding="utf-8")
        self._instead = dict(_IN_SMALL.findall(text)) if self.small else {}
        self._unused = set(self._instead)
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""
        with ExitStack() as self._servers, contextlib.chdir(self.folder):
            written = _ITEM.sub(self._item, text)
        assert not self._unused, f"{self.page.name}: no block has {self._unused}"
        return written

    def _item(self, found: re.Match[str]) -> str:
        if found["code"] is not None:
            if found["mark"] is None or (found["mark"] == "small only" and self.small):
                self._printed = self._run(found["language"], self._replaced(found["code"]))
        elif found["url"] is not None:
            self._serve(self._replaced(found["model"]), found["url"])
        elif found["image"] is not None:
            self._figure(Path(found["file"]), self.page.parent / found["image"])
        elif self.small:
            assert found["output"].strip(), (
                f"{self.page.name}: an output is empty; run `python -m tools.tutorials`"
            )
        else:
            mark = found[0].partition("\n")[0]
            return f"{mark}\n```text\n{lines_of(self._shown(), found['only'])}\n```\n<!-- /output -->"
        return found[0]

    def _replaced(self, text: str) -> str:
        for old, new in self._instead.items():
            if old in text:
                self._unused.discard(old)
                text = text.replace(old, new)
        return text

    def _run(self, language: str, code: str) -> str:
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, self.page.name, "exec"), self._names)
            return printed.getvalue()
        return "".join(
            self.command(shlex.split(part, comments=True)) if ours else _bash(part)
            for ours, part in statements(code)
        )

    def _serve(self, model: str, url: str) -> None:
        import lengthwise

        stub = _file("served/stub.py")
        serving = self._servers.enter_context(stub.serving(stub.Stub(lengthwise.load(model))))
        self._instead[url] = serving.url

    def _figure(self, file: Path, image: Path) -> None:
        assert file.stat().st_size, file
        if self.small:
            assert image.is_file(), f"{image} is missing; run `python -m tools.tutorials`"
        else:
            image.write_bytes(file.read_bytes())

    def _shown(self) -> str:
        text = self._printed.replace(f"{self.folder}/", "")
        for old, new in self._instead.items():
            text = text.replace(new, old)
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def lines_of(text: str, words: str | None) -> str:
    """The lines that begin with one of the words; all without words."""
    if words is None:
        return text
    found = [line for line in text.splitlines() if line.strip() and line.split()[0] in words.split()]
    assert {line.split()[0] for line in found} == set(words.split()), (words, found)
    return "\n".join(found)


def statements(code: str) -> Iterator[tuple[bool, str]]:
    """Each command of ours by itself (True), what lies between for bash together (False)."""
    lines = code.replace("\\\n", " ").splitlines(keepends=True)
    for ours, group in groupby(lines, key=lambda line: line.startswith(("lengthwise ", "torchrun "))):
        if ours:
            yield from ((True, line) for line in group)
        else:
            yield False, "".join(group)


def make_small(folder: Path) -> None:
    """The model `tiny` and the texts that a small run has at hand."""
    from lengthwise.testing import save_tiny_model, tiny_text

    save_tiny_model(folder / "tiny")
    (folder / "texts").mkdir()
    for index in range(4):
        (folder / "texts" / f"{index}.txt").write_text(tiny_text(600, seed=index))


def _bash(code: str) -> str:
    return subprocess.run(["bash", "-e", "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout


def _forked(words: list[str]) -> tuple[str, resource.struct_rusage]:
    """`lengthwise ...` in a fork of this process: standard output, what it used."""
    import lengthwise

    assert words[0] == "lengthwise", words
    main = str(Path(lengthwise.__file__).with_name("__main__.py"))
    with (
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as printed,
        tempfile.NamedTemporaryFile("r", encoding="utf-8") as said,
    ):
        request = {"words": [main, *words[1:]], "out": printed.name, "err": said.name}
        request |= {"environment": dict(os.environ), "folder": os.getcwd()}
        child = os.fork()
        if child == 0:
            os._exit(_file("fork_server.py").become(request))
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code == 0, (words, code, said.read())
        return printed.read(), used


def _file(name: str) -> ModuleType:
    """A file of tests/: another package that is installed may have that name."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "tests" / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write(page: Path) -> None:
    """The real run of a page, and its outputs into it."""
    cost = Cost()

    def command(words: list[str]) -> str:
        print("$", *words, flush=True)
        printed, used = _forked(words)
        cost.add(used)
        return printed

    before = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryDirectory() as folder:
        text = PageRun(page, Path(folder), command, small=False)()
    # Python blocks and the server run in this process.
    cost.add(resource.getrusage(resource.RUSAGE_SELF), before=before.ru_utime + before.ru_stime)
    page.write_text(_COST.sub(f"<!-- cost -->\n{cost}\n<!-- /cost -->", text), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pages", nargs="*", choices=[[], *(page.stem for page in PAGES)])
    given = parser.parse_args().pages
    # Nothing here needs the network, and TRL counts its uses there. The costs are those of one thread.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_DATASETS_OFFLINE": "1"}
    os.environ |= offline | {"OMP_NUM_THREADS": "1"}
    # Once for all commands, which are forks.
    _file("fork_server.py").import_all()
    for page in PAGES:
        if not given or page.stem in given:
            _write(page)
