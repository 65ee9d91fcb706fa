"""`make demo`: how its chapters are run and told, and all of it in small, on tiny-books alone."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lengthwise.report.html import Section
from lengthwise.report.sentence import said
from lengthwise.results import Results, Row, read_results
from lengthwise_studies.demo import story
from lengthwise_studies.demo.chapters import CHAPTERS, change_text
from lengthwise_studies.demo.story import Chapter, pasted, run_story
from lengthwise_studies.study_table import produce

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Size:
    """Of the fake chapters."""

    windows: int = 3


def tell(here: Path, codes: Mapping[str, int]) -> Section:
    return Section(title="", lead=[f"{name}: exit {code}" for name, code in codes.items()])


FIRST = Chapter(
    name="first",
    question="How far?",
    about="{windows} windows.",
    commands={
        "plain": "limit m --windows {windows}",
        "longer": "extend m --method yarn --factor 2",
        "again": "limit {here}/longer",
    },
    seconds=30,
    tell=tell,
)
SECOND = Chapter(
    name="second",
    question="How well?",
    about="",
    commands={"b": "compare m m", "a": "measure m"},
    seconds=60,
    tell=tell,
    shown=("a",),
)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are run, in order; each leaves a run folder, extend a model, and compare ends with 4."""
    found: list[list[str]] = []

    def command_line(words: list[str]) -> Any:
        def run(*_: Any, **__: Any) -> int | None:
            found.append(words)
            print("its answer")
            out = Path(words[words.index("--out") + 1])
            out.mkdir(parents=True, exist_ok=True)
            if words[0] == "extend":
                return None
            results = Results(kind=words[0], model_name="m", config={}, rows=[])
            (out / "results.json").write_text(results.to_json())
            return 4 if words[0] == "compare" else 0

        return run

    monkeypatch.setattr(story, "command_line", command_line)
    return found


def test_commands_run_as_they_are_typed(called: list[list[str]], tmp_path: Path) -> None:
    codes = FIRST.run(Size(), tmp_path, resume=False, overwrite=False)
    assert [shlex.join(words) for words in called] == [
        f"limit m --windows 3 --out {tmp_path}/plain",
        f"extend m --method yarn --factor 2 --out {tmp_path}/longer",
        f"limit {tmp_path}/longer --out {tmp_path}/again",
    ]
    assert codes == {"plain": 0, "longer": 0, "again": 0}
    section = FIRST.section(Size(), tmp_path, codes)
    assert (section.title, section.paragraphs) == ("How far?", ["3 windows."])
    typed = re.sub(r"<[^>]+>", "", str(section.passages[0])).splitlines()
    assert typed == [f"$ lengthwise {shlex.join(words)}" for words in called]
    assert str(SECOND.section(Size(), tmp_path, {}).passages[0]).count("lengthwise") == 1, "what is shown"


@pytest.mark.parametrize(("how", "option"), [("resume", "--resume"), ("overwrite", "--overwrite")])
def test_a_second_run_continues_or_replaces(
    how: str, option: str, called: list[list[str]], tmp_path: Path
) -> None:
    FIRST.run(Size(), tmp_path, resume=False, overwrite=False)
    called.clear()
    FIRST.run(Size(), tmp_path, **{"resume": False, "overwrite": False, how: True})
    assert [words[0] for words in called] == ["limit", "limit"], "the extended model is there"
    assert all(words[-1] == option for words in called)


def test_the_terminal_has_each_chapter_once_it_is_done_and_the_time_left(
    called: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    # The first chapter of 30 seconds takes 60, so the second one of 60 is expected to take 120.
    clock = iter([0.0, 60.0, 180.0])
    monkeypatch.setattr(story.time, "perf_counter", lambda: next(clock))
    results = run_story([FIRST, SECOND], tmp_path, Size())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f"1 of 2  How far?{'about 01:30 left':>64}",
        "  plain: exit 0",
        "  longer: exit 0",
    ]
    assert f"2 of 2  How well?{'about 02:00 left':>63}" in lines
    assert "  b: exit 4" in lines
    assert "its answer" not in lines
    assert results.config["exit codes"] == {
        "first": {"plain": 0, "longer": 0, "again": 0},
        "second": {"b": 4, "a": 0},
    }
    assert results.provenance["seconds"] == 180


def test_a_command_is_pasted_in_lines_of_80_columns() -> None:
    line = "lengthwise compare smollm2-135m smollm2-135m --b kv_cache=quanto-int4 --dtype float32 --lengths 64 128"
    shown = pasted(line)
    assert max(map(len, shown.splitlines())) <= 80
    assert shlex.split(shown.replace("\\\n", "")) == ["$", *line.split()]
    assert all(part.lstrip().startswith("--") for part in shown.splitlines()[1:])


@pytest.mark.parametrize(
    ("value", "p", "expected"),
    [
        (-0.5, 0.01, "surer (the Entropy part falls by 0.50 [0.40, 0.60] nats)"),
        (0.5, 0.01, "less sure (the Entropy part rises by 0.50 [0.40, 0.60] nats)"),
        (0.5, 0.2, "no change of the Entropy part beyond noise"),
        (None, None, "no change of the Entropy part beyond noise"),
    ],
)
def test_a_change_is_said_where_it_is_more_than_noise(
    value: float | None, p: float | None, expected: str
) -> None:
    ends = {} if value is None else {"ci_low": value - 0.1, "ci_high": value + 0.1, "stderr": 0.05}
    row = Row(model="b", reference="a", task="misalignment", metric="entropy", value=value, p_holm=p, **ends)
    assert change_text(row) == expected


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_in_small(tmp_path: Path) -> None:
    pytest.importorskip("optimum.quanto", reason="needs the extra caches")
    out = tmp_path / "demo"
    page = produce("demo", out, scale="smoke").page.read_text()
    assert [*re.findall(r"<h2>(.*?)</h2>", page)][:3] == [chapter.question for chapter in CHAPTERS]
    assert "<table" not in re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", "", page)
    for bits in (4, 2):
        assert said(read_results(out / "change" / f"{bits}-bit")).sentence in text
    for name in ("limit", "limit-yarn4"):
        [sound] = (row for row in read_results(out / "context" / name).rows if row.metric == "sound_up_to")
        assert sound.value is None or f"{sound.value:,.0f} [{sound.ci_low:,.0f}, " in text
    # Three trainings of the same windows: the first step has the same cross entropy in all.
    first = [
        json.loads((out / "agreement" / name / "metrics.jsonl").read_text().splitlines()[0])["cross_entropy"]
        for name in ("plain", "sce", "jeffreys")
    ]
    assert first == pytest.approx([first[0]] * 3, rel=1e-6)
    again = produce("demo", out, scale="smoke", resume=True).page.read_text()
    assert [*re.findall(r'<p class="lead">.*?</p>', again)] == [*re.findall(r'<p class="lead">.*?</p>', page)]
