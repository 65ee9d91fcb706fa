from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.alignment import PairGeometry, alignment_loss_from_logits
from lengthwise.errors import UsageError
from lengthwise.models import FullLogits
from lengthwise.testing import tiny_llama, tiny_model, tiny_tokenizer
from lengthwise.text import TokenDocument
from lengthwise.training import PairCollator, WindowDataset, train
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.training_plan import plan
from lengthwise.training.views.positions import Positions

Make = Callable[..., Recipe]
LENGTH = 16
POSE = {"sampler": "pose", "target_length": 64}


def sampled(name: str = "pose", target: int = 64) -> Positions:
    return Positions(sampler=name, target_length=target)


def dataset(documents: list[TokenDocument], **changes: Any) -> WindowDataset:
    settings = {"length": LENGTH, "batch_size": 4, "steps": 6, "seed": 3}
    return WindowDataset(documents, **(settings | {"positions": sampled()} | changes))


def step_of(data: WindowDataset, step: int, **collator: Any) -> dict[str, Any]:
    items = [data[data.batch_size * step + i] for i in range(data.batch_size)]
    return PairCollator(LENGTH, positions=data.positions, **collator)(items)


def test_truncated_views_stand_at_one_draw(documents: list[TokenDocument]):
    data = dataset(documents, offsets=(1, 7), positions=sampled("random_positions"))
    batch = step_of(data, 2)
    assert torch.equal(batch["position_ids"], data.draw(2).short_positions.expand(8, -1))
    assert batch["attention_mask"].all()
    assert 1 <= batch["geometry"].offset <= 7
    assert batch["geometry"].min_context == LENGTH // 2


