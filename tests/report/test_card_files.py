"""What a card writes besides its picture, and what it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results

from lengthwise.cli.main import run
from lengthwise.errors import UsageError
from lengthwise.report.card_drawing import shapes, svg
from lengthwise.report.card_of_runs import card_of, model_index
from lengthwise.report.card_text import markdown
from lengthwise.report.sentence import said
from lengthwise.results import Results, read_results
from lengthwise.testing import save_tiny_model, tiny_text
from tests.report.card_runs import LEAST, LENGTH, OPEN, SOUND, USED, compare, limit
from tests.tiny_folders import texts_in
from tools.docs.cards import CARD, readme_card
from tools.docs.kept_results import kept_run


def test_the_markdown_has_bars_and_numbers() -> None:
    text = markdown(card_of([limit(SOUND, OPEN)], [compare()]))
    assert text.startswith(
        "### m: claims 8,192 tokens; sound up to 10,496 [10,368, 10,752] tokens; "
        "used up to 7,298 [4,096, open] tokens back.\n"
    )
    bars = {line.split("  ")[0]: line for line in text.splitlines() if "█" in line}
    # Of 40 signs for 16,384 tokens.
    assert bars["claimed"].count("█") == 20
    assert (bars["sound up to"].count("█"), bars["sound up to"].count("░")) == (25, 1)
    assert (bars["used up to"].count("█"), bars["used up to"].count("→")) == (10, 1)
    assert "█  +0.0120 [0.0100, 0.0142]" in text.replace("░", "█")
    assert "?" in markdown(card_of([limit(SOUND, None)]))
    alone = card_of([], [compare()])
    _, _, below, *_ = markdown(alone).splitlines()
    assert below == "Nats per token apart, by position:", "the verdict is in the sentence"


def test_the_badge_has_intervals_too() -> None:
    assert (
        card_of([limit(LEAST, OPEN)]).badge
        == "sound to ≥ 16,384 [16,256, open] · used to 7,298 [4,096, open]"
    )
    assert card_of([limit(SOUND, None)]).badge == "sound to 10,496 [10,368, 10,752] · used: not known"
    assert card_of([], [compare()]).badge == "0.200 [0.170, 0.233] nats apart"
    assert card_of([], [compare(floor=1.0)]).badge == "not decided"


@pytest.mark.parametrize(
    ("text", "name"), [("books", "books"), ("a/notes/", "notes"), (".", "a text"), ("/", "a text")]
)
def test_a_text_has_a_name(text: str, name: str) -> None:
    found = limit(SOUND, USED)
    found.provenance["text"] = {"corpus": text}
    plain = yaml.safe_load(model_index(found))["model-index"]
    assert plain[0]["results"][0]["dataset"] == {"type": name, "name": name, "split": "all"}
    assert f">{name}, " in markdown(card_of([found]))


def test_the_hub_reads_the_metadata() -> None:
    plain = yaml.safe_load(model_index(limit(LEAST, USED, model="a/b")))
    name, found = model_index_to_eval_results(plain["model-index"])
    assert name == "b"
    assert [(each.metric_type, each.metric_value, each.dataset_name) for each in found] == [
        ("sound_up_to", LENGTH, "books"),
        ("used_up_to", 7298, "books"),
    ]
    assert found[0].metric_args == {"ci_low": LENGTH - 128.0, "at_least": True}
    assert found[1].metric_args == {"ci_low": 4096.0, "ci_high": 8192.0}
    [_, unended] = yaml.safe_load(model_index(limit(SOUND, OPEN)))["model-index"][0]["results"][0]["metrics"]
    assert (unended["value"], unended["args"]) == (7298, {"ci_low": 4096.0})
    [only] = yaml.safe_load(model_index(limit(SOUND, None)))["model-index"][0]["results"]
    assert [metric["type"] for metric in only["metrics"]] == ["sound_up_to"]


ELSEWHERE = limit(SOUND, USED)
ELSEWHERE.provenance["text"] = {"corpus": "code", "corpus_fingerprint": "other"}
UNKNOWN, SERVED = limit(), limit(served_from="org/m", served_model="m")
for each in (UNKNOWN, SERVED):
    each.provenance["weights"] = None
LOOSE = replace(limit(SOUND, USED), config={"model": "m", "tolerance": 0.5})


@pytest.mark.parametrize(
    ("limits", "comparisons", "problem"),
    [
        ([], [], "there are 0 runs of limit and 0 of compare"),
        ([limit()] * 3, [], "there are 3 runs of limit"),
        ([limit()], [compare()] * 3, "and 3 of compare"),
        ([], [compare()] * 2, "there are 0 runs of limit and 2 of compare"),
        ([limit(), ELSEWHERE], [], "different texts"),
        ([limit(), LOOSE], [], "different settings"),
        ([limit()], [compare(weights="other")], "'m with a 4-bit cache' is of other weights"),
        ([limit()], [compare(weights=None)], "of weights that are not known"),
        ([UNKNOWN], [compare()], "of weights that are not known"),
        ([UNKNOWN], [compare(weights=None)], "of weights that are not known"),
        ([SERVED], [compare(weights=None, model={"served_from": "org/n"})], "of other weights"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    limits: list[Results], comparisons: list[Results], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem) as error:
        card_of(limits, comparisons)
    assert error.value.expected
    assert error.value.fix


def test_a_served_model_is_known_by_what_is_served() -> None:
    assert len(card_of([SERVED], [compare(weights=None, model={"served_from": "org/m"})]).rows) == 2


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_card_has_the_costs_of_its_own_model_alone(in_turn: bool, tmp_path: Path) -> None:
    """Whichever way both sides of a comparison were read."""
    text = str(texts_in(tmp_path / "text", 4, 600))
    one, other = (str(save_tiny_model(tmp_path / name, seed=seed)) for seed, name in enumerate("mn"))
    small = ["--text", text, "--windows", "4"]
    words = ["limit", one, *small, "--max-length", "256", "--reference", "32", "--out", str(tmp_path / "l")]
    assert run(words) == 0
    for model in (one, other):
        out = f"{model}-compared"
        how = [*small, "--b", "attn=eager", "--lengths", "96", "--out", out]
        assert run(["compare", model, model, *how, *(["--sequential"] if in_turn else [])]) == 0
        done = run(["card", str(tmp_path / "l"), out, "--out", f"{model}-card"])
        assert done == (0 if model == one else 2)
        assert Path(f"{model}-card").exists() is (model == one)
    assert run(["card", f"{one}-compared", "--out", f"{one}-alone"]) == 0
    assert "text, 4 documents" in Path(f"{one}-alone/card.md").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["RUN", "--windows", "4"], "there is no model to measure, and windows is given"),
        (["RUN", "--text", "books"], "there is no model to measure, and text is given"),
        (["PPL"], "holds a run of 'ppl'"),
        (["ODD"], "inputs.json holds a int as 'model'"),
        (["PARTIAL"], "holds an unfinished run of 'limit'"),
        (["gone"], "gone is no run folder"),
        (["a", "b", "c", "--out", "OUT"], "a, b, c are no run folders"),
    ],
)
def test_the_command_refuses(
    write_run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], problem: str
) -> None:
    kept = {
        "RUN": ("limit", False),
        "ODD": ("limit", False),
        "PPL": ("ppl", False),
        "PARTIAL": ("limit", True),
    }
    places = {"OUT": str(tmp_path / "out")} | {
        name: str(write_run(name, kind=kind, rows=limit(SOUND, USED).rows, partial=partial))
        for name, (kind, partial) in kept.items()
    }
    (Path(places["ODD"]) / "inputs.json").write_text('{"model": 3}')
    assert run(["card", *(places.get(each, each) for each in options)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert problem in lines[0]
    assert [line.partition(":")[0] for line in lines[1:]] == ["expected", "fix"]
    assert not list(tmp_path.rglob("card"))


def test_a_model_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny_model(tmp_path / "tiny")
    (tmp_path / "text").mkdir()
    for index in range(4):
        (tmp_path / "text" / f"{index}.txt").write_text(tiny_text(600, seed=index))
    out = tmp_path / "out"
    small = ["--text", str(tmp_path / "text"), "--max-length", "256", "--reference", "32", "--windows", "4"]
    words = ["card", str(model), *small, "--out", str(out)]
    assert run(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == said(read_results(out / "limit" / "results.json")).sentence
    assert shown[0].startswith("tiny: claims 128 tokens; predictions at chance; ")
    assert shown[1:] == [str(out / name) for name in FILES]
    before = {name: (out / name).read_bytes() for name in FILES}
    stamp = (out / "limit" / "samples.jsonl").stat().st_mtime_ns
    assert run(words) == 0
    assert (out / "limit" / "samples.jsonl").stat().st_mtime_ns == stamp
    assert {name: (out / name).read_bytes() for name in FILES} == before
    # The run that was kept is enough, and its card lies in it.
    assert run(["card", str(out / "limit")]) == 0
    assert (out / "limit" / "card" / "card.svg").read_bytes() == before["card.svg"]


FILES = ["card.svg", "badge.svg", "card.md", "model-index.yaml", "card.png", "card-dark.png"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["RUN", "MODEL"])
def test_a_file_that_is_no_card_is_left(write_run: Any, tmp_path: Path, kind: str, name: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("one's own")
    run_of = write_run("run", kind="limit", rows=limit(SOUND, USED).rows)
    assert run(["card", str(run_of) if kind == "RUN" else "gone-model", "--out", str(out)]) == 2
    assert [(each.name, each.read_text()) for each in out.iterdir()] == [(name, "one's own")]
    (out / name).unlink()
    for _ in range(2):
        assert run(["card", str(run_of), "--out", str(out)]) == 0
    assert {each.name for each in out.iterdir()} == {*FILES}


def test_the_card_of_the_readme_is_of_the_kept_numbers() -> None:
    root = Path(__file__).parents[2]
    card = readme_card(root)
    assert (root / CARD).read_text() == svg(shapes(card), card.sentence)
    readme = (root / "README.md").read_text()
    assert f"]({CARD})" in readme
    kept = {row.metric: row for row in kept_run(root, "limit-smollm2").rows}
    lines = {line.label: line for line in card.rows[0][0].lines}
    for label, metric in (("sound up to", "sound_up_to"), ("used up to", "used_up_to")):
        row, line = kept[metric], lines[label]
        assert (line.value, line.low, line.high) == (row.value, row.ci_low, row.ci_high)
        assert line.text in readme
