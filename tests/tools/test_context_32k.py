"""The kept study of a model with 32,768 tokens: what its page and the README say in sentences, and its pictures."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lengthwise.results import Results, Row
from tools.docs.context_32k import LONGEST, PICTURES, QWEN, SMOLLM2, keep_study
from tools.docs.kept_results import kept_run, kept_runs, results_folder

ROOT = Path(__file__).parents[2]
PAGE = re.sub(
    r"<!-- table.*?end of table -->",
    "",
    (ROOT / "docs" / "evidence" / "a-32k-model.md").read_text(),
    flags=re.DOTALL,
)
WORDS = " ".join(PAGE.split())


def number(run: str, metric: str, *, length: int | None = None, distance: int | None = None) -> Row:
    [found] = [
        row
        for row in kept_run(ROOT, run).rows
        if row.metric == metric and row.distance == distance and row.position is None
        if length in (None, row.length)
    ]
    return found


def test_the_words_of_the_page_hold_of_the_run() -> None:
    """Its numbers are rows of test_findings.py."""
    assert number("limit-books", "used_up_to").at_least
    assert number("limit-books-yarn2", "used_up_to").at_least
    for text in ("books", "code"):
        for way in ("beyond", "yarn2"):
            sound = number(f"limit-{text}-{way}", "sound_up_to")
            assert (sound.value, sound.at_least) == (65_536, True)
    nearby = [number(f"limit-books-{way}", "benefit_nearby").value or 0.0 for way in ("yarn2", "beyond")]
    assert "nearby nothing is lost" in WORDS
    assert nearby[0] > nearby[1] - 0.05

    def shifts(cache: str, *texts: str) -> list[float]:
        runs = [f"cache-{model}-{text}-{cache}" for model in (QWEN, SMOLLM2) for text in texts]
        return [number(run, "shift", length=LONGEST).value or 0.0 for run in runs]

    assert "2 bits ruin both" in WORDS
    assert min(shifts("quanto-int2", "books")) > 1
    assert "8 bits cost nothing to speak of" in WORDS
    assert max(shifts("hqq-int8", "books", "code")) < 0.01


def test_why_the_code_has_no_number() -> None:
    [note] = [note for note in kept_run(ROOT, "limit-code").notes if "windows a passage" in note]
    assert note.startswith("In 7 of 8 windows")
    assert number("limit-code", "used_up_to").documents == 1
    assert number("limit-code-beyond", "used_up_to").documents == 3
    interrupted = {
        name for name, run in kept_runs(results_folder(ROOT)).items() if run.variant == "interrupted"
    }
    assert "limit-code-yarn2-within" in interrupted


def test_every_kept_run_names_its_code_card_and_weights() -> None:
    runs = json.loads((results_folder(ROOT) / "context-32k.json").read_text())["runs"]
    for name, run in runs.items():
        assert {"code", "gpu", "weights", "packages"} <= run["provenance"].keys(), name
        assert '"/' not in json.dumps(run)


@pytest.mark.parametrize("name", PICTURES)
def test_the_kept_pictures_are_of_the_kept_numbers(name: str) -> None:
    found = PICTURES[name](ROOT)
    kept = ElementTree.parse(ROOT / "docs" / "figures" / f"{name}.svg").getroot()
    assert kept.attrib["aria-label"] == found.alt


def test_a_run_without_three_documents_is_not_kept(tmp_path: Path) -> None:
    for name, documents in (("limit-a", 3), ("limit-b", 2)):
        row = Row(
            model="/a/m", task="limit", metric="used_up_to", value=64.0, unit="tokens", documents=documents
        )
        where = {"command": ["x"], "text": {"corpus": "/a/texts"}}
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        plain = {"kind": "limit", "model_name": "/a/m", "config": {"text": "/a/texts"}}
        (folder / "results.json").write_text(Results(rows=[row], provenance=where, **plain).to_json())  # type: ignore[arg-type]
        (folder / "inputs.json").write_text('{"model": {"weights": "w"}}')
    results_folder(tmp_path).mkdir(parents=True)
    keep_study(tmp_path, tmp_path, "c", "g")
    [(name, run)] = kept_runs(results_folder(tmp_path)).items()
    assert (name, run.results.model_name, run.results.config) == ("limit-a", "m", {"text": "texts"})
    assert run.results.provenance["weights"] == "w"
