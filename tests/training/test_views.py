"""Every view: what its rows hold, that paired rows are the same targets, and what trains with it."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from trainers import run

from lengthwise.alignment import PairGeometry
from lengthwise.errors import UsageError
from lengthwise.positions import position_sampler
from lengthwise.text import TokenDocument
from lengthwise.training import PairCollator, View, WindowDataset, plan
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training
from lengthwise.training.views import VIEWS, Positions, ViewName
from tests.architectures import tiny_model
from tests.tiny_folders import saved

Make = Callable[..., Recipe]
LENGTH, TARGET, STEPS = 48, 512, 24
POSITIONS = Positions(sampler="skip", target_length=TARGET)
CASES: dict[ViewName, dict[str, Any]] = {
    "truncation": {"offsets": (1, 20)},
    "gap": {"positions": POSITIONS},
    "cyclic": {},
    "repeat": {"positions": POSITIONS, "options": {"share": 1.0, "passage": 12}},
}


@pytest.fixture(scope="module")
def numbered() -> list[TokenDocument]:
    """Documents in which no token comes twice, so that a token tells where it is from."""
    return [TokenDocument(str(i), np.arange(1000 * i, 1000 * i + 900, dtype=np.int32)) for i in range(5)]


def data_of(name: ViewName, documents: list[TokenDocument], seed: int = 5, **changes: Any) -> WindowDataset:
    view = View(LENGTH, name, **(CASES[name] | changes))
    return WindowDataset(documents, view, batch_size=3, steps=STEPS, seed=seed)


def batches(
    name: ViewName, documents: list[TokenDocument], seed: int = 0, **changes: Any
) -> list[dict[str, Any]]:
    data = data_of(name, documents, seed + 5, **changes)
    collator = PairCollator(data.view, seed=seed)
    return [collator([data[3 * step + i] for i in range(3)]) for step in range(STEPS)]


def repeat_rows(documents: list[TokenDocument], **changes: Any) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Of repeat views the row behind the largest gap, and the tokens and labels of each long window."""
    for batch in batches("repeat", documents, **changes):
        cut = int(batch["position_ids"][-1].diff().argmax()) + 1
        for tokens, labels in zip(batch["input_ids"][:3], batch["labels"][:3], strict=True):
            yield cut, tokens, labels


