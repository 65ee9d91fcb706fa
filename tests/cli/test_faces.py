"""What CI servers read: the verdict first in JSON, test cases, and the summary of a step."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lengthwise.cli.options import SUMMARY
from lengthwise.results import parse_results
from tests.cli.small_runs import refused


@pytest.mark.parametrize(
    ("above", "code", "passed", "tag"), [(1e6, 0, True, None), (0.001, 4, False, "failure")]
)
def test_a_gate_in_json_junit_and_summary(on_text, tmp_path, monkeypatch, above, code, passed, tag):
    monkeypatch.setenv(SUMMARY, str(tmp_path / "summary.md"))
    words = ("--lengths", 32, "--windows", 3, "--fail-above", above, "--junit", "out.xml", "--json")
    done = on_text("ppl", *words)
    assert done.code == code
    assert list(done.json)[:4] == ["sentence", "passed", "gates", "numbers"]
    assert done.json["passed"] is passed
    sentence, [loss, *_] = done.json["sentence"], done.json["numbers"]
    assert loss in done.json["rows"]
    assert f"{loss['value']:.1f} [" in sentence
    assert parse_results(json.loads(done.out)).rows, "the object is still that of a run"
    suite = ElementTree.parse("out.xml").getroot()
    [case] = suite
    assert (suite.get("tests"), suite.get("failures")) == ("1", str(int(not passed)))
    assert case.get("name") == f"--fail-above {above:g}"
    assert [each.tag for each in case] == ([tag] if tag else [])
    assert [each.get("message") for each in case] == ([sentence] if tag else [])
    summary = Path("summary.md").read_text()
    assert summary.startswith(f"### {sentence}\n")
    assert ("**failed**" in summary) is not passed
    assert "| loss | 32 tokens |" in summary


def test_a_name_is_no_markdown_in_a_summary(lengthwise, model, text, tmp_path, monkeypatch):
    monkeypatch.setenv(SUMMARY, str(tmp_path / "summary.md"))
    Path("__new__").symlink_to(Path(model).resolve())
    words = (*text, "--lengths", 32, "--windows", 2, "--fail-above", 1e6)
    assert lengthwise("ppl", "__new__", *words).code == 0
    assert Path("summary.md").read_text().startswith(r"### \_\_new\_\_: ")


def test_a_gate_that_is_not_decided_does_not_pass(lengthwise, model, text):
    words = ("--lengths", 96, "--windows", 3, "--b", "attn=eager", "--fail-above", 1e-9, "--json")
    done = lengthwise("compare", model, model, *text, *words, "--junit", "out.xml")
    assert done.code == 5
    assert (done.json["passed"], done.json["gates"][0]["passed"]) == (False, None)
    assert [each.tag for each in ElementTree.parse("out.xml").getroot()[0]] == ["error"]


def test_a_summary_that_cannot_be_written_costs_no_result(on_text, tmp_path, monkeypatch, caplog):
    """As in a container that gets the variable of the machine outside."""
    monkeypatch.setenv(SUMMARY, str(tmp_path / "gone" / "summary.md"))
    done = on_text("ppl", "--lengths", 16, "--windows", 2, "--fail-above", 1e9)
    assert done.code == 0, done
    assert "no step summary" in caplog.text
    assert done.out


def test_numbers_before_another_word(lengthwise, model, text):
    words = (*text, "--windows", 2, "--dry-run", "--json")
    for line in (
        ("ppl", model, "--lengths", 16, "--lengths", 32, *words),
        ("ppl", *words, "--lengths", 16, 32, model),
        ("ppl", *words, "--lengths=16", 32, model),
    ):
        settings = lengthwise(*line).json["settings"]
        assert (settings["lengths"], settings["model"]) == ([16, 32], model)


@pytest.mark.parametrize("form", ["csv", "latex", "markdown"])
def test_tables_replace_tables_alone(form, on_text, lengthwise):
    assert on_text("ppl", "--lengths", 16, "--windows", 2, "--out", "run").code == 0
    words = ("report", "run", "--format", form, "--out")
    for _ in range(2):
        assert lengthwise(*words, "table").code == 0
    assert Path("table").read_text() == lengthwise(*words[:-1]).out
    Path("notes.txt").write_text("my own")
    Path("empty").touch()
    assert lengthwise(*words, "empty").code == 0
    for other in ("notes.txt", "run/results.json", "run/config.yaml", "run/samples.jsonl"):
        before = Path(other).read_bytes()
        refused(lengthwise(*words, other), 2, "another kind of file")
        assert Path(other).read_bytes() == before
