import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.checkpoints import extend
from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.measure import run
from lengthwise.measure.perplexity import Perplexity
from lengthwise.subjects import LoadedModel, load
from lengthwise_studies.paper.methods import ENTROPY, PLAIN, SCE
from lengthwise_studies.real.design import FULL, TINY, Design, Job, jobs
from lengthwise_studies.real.table import difference, read_kept, tables
from lengthwise_studies.real.worker import Worker

ARMS = (PLAIN, SCE)
TASK = "chains_0"


def _worked(design: Design, seed: int, folder: Path, of: Sequence[Job], *, seconds: float = 600.0) -> Path:
    out = folder / f"rows-seed{seed}.jsonl"
    head = {"design": {"size": design.size.to_dict()}, "torch": torch.__version__}
    out.write_text(json.dumps({"head": head, "seed": seed}) + "\n")
    Worker(design, seed, out, folder, time.monotonic() + seconds, "cpu").run(list(of))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of two arms, each read, and asked about one task; and the extension alone."""
    folder = tmp_path_factory.mktemp("real")
    of = [Job("train", "YaRN", arm) for arm in ARMS] + [Job("ask", "YaRN", arm, TASK) for arm in ARMS]
    for seed in range(3):
        _worked(TINY, seed, folder, of if seed else [*of, Job("untrained", "YaRN", "untrained")])
    return folder


def _rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("rows-seed*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_every_length_has_the_same_targets_and_every_seed_the_same_text(folder: Path) -> None:
    records = [
        (row["seed"], row["record"]) for row in _rows(folder) if row.get("of") == "ppl" and "record" in row
    ]
    longest = max(TINY.perplexity.lengths)
    assert {record["targets"] for _, record in records} == {longest}
    places = {(record["length"], record["document"], record["start"]) for _, record in records}
    assert len(places) == len(TINY.perplexity.lengths) * TINY.segments


def test_the_extension_alone_is_what_perplexity_says_of_it(folder: Path) -> None:
    model = load("tiny-books", dtype="bfloat16", device="cpu")
    extend(model.model, "yarn", factor=4, original_length=128)
    settings = {"lengths": TINY.perplexity.lengths, "windows": TINY.segments}
    expected = run(Perplexity(**settings), model, TINY.texts[1])
    kept = read_kept(sorted(folder.glob("rows-seed*.jsonl")))
    for row in expected.rows:
        if (row.metric, row.position) == ("loss", None):
            assert row.length is not None
            [found] = kept.of(("YaRN x4", "untrained"), ("perplexity", "loss", row.length, None)).values()
            assert float(found.estimator(found.totals.sum(axis=0, keepdims=True))[0]) == pytest.approx(
                row.value
            )


def test_differences_are_those_of_the_kept_sums(folder: Path) -> None:
    losses: dict[tuple[str, int], list[float]] = {}
    for row in _rows(folder):
        record = row.get("record", {})
        if row.get("of") == "ppl" and record.get("length") == 32:
            losses.setdefault((row["arm"], row["seed"]), []).append(record["loss"] / record["targets"])
    by_seed = [fmean(losses[SCE, seed]) - fmean(losses[PLAIN, seed]) for seed in range(3)]
    kept = read_kept(sorted(folder.glob("rows-seed*.jsonl")))
    found = difference(kept, ("YaRN x4", SCE), ("perplexity", "loss", 32, None))
    assert found.mean == pytest.approx(np.mean(by_seed))
    assert found.of_documents.value == pytest.approx(np.mean(by_seed))
    # Student's t with two degrees of freedom.
    half = 4.302653 * np.std(by_seed, ddof=1) / np.sqrt(3)
    assert found.of_seeds.high - found.mean == pytest.approx(half, rel=1e-5)


def test_arms_of_a_seed_share_their_questions_and_seeds_do_not(folder: Path) -> None:
    asked: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in _rows(folder):
        record = row.get("record", {})
        if record.get("task") == TASK:
            place = (record["document"], record["bucket"], record["tokens"])
            asked.setdefault((row["arm"], row["seed"]), []).append(place)
    assert all(len(own) == 4 * TINY.contexts for own in asked.values())
    assert all(asked[SCE, seed] == asked[PLAIN, seed] for seed in range(3))
    assert asked[PLAIN, 0] != asked[PLAIN, 1]


def test_kept_weights_answer_as_the_trained_model(tmp_path: Path) -> None:
    worker = Worker(TINY, 0, tmp_path / "rows.jsonl", tmp_path, time.monotonic() + 600, "cpu")
    job = Job("train", "YaRN", PLAIN)
    for _ in worker._train(job):
        pass
    for rows in worker._ask(replace(job, what="ask", task=TASK)):
        found = [row["record"]["gold_loss"] for row in rows if "record" in row]
    trainer, tokenizer = worker._trainer(TINY.recipe("YaRN", PLAIN, 0).model_copy(update={"device": "cpu"}))
    trainer.train()
    model: Any = trainer.model
    model.eval()
    fresh = Evaluation(tasks=(TASK,), mode="likelihood", lengths=TINY.tokens((4.0,)), samples=2)
    with trainer.accelerator.autocast():
        expected = run(fresh, LoadedModel(model, tokenizer, "tiny-books", "memory"), TINY.texts[1])
    assert found == [record["gold_loss"] for record in expected.records.values()]


def test_tables_have_every_arm_and_length(folder: Path) -> None:
    kept = read_kept(sorted(folder.glob("rows-seed*.jsonl")))
    made = {table.caption: table for table in tables(kept)}
    perplexities = made["perplexity, perplexity"]
    assert list(perplexities.columns[3:]) == ["0.25T", "0.5T", "1T", "2T", "4T"]
    assert [(row[1], row[2]) for row in perplexities.rows] == [(PLAIN, 3), (SCE, 3), ("untrained", 1)]
    differences = made[f"perplexity, loss minus that of {PLAIN}"]
    assert [row[2] for row in differences.rows] == ["0.25T", "0.5T", "1T", "2T", "4T"]


def test_what_there_was_no_time_for_is_named(tmp_path: Path) -> None:
    out = _worked(TINY, 0, tmp_path, jobs(0, ("YaRN",)), seconds=-1.0)
    rows = list(map(json.loads, out.read_text().splitlines()))[1:]
    assert len(rows) == len(jobs(0, ("YaRN",)))
    assert all("left_out" in row for row in rows)


def test_a_job_that_fails_is_named_and_the_next_is_done(tmp_path: Path) -> None:
    out = _worked(
        TINY, 0, tmp_path, [Job("train", "YaRN", "no such arm"), Job("untrained", "YaRN", "untrained")]
    )
    rows = list(map(json.loads, out.read_text().splitlines()))[1:]
    assert rows[0]["arm"] == "no such arm"
    assert rows[0]["left_out"].startswith("it failed: ValueError")
    assert {row["arm"] for row in rows[1:]} == {"untrained"}


def test_twelve_documents_are_held_out_that_reach_four_times_t() -> None:
    train, test = FULL.texts
    assert not set(train.documents) & set(test.documents)
    assert len(train.documents) + len(test.documents) == 104
    # About 3.4 characters a token, as SmolLM2's tokenizer cuts these books.
    assert sum(len(text) > 3.2 * 4 * FULL.size.trained for text in test.documents.values()) >= FULL.segments


def test_every_arm_is_trained_once_and_the_paper_s_come_first() -> None:
    found = jobs(0, ("YaRN", "CLEX"))
    assert len(set(found)) == len(found)
    assert [job.arm for job in found[:3]] == [PLAIN, SCE, ENTROPY]
    trained: set[tuple[str, str]] = set()
    for job in found:
        if job.what == "ask":
            assert (job.method, job.arm) in trained
        trained |= {(job.method, job.arm)} if job.what == "train" else set()