def test_positions_belong_to_the_step_and_leave_windows_and_offsets_alone(documents: list[TokenDocument]):
    with_positions, plain = (dataset(documents, offsets=(1, 7), positions=p) for p in (sampled(), None))
    for index in range(24):
        assert np.array_equal(with_positions[index]["input_ids"], plain[index]["input_ids"])
        drawn = with_positions[index]["draw"]
        assert drawn.equals(with_positions.draw(index // 4))
        assert drawn.offset == plain[index]["draw"].offset
    draws = {tuple(with_positions.draw(step).short_positions.tolist()) for step in range(6)}
    assert len(draws) > 3


def test_other_data_sets_draw_by_batch(documents: list[TokenDocument]):
    collator = PairCollator(LENGTH, views="gap", positions=sampled(), seed=1)
    batches = [
        collator([{"input_ids": documents[0].ids[s : s + LENGTH + s]}, {"input_ids": documents[1].ids[:40]}])
        for s in (3, 3, 5)
    ]
    assert torch.equal(batches[0]["position_ids"], batches[1]["position_ids"])
    assert not torch.equal(batches[0]["position_ids"], batches[2]["position_ids"])
    assert batches[0]["input_ids"][0].tolist() == documents[0].ids[3 : 3 + LENGTH].tolist()


def test_a_collator_of_gap_views_needs_positions_and_no_offsets():
    with pytest.raises(UsageError, match="positions"):
        PairCollator(LENGTH, views="gap")
    with pytest.raises(UsageError, match=r"\[1, 3\]"):
        PairCollator(LENGTH, views="gap", positions=sampled(), offsets=(1, 3))


def test_rows_before_the_gap_agree_and_the_teacher_gets_no_gradient(documents: list[TokenDocument]):
    data = dataset(documents, views="gap")
    batch = next(
        b for s in range(6) if 1 < (b := step_of(data, s, views="gap"))["geometry"].min_context < LENGTH
    )
    model, cut = tiny_llama().double(), batch["geometry"].min_context
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}
    long, short = model(**inputs).logits.chunk(2)
    torch.testing.assert_close(long[:, :cut], short[:, :cut], rtol=1e-9, atol=1e-9)
    assert (long[:, cut:] - short[:, cut:]).abs().amax(dim=-1).min() > 1e-3
    output = alignment_loss_from_logits(
        long,
        short,
        *batch["labels"].chunk(2),
        geometry=PairGeometry(LENGTH, 0, cut),
        alpha=1.0,
        divergence="kl",
        detach="long",
    )
    teacher, student = long[:, cut:].log_softmax(-1), short[:, cut:].log_softmax(-1)
    by_hand = (teacher.exp() * (teacher - student)).sum(-1).mean()
    assert output.divergence.item() == pytest.approx(by_hand.item(), rel=1e-9)
    [gradient] = torch.autograd.grad(
        output.loss - (output.cross_entropy_long + output.cross_entropy_short) / 2, long, allow_unused=True
    )
    # What is left of the long view's gradient is that of its cross entropy, which divergence does not touch.
    labels = batch["labels"][:4]
    [alone] = torch.autograd.grad(
        torch.nn.functional.cross_entropy(long.flatten(0, 1), labels.flatten()) / 2, long
    )
    torch.testing.assert_close(gradient, alone, rtol=1e-9, atol=1e-12)
    fused = model_alignment_loss(
        model,
        FullLogits("for the test"),
        labels=batch["labels"],
        geometry=PairGeometry(LENGTH, 0, cut),
        alpha=1.0,
        divergence="kl",
        detach="long",
        **inputs,
    )
    assert fused.loss.item() == pytest.approx(output.loss.item(), rel=1e-9)


def run(recipe: Recipe, out: Path, *, resume: bool = False) -> list[dict[str, float]]:
    train(recipe, out, resume=resume)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


GAP = {
    "views": "gap",
    "positions": POSE,
    "objective": {"alpha": 1.0, "divergence": "kl", "detach": "long"},
}


def test_the_step_does_not_depend_on_its_micro_batches(make: Make, tmp_path: Path):
    whole = run(make(**GAP), tmp_path / "whole")
    parts = run(make(**GAP, batch={"size": 4, "micro": 1}), tmp_path / "parts")
    for expected, got in zip(whole, parts, strict=True):
        for name in ("loss", "cross_entropy_long", "cross_entropy_short", "divergence", "paired_positions"):
            assert got[name] == pytest.approx(expected[name], rel=2e-4), name


def test_what_makes_no_sense_together_is_refused_with_the_reason(make: Make):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"views": "gap"}, "gap views without positions"),
        (GAP | {"objective": {"offsets": [1, 3]}}, r"gap views with offsets \[1, 3\]"),
        (GAP | {"views": "cyclic"}, "cyclic views with a sampler"),
        (GAP | {"view_options": {"share": 0.5}}, "share"),
        (GAP | {"objective": {"min_context": 16}}, "objective.min_context = 16: expected 0 to 15"),
        ({"positions": POSE | {"target_length": 16}}, "target_length = 16: expected more than length = 16"),
        ({"positions": POSE | {"sampler": "poes"}}, "did you mean 'pose'"),
        ({"positions": POSE | {"options": {"gap": 3}}}, "unknown key 'gap'"),
        ({"positions": {"sampler": "cream", "target_length": 40}}, "no multiple of the window"),
        ({"positions": POSE | {"target": 3}}, r"unknown key 'positions\.target'"),
    ]
    for changes, message in cases:
        with pytest.raises(UsageError, match=message):
            make(**changes)
    assert make(**GAP).offsets == (0, 0)
    assert make(**GAP).min_context == 0


def save(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def test_models_that_positions_cannot_reach_are_refused(make: Make, tmp_path: Path):
    gpt2 = save(tiny_model("gpt2"), tmp_path / "gpt2")
    bloom = save(tiny_model("bloom-alibi"), tmp_path / "bloom")
    dynamic = {"method": "dynamic_ntk", "factor": 2.0}
    cases = (
        (
            GAP | {"model": gpt2, "positions": POSE | {"target_length": 65}},
            "positions.target_length = 65.* 64 ",
        ),
        (GAP | {"model": bloom}, "pose.*bloom"),
        (GAP | {"extend": dynamic}, "pose.*dynamic"),
    )
    for changes, message in cases:
        for check in (load_for_training, plan):
            with pytest.raises(UsageError, match=message):
                check(make(**changes))
    load_for_training(make(**GAP, model=gpt2))