@pytest.mark.parametrize("name", VIEWS)
def test_paired_rows_are_the_same_targets(name: ViewName, numbered: list[TokenDocument]):
    pairs = 0
    for batch in batches(name, numbered):
        geometry = batch["geometry"]
        labels, tokens = (
            [
                view[:, rows]
                for view, rows in zip(
                    batch[column].chunk(2), (geometry.long_rows, geometry.short_rows), strict=True
                )
            ]
            for column in ("labels", "input_ids")
        )
        assert torch.equal(*tokens)
        # The last row of a view has no label, because its next token lies outside.
        both = (labels[0] != -100) & (labels[1] != -100)
        assert torch.equal(labels[0][both], labels[1][both])
        assert int((~both).sum()) <= 3 * 2
        pairs += geometry.paired_positions
    assert pairs > STEPS


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_a_function_of_the_seed(name: ViewName, numbered: list[TokenDocument]):
    once, again, other = (batches(name, numbered, seed) for seed in (0, 0, 1))
    for one, two in zip(once, again, strict=True):
        assert one["geometry"] == two["geometry"]
        assert all(torch.equal(one[column], two[column]) for column in ("input_ids", "labels"))
    assert any(not torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("name", ["gap", "cyclic", "repeat"])
def test_the_long_view_is_plain_text_at_its_own_positions(name: ViewName, numbered: list[TokenDocument]):
    for batch in batches(name, numbered, **{"options": {"share": 0.0}} if name == "repeat" else {}):
        long = batch["input_ids"].chunk(2)[0]
        assert torch.equal(long, long[:, :1] + torch.arange(LENGTH))
        if "position_ids" in batch:
            assert torch.equal(batch["position_ids"].chunk(2)[0], torch.arange(LENGTH).expand(3, -1))


def test_cyclic_positions_are_the_window_rotated(numbered: list[TokenDocument]):
    steps = set()
    for batch in batches("cyclic", numbered):
        short = batch["position_ids"].chunk(2)[1][0]
        step = int(short[0])
        assert torch.equal(short, (torch.arange(LENGTH) + step) % LENGTH)
        # Before it turns over, both views are at the same distances.
        assert batch["geometry"].short_rows.start == int(short.argmin()) == LENGTH - step
        steps.add(step)
    assert len(steps) > STEPS // 2


def test_a_repeat_comes_from_before_the_gap_and_ends_the_window(numbered: list[TokenDocument]):
    planted = 0
    for cut, tokens, labels in repeat_rows(numbered):
        size = min(12, cut, LENGTH - cut)
        repeats = [row for row in range(cut, LENGTH) if tokens[row] in tokens[:cut]]
        if size < 8:
            assert not repeats
            continue
        assert repeats == list(range(LENGTH - size, LENGTH))
        source = int((tokens[:cut] == tokens[LENGTH - size]).nonzero())
        assert torch.equal(tokens[source : source + size], tokens[LENGTH - size :])
        # Nothing tells the first token of the repeat.
        assert labels[LENGTH - size - 1] == -100
        assert (labels == -100).sum() == 2
        planted += 1
    assert planted > STEPS
    assert all(torch.equal(*batch["input_ids"].chunk(2)) for batch in batches("repeat", numbered))


def test_repeats_anywhere_leave_the_rest_of_the_text(numbered: list[TokenDocument]):
    options = {"share": 1.0, "passage": 12, "place": "anywhere"}
    places = set()
    for cut, tokens, labels in repeat_rows(numbered, options=options):
        size = min(12, cut, LENGTH - cut)
        text = tokens[0] + torch.arange(LENGTH)
        changed = (tokens != text).nonzero().flatten()
        if size < 8:
            assert not len(changed)
            continue
        place = int(changed[0])
        assert torch.equal(changed, torch.arange(place, place + size))
        assert place >= cut
        without = {row for row in (place - 1, place + size - 1, LENGTH - 1) if row < LENGTH}
        assert set((labels == -100).nonzero().flatten().tolist()) == without
        places.add(place)
    assert len(places) > 10


def test_the_source_of_a_repeat_can_be_near(numbered: list[TokenDocument]):
    options = {"share": 1.0, "passage": 8, "source": "anywhere"}
    far = near = 0
    for cut, tokens, _ in repeat_rows(numbered, options=options):
        if not 8 <= cut <= LENGTH - 16:
            continue
        source = int(tokens[-8] - tokens[0])
        assert source + 8 <= LENGTH - 8
        assert torch.equal(tokens[-8:], tokens[source : source + 8])
        # A passage lies before the gap, behind it, or across it.
        far += source + 8 <= cut
        near += source >= cut
    assert (far > 0, near > 0) == (True, True)


def test_a_share_of_the_windows_gets_repeats(numbered: list[TokenDocument]):
    fixed = Positions(sampler="cream", target_length=4 * LENGTH)
    total = changed = 0
    for cut, tokens, _ in repeat_rows(numbered, positions=fixed, options={"share": 0.3, "passage": 8}):
        if 8 <= cut <= LENGTH - 8:
            changed += bool((tokens != tokens[0] + torch.arange(LENGTH)).any())
            total += 1
    assert total > 20
    assert abs(changed / total - 0.3) < 4 * (0.21 / total) ** 0.5


def test_the_collators_seed_draws_the_passage_of_a_sample(numbered: list[TokenDocument]):
    data = data_of("repeat", numbered)
    items = [data[i] for i in range(3 * STEPS)]
    drawn = [
        [PairCollator(data.view, seed=seed)(items[i : i + 3])["input_ids"] for i in range(0, len(items), 3)]
        for seed in (1, 1, 2)
    ]
    again, other = ([torch.equal(*pair) for pair in zip(drawn[0], each, strict=True)] for each in drawn[1:])
    assert all(again)
    # Windows and positions are the data's, so only passages can differ: they do wherever there is room for two.
    assert other.count(False) > STEPS / 2


def test_of_several_skips_a_repeat_crosses_the_largest(numbered: list[TokenDocument]):
    several = Positions(sampler="skip", options={"skips": 4}, target_length=TARGET)
    planted = 0
    for batch in batches("repeat", numbered, positions=several):
        steps = batch["position_ids"][-1].diff()
        cut = int(steps.argmax()) + 1
        # Pairs begin behind the first skip, whichever is the largest.
        assert batch["geometry"].min_context == int((steps > 1).nonzero()[0]) + 1
        size = min(12, cut, LENGTH - cut)
        for tokens in batch["input_ids"][:3]:
            repeats = [row for row in range(cut, LENGTH) if tokens[row] in tokens[:cut]]
            assert repeats == (list(range(LENGTH - size, LENGTH)) if size >= 8 else [])
            planted += bool(repeats)
    assert planted > STEPS


@pytest.mark.parametrize("name", ["gap", "repeat"])
def test_a_share_of_the_steps_skips_and_the_others_have_no_pairs(name, numbered):
    some = Positions(sampler="skip", options={"share": 0.5, "shifted": 1.0}, target_length=TARGET)
    plain = 0
    for batch in batches(name, numbered, positions=some):
        short = batch["position_ids"].chunk(2)[1]
        if bool((short.diff() == 1).all()):
            assert batch["geometry"].paired_positions == 0
            long = batch["input_ids"][:3]
            assert torch.equal(long, long[:, :1] + torch.arange(LENGTH))
            assert (batch["labels"] == -100).sum() == 6
            plain += 1
        else:
            assert batch["geometry"].paired_positions > 0
    assert 0.25 * STEPS < plain < 0.75 * STEPS


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_draws_that_do_not_skip_are_contiguous(share: float):
    sampler = position_sampler("skip", {"share": share, "shifted": 0.5})
    drawn = [sampler(np.random.default_rng(seed), LENGTH, TARGET) for seed in range(400)]
    plain = [positions for positions in drawn if bool((positions.diff() == 1).all())]
    assert abs(len(plain) / 400 - (1 - share)) < 0.1
    starts = [int(positions[0]) for positions in plain]
    assert 0.4 < np.mean([start == 0 for start in starts]) < 0.6
    assert 0.9 * (TARGET - LENGTH) < max(starts) <= TARGET - LENGTH


@pytest.mark.parametrize("options", [{}, {"spread": "log"}, {"skips": 3}, {"max_gap": 40}, {"shifted": 0.5}])
def test_skips_leave_out_positions_and_keep_the_order(options: dict[str, Any]):
    sampled = Positions(sampler="skip", options=options, target_length=TARGET)
    view = View(LENGTH, "gap", positions=sampled)
    gaps, starts = [], 0
    for step in range(400):
        geometry, both = view.draw(0, [step])
        positions = both[1]
        jumps = positions.diff() - 1
        assert positions[0] >= 0
        assert positions[-1] < TARGET
        assert int((jumps > 0).sum()) == options.get("skips", 1)
        assert geometry.min_context == int((jumps > 0).nonzero()[0]) + 1
        gaps.append(int(jumps.sum()))
        starts += int(positions[0] > 0)
    most = options.get("max_gap", TARGET - LENGTH)
    assert options.get("skips", 1) <= min(gaps)
    assert 0.9 * most < max(gaps) <= most
    # Half of uniform draws lie below the middle, half of logarithmic ones below the geometric mean.
    middle = (most + 1) ** 0.5 if options.get("spread") == "log" else (most + options.get("skips", 1)) / 2
    assert abs(np.mean(np.array(gaps) <= middle) - 0.5) < 0.1
    assert abs(starts / 400 - options.get("shifted", 0)) < 0.1


REFUSED: dict[str, list[Callable[[], Any]]] = {
    **{
        name: [partial(position_sampler, "skip", {name: value})]
        for name, value in {"skips": 0, "max_gap": 0, "shifted": 1.5, "share": -0.1, "spread": "wide"}.items()
    },
    "length": [partial(View, length) for length in ("64", None, 1.5, True, 0, -1, [64], 10**30)],
    "offsets": [
        partial(View, 16, offsets=offsets)
        for offsets in ((-1, 3), (3, 1), (0, 17), (3,), (1, 2, 3), ("1", 3), (0.5, 3), (True, 3))
    ]
    # No pair, so the term would be 0.
    + [partial(View, 16, offsets=offsets) for offsets in ((1, 8), (12, 12), (16, 16))]
    + [partial(View, 16, offsets=(1, 7), min_context=9)],
    "min_context": [partial(View, 16, min_context=least) for least in (-1, 16, 4.0, True)],
}


@pytest.mark.parametrize(
    ("named", "made"), [(name, each) for name, calls in REFUSED.items() for each in calls]
)
def test_what_no_window_has_is_refused_before_it_is_drawn(named: str, made: Callable[[], Any]):
    with pytest.raises(UsageError, match=named):
        made()


@pytest.mark.parametrize("least", [None, 0, 3, LENGTH - 21])
def test_the_least_context_is_that_of_the_pairs(least: int | None, documents: list[TokenDocument]):
    def geometries(name: ViewName) -> Iterator[tuple[PairGeometry, PairGeometry]]:
        made = batches(name, documents, min_context=least), batches(name, documents)
        return ((one["geometry"], plain["geometry"]) for one, plain in zip(*made, strict=True))

    for geometry, plain in geometries("truncation"):
        assert geometry.offset == plain.offset
        assert geometry.min_context == (LENGTH // 2 if least is None else least)
    for geometry, plain in geometries("gap"):
        # Rows before the gap see the same, whatever is asked for.
        assert geometry.min_context == max(plain.min_context or 0, least or 0)


def test_a_collator_takes_what_its_own_view_has_drawn(numbered: list[TokenDocument]):
    data = WindowDataset(numbered, View(LENGTH, offsets=(1, 7), min_context=0), batch_size=2, steps=1)
    items = [data[0], data[1]]
    for view in (data.view, View(LENGTH), View(LENGTH, min_context=0)):
        assert PairCollator(view)(items)["geometry"].min_context == 0
    for view in (
        View(LENGTH, min_context=8),
        View(LENGTH, offsets=(1, 6)),
        View(LENGTH - 1),
        View(LENGTH, "cyclic"),
        View(LENGTH, positions=POSITIONS),
    ):
        with pytest.raises(UsageError, match="in the collator and"):
            PairCollator(view)(items)


def test_positions_belong_to_the_step_and_leave_windows_and_offsets_alone(numbered: list[TokenDocument]):
    sampled = Positions(sampler="random_positions", target_length=TARGET)
    placed, plain = (data_of("truncation", numbered, positions=each) for each in (sampled, None))
    draws = set()
    for step in range(6):
        items = [placed[3 * step + i] for i in range(3)]
        batch = PairCollator(placed.view)(items)
        geometry, positions = placed.view.draw(5, [step])
        # Truncated windows are both at the one draw of their step.
        assert torch.equal(batch["position_ids"], positions[:1].expand(6, -1))
        assert batch["attention_mask"].all()
        assert (geometry.offset, geometry.min_context) == (plain.view.draw(5, [step])[0].offset, LENGTH // 2)
        for i, item in enumerate(items):
            assert np.array_equal(item["input_ids"], plain[3 * step + i]["input_ids"])
        draws.add(tuple(positions[0].tolist()))
    assert len(draws) > 3


POSE = {"sampler": "pose", "target_length": 64}
GAP = {"views": "gap", "positions": POSE, "objective": {"alpha": 1.0, "divergence": "kl", "detach": "long"}}


def test_the_step_does_not_depend_on_its_micro_batches(make: Make, tmp_path: Path):
    whole = run(make(**GAP), tmp_path / "whole")
    parts = run(make(**GAP, batch={"size": 4, "micro": 1}), tmp_path / "parts")
    for expected, got in zip(whole, parts, strict=True):
        for name in ("loss", "cross_entropy_long", "cross_entropy_short", "divergence", "paired_positions"):
            assert got[name] == pytest.approx(expected[name], rel=2e-4), name


def test_gap_views_have_pairs_from_the_beginning(make: Make):
    assert make(**GAP).view.offsets == (0, 0)
    assert plan(make(**GAP))["min_context"] == 0


def test_models_that_positions_cannot_reach_are_refused(make: Make, tmp_path: Path):
    gpt2 = str(saved(tiny_model("gpt2"), tmp_path / "gpt2"))
    bloom = str(saved(tiny_model("bloom-alibi"), tmp_path / "bloom"))
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
