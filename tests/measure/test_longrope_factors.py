from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from lengthwise.config import read_yaml
from lengthwise.errors import UsageError
from lengthwise.measure.longrope_factors import run_longrope_search, search_longrope
from lengthwise.models import LoadedModel, extend, load
from lengthwise.positions.rope.longrope_evolution import SearchSettings
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.text import load_corpus, sample_windows, tokenize
from tests.architectures import tiny_model

SETTINGS = SearchSettings(population=4, iterations=1, mutations=2, crossovers=2)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save_tiny_model(tmp_path / "model"))


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    for index in range(2):
        (tmp_path / "text" / f"{index}.txt").write_text(tiny_text(600, seed=index))
    return str(tmp_path / "text")


@pytest.mark.parametrize("by_layer_type", [False, True])
def test_the_loss_that_is_reported_is_that_of_the_extended_model(
    model: str, text: str, by_layer_type: bool
) -> None:
    loaded = load(model)
    if by_layer_type:
        gemma = tiny_model("gemma3-text", layer_types=["sliding_attention", "full_attention"])
        loaded = LoadedModel(gemma, loaded.tokenizer, "gemma", "memory")
    documents = tokenize(load_corpus(text, split="all"), loaded.tokenizer)
    ids = torch.arange(60)[None]
    before = loaded.model(input_ids=ids).logits
    found = search_longrope(
        loaded, documents, factor=2.0, original_length=32, windows=2, settings=SETTINGS, bos="never"
    )
    torch.testing.assert_close(loaded.model(input_ids=ids).logits, before, rtol=0, atol=0)
    assert found["loss"] <= min(found["start_losses"].values())
    section = found["extend"]
    extend(
        loaded.model,
        section["method"],
        factor=section["factor"],
        original_length=section["original_length"],
        **section["options"],
    )
    losses = []
    for window in sample_windows(documents, 65, count=2, seed=0):
        tokens = torch.tensor(window.ids.tolist())
        with torch.no_grad():
            logits = loaded.model(input_ids=tokens[None, :-1]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[1:]).item())
    assert found["loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_a_search_goes_on_and_ends_the_same(model: str, text: str, tmp_path: Path) -> None:
    def run(out: Path, **changes: object) -> dict[str, object]:
        arguments = {"factor": 2.0, "original_length": 32, "windows": 1, "settings": SETTINGS} | changes
        return run_longrope_search(model, out, text=text, split="all", **arguments)

    whole = run(tmp_path / "a")
    lines = (tmp_path / "a" / "losses.jsonl").read_text().splitlines(keepends=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "extend.yaml").unlink()
    (tmp_path / "b" / "losses.jsonl").write_text("".join(lines[:4]))
    again = run(tmp_path / "b")
    assert again["extend"] == whole["extend"]
    assert (tmp_path / "b" / "losses.jsonl").read_text() == "".join(lines)
    assert read_yaml(tmp_path / "b" / "extend.yaml") == {"extend": whole["extend"]}
    with pytest.raises(UsageError, match="factor"):
        run(tmp_path / "b", factor=3.0)
    with pytest.raises(UsageError, match="dtype"):
        run(tmp_path / "b", dtype="bfloat16")
    save_tiny_model(Path(model), seed=1)
    with pytest.raises(UsageError, match="weights changed"):
        run(tmp_path / "b")


def test_what_cannot_be_searched(model: str, text: str) -> None:
    loaded = load(model)
    documents = tokenize(load_corpus(text, split="all"), loaded.tokenizer)
    with pytest.raises(UsageError, match="leaves nothing to search"):
        search_longrope(loaded, documents, factor=1.0)
    extend(loaded.model, "pi", factor=2.0)
    with pytest.raises(UsageError, match="is extended already"):
        search_longrope(loaded, documents, factor=2.0, log=SampleLog())
