import importlib
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lengthwise as package
from lengthwise.cli.main import VERBS, summary
from lengthwise.cli.output import in_plain_signs
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.testing import save_tiny_model, tiny_text

HEAVY = ("torch", "transformers", "matplotlib")


def loaded(names: tuple[str, ...], *commands: list[str]) -> str:
    """Which of these modules the commands load, in a process of their own."""
    program = (
        "import sys\n"
        "from lengthwise.cli.main import run\n"
        f"for words in {commands!r}:\n"
        "    run(words)\n"
        f"print([name for name in {names!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


def test_help_loads_nothing_heavy() -> None:
    helps = ([verb, flag] for verb in VERBS for flag in ("--help", "-h"))
    assert loaded(HEAVY, ["--help"], ["--version"], ["mesure"], *helps) == "[]"


def test_a_measuring_verb_imports_only_its_own_measurement() -> None:
    others = tuple(f"lengthwise.measure.{name}" for name in ("limit", "perplexity", "longppl"))
    assert loaded(others, ["measure", "--help"]) == "[]"
    assert loaded(others, ["limit", "--help"]) == "['lengthwise.measure.limit']"


def test_a_measurement_loads_what_it_reads_and_shows_and_no_more(tmp_path: Path) -> None:
    """Of 88 modules once. Packages whose face is a table of names are among them."""
    save_tiny_model(tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny_text(200))
    words = ["ppl", str(tmp_path / "model"), "--text", str(tmp_path / "text.txt")]
    program = (
        "import sys\n"
        "from lengthwise.cli.main import run\n"
        f"code = run({words!r} + ['--lengths', '16', '--windows', '2'])\n"
        "print(code, *sorted(name for name in sys.modules if name.startswith('lengthwise.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    code, *names = done.stdout.splitlines()[-1].split()
    assert code == "0"
    assert len(names) <= 48, names
    # Of other verbs, of models that were extended or come with lengthwise, of long texts, of training.
    others = (
        "alignment", "evaluation", "training", "positions", "runs", "catalogue", "subjects.branches", "cli.verbs",
        "cli.gates", "checkpoints.embedded", "text.embedded", "text.encoding", "text.same_ids",
    )  # fmt: skip
    assert not [name for name in names if name.removeprefix("lengthwise.").startswith(others)]


def test_the_list_of_verbs_says_of_each_what_its_help_begins_with() -> None:
    for name in set(VERBS) - {"reproduce", *MEASUREMENTS}:
        home = {"difference": "compare", "card": "card"}.get(name, "verbs")
        module = importlib.import_module(f"lengthwise.cli.{home}")
        function = getattr(module, "import_" if name == "import" else name)
        assert summary(name) == (function.__doc__ or "").splitlines()[0]


@pytest.mark.parametrize("arguments", [["ls"], ["report", "gone"]])
def test_lists_and_reports_need_no_torch(arguments: list[str]) -> None:
    assert loaded(("torch", "transformers"), arguments) == "[]"


def test_help_lists_the_verbs_and_ends_with_examples(lengthwise: Callable[..., Any]) -> None:
    shown = lengthwise("--help")
    assert shown.code == 0
    assert shown.err == ""
    commands, examples = shown.out.split("Examples:")
    assert re.findall(r"^│ (\w+)  ", commands, flags=re.MULTILINE) == list(VERBS)
    assert "lengthwise measure smollm2-135m" in examples
    assert "Commands" in lengthwise().out
    assert lengthwise("--version").out == f"lengthwise {package.__version__}\n"


@pytest.mark.parametrize(
    ("encoding", "written"), [("ascii", "o-|+ ?"), ("cp1252", "o-|+ \xe9"), ("utf-8", "●─│┼ é")]
)
def test_signs_that_the_output_lacks_are_ascii(monkeypatch, encoding, written):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    in_plain_signs()
    print("●─│┼ é")
    out.seek(0)
    assert out.read() == f"{written}\n"
