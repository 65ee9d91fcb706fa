"""The study of a real model at the paper's geometry, beside the rows that are kept of it."""

import json
import lzma
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from transformers import AutoTokenizer

from lengthwise.checkpoints.resolve import resolve
from lengthwise.results import rows_with
from lengthwise.text import load_corpus, tokenize
from lengthwise.text.windows import sample_windows
from lengthwise_studies.paper.methods import PLAIN, SCE
from lengthwise_studies.real.kept import kept_files, read_kept
from lengthwise_studies.real.study import FULL, ON_YARN, REAL

FOLDER = Path(__file__).parents[2] / "studies" / "results" / "real"


@cache
def _rows() -> list[dict[str, Any]]:
    lines = [line for file in kept_files(FOLDER) for line in lzma.decompress(file.read_bytes()).splitlines()]
    return list(map(json.loads, lines))


def test_every_kept_arm_has_the_recipe_of_the_study() -> None:
    experiment, scale = REAL.experiment(FULL)
    arms = {arm.name: arm for arm in experiment.trained_arms}
    kept = [row for row in _rows() if "recipe" in row]
    assert {f"{row['setting']}: {row['arm']}" for row in kept} == set(arms)
    for row in kept:
        recipe = experiment.recipe_of(scale, arms[f"{row['setting']}: {row['arm']}"], row["seed"])
        assert recipe is not None
        own, before = recipe.to_dict(), row["recipe"]
        # The first program read books-20 and took the same document out of it; `min_context` was elsewhere.
        assert (own["data"]["corpus"], before.pop("data")["corpus"]) == ("books-21", "books-20")
        objective = before.pop("objective")
        assert objective.pop("min_context", None) is None
        assert own["objective"] == objective
        assert {name: own[name] for name in before} == before


def test_what_was_read_is_what_the_study_reads() -> None:
    lengths = FULL.measures(FULL.window)["perplexity"]["lengths"]
    records = [row["record"] for row in _rows() if row.get("of") == "ppl" and "record" in row]
    assert {record["length"] for record in records} == {*lengths} == {2048, 4096, 8192, 16384, 32768}
    assert {record["targets"] for record in records} == {max(lengths)}
    assert len({record["document"] for record in records}) == 12


@pytest.mark.real
def test_the_windows_are_those_of_the_kept_rows() -> None:
    tokenizer = AutoTokenizer.from_pretrained(resolve(FULL.model).source)
    documents = tokenize(load_corpus(FULL.text_of("books"), split="test"), tokenizer)
    windows = sample_windows(
        documents, max(FULL.measures(FULL.window)["perplexity"]["lengths"]) + 1, count=12
    )
    kept = [row["record"] for row in _rows() if row.get("of") == "ppl" and "record" in row]
    read = {(record["document"], record["start"]) for record in kept if record["length"] == 32768}
    assert {(window.document_id, window.start) for window in windows} == read


def test_differences_are_those_of_the_kept_sums() -> None:
    losses: dict[tuple[str, int], list[float]] = {}
    for row in _rows():
        record = row.get("record", {})
        if row.get("of") == "ppl" and (row["setting"], record.get("length")) == (ON_YARN.name, 2048):
            losses.setdefault((row["arm"], row["seed"]), []).append(record["loss"] / record["targets"])
    rows = rows_with(
        read_kept(kept_files(FOLDER)).rows,
        arm=ON_YARN.arm(SCE),
        reference=ON_YARN.arm(PLAIN),
        metric="loss",
        length=2048,
    )
    assert [row.value for row in rows] == pytest.approx(
        [fmean(losses[SCE, seed]) - fmean(losses[PLAIN, seed]) for seed in range(3)]
    )
    assert {row.documents for row in rows} == {12}


def test_the_kept_rows_have_every_arm_and_length() -> None:
    perplexities = rows_with(read_kept(kept_files(FOLDER)).rows, metric="perplexity")
    assert {row.length for row in perplexities} == {2048, 4096, 8192, 16384, 32768}
    experiment, _ = REAL.experiment(FULL)
    assert {row.arm for row in perplexities} == {arm.name for arm in experiment.arms}
