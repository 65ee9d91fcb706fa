"""The study of a real model at the paper's geometry, beside the rows that are kept of it."""

import json
import lzma
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from lengthwise.text import load_corpus
from lengthwise_studies.paper.methods import PLAIN, SCE
from lengthwise_studies.real.study import FULL, ON_YARN, REAL
from lengthwise_studies.real.table import difference, kept_files, levels, read_kept

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
        # Earlier versions had fewer settings of texts, and `min_context` elsewhere.
        assert own["data"]["corpus"] == before.pop("data")["corpus"]
        objective = before.pop("objective")
        assert objective.pop("min_context", None) is None
        assert own["objective"] == objective
        assert {name: own[name] for name in before} == before


def test_what_was_read_is_what_the_study_reads() -> None:
    """But for one document, which the program of that time held out too."""
    lengths = FULL.measures(FULL.window)["perplexity"]["lengths"]
    records = [row["record"] for row in _rows() if row.get("of") == "ppl" and "record" in row]
    assert {record["length"] for record in records} == {*lengths} == {2048, 4096, 8192, 16384, 32768}
    assert {record["targets"] for record in records} == {max(lengths)}
    held_out = load_corpus(FULL.text_of("books"), split="test").documents
    read = {record["document"] for record in records}
    assert (len(read), read - held_out.keys()) == (12, {"bible/Jeremiah"})


def test_differences_are_those_of_the_kept_sums() -> None:
    losses: dict[tuple[str, int], list[float]] = {}
    for row in _rows():
        record = row.get("record", {})
        if row.get("of") == "ppl" and (row["setting"], record.get("length")) == (ON_YARN.name, 2048):
            losses.setdefault((row["arm"], row["seed"]), []).append(record["loss"] / record["targets"])
    by_seed = [fmean(losses[SCE, seed]) - fmean(losses[PLAIN, seed]) for seed in range(3)]
    found = difference(read_kept(kept_files(FOLDER)), (ON_YARN.name, SCE), ("perplexity", "loss", 2048, None))
    assert found is not None
    assert found.mean == pytest.approx(np.mean(by_seed))
    # Student's t with two degrees of freedom.
    half = 4.302653 * np.std(by_seed, ddof=1) / np.sqrt(3)
    assert found.of_seeds is not None
    assert found.of_seeds.high == pytest.approx(found.mean + half, rel=1e-5)


def test_the_kept_rows_have_every_arm_and_length() -> None:
    perplexities = levels(read_kept(kept_files(FOLDER)), "perplexity", "perplexity")
    assert list(perplexities.columns[3:]) == ["0.25T", "0.5T", "1T", "2T", "4T"]
    experiment, _ = REAL.experiment(FULL)
    assert {f"{row[0]}: {row[1]}" for row in perplexities.rows} == {arm.name for arm in experiment.arms}
