"""Every pair of views: what its rows hold, and that paired rows are the same targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.positions import position_sampler
from lengthwise.text import TokenDocument
from lengthwise.training import PairCollator, WindowDataset
from lengthwise.training.views import VIEWS, make_views
from lengthwise.training.views.pair import Generators
from lengthwise.training.views.positions import Positions

LENGTH, TARGET, STEPS = 48, 512, 24
POSITIONS = Positions(sampler="skip", target_length=TARGET)
CASES: dict[str, dict[str, Any]] = {
    "truncation": {"offsets": (1, 20)},
    "gap": {"positions": POSITIONS},
    "cyclic": {},
    "repeat": {"positions": POSITIONS, "view_options": {"share": 1.0, "passage": 12}},
}


@pytest.fixture(scope="module")
def numbered() -> list[TokenDocument]:
    """Documents in which no token comes twice, so that a token tells where it is from."""
    return [TokenDocument(str(i), np.arange(1000 * i, 1000 * i + 900, dtype=np.int32)) for i in range(5)]


def data_of(name: str, documents: list[TokenDocument], **changes: Any) -> WindowDataset:
    settings = {"batch_size": 3, "steps": STEPS, "seed": 5} | CASES[name] | changes
    return WindowDataset(documents, length=LENGTH, views=name, **settings)


def batches(name: str, documents: list[TokenDocument], **changes: Any) -> list[dict[str, Any]]:
    data = data_of(name, documents, **changes)
    settings = {key: value for key, value in (CASES[name] | changes).items() if key != "offsets"}
    collator = PairCollator(LENGTH, views=name, **settings)
    return [collator([data[3 * step + i] for i in range(3)]) for step in range(STEPS)]


@pytest.mark.parametrize("name", VIEWS)
def test_paired_rows_are_the_same_targets(name: str, numbered: list[TokenDocument]):
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
def test_views_are_a_function_of_the_seed(name: str, numbered: list[TokenDocument]):
    once, again, other = (
        batches(name, numbered, **{} if seed == 5 else {"seed": seed}) for seed in (5, 5, 6)
    )
    for one, two in zip(once, again, strict=True):
        assert one["geometry"] == two["geometry"]
        assert all(torch.equal(one[column], two[column]) for column in ("input_ids", "labels"))
    assert any(not torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("name", [name for name, entry in VIEWS.items() if not entry.truncates])
def test_the_long_view_is_plain_text_at_its_own_positions(name: str, numbered: list[TokenDocument]):
    for batch in batches(name, numbered, **{"view_options": {"share": 0.0}} if name == "repeat" else {}):
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
    for batch in batches("repeat", numbered):
        cut = int(batch["position_ids"][-1].diff().argmax()) + 1
        size = min(12, cut, LENGTH - cut)
        for tokens, labels in zip(batch["input_ids"][:3], batch["labels"][:3], strict=True):
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
        assert torch.equal(*batch["input_ids"].chunk(2))
    assert planted > STEPS


def test_repeats_anywhere_leave_the_rest_of_the_text(numbered: list[TokenDocument]):
    options = {"share": 1.0, "passage": 12, "place": "anywhere"}
    places = set()
    for batch in batches("repeat", numbered, view_options=options):
        cut = int(batch["position_ids"][-1].diff().argmax()) + 1
        size = min(12, cut, LENGTH - cut)
        for tokens, labels in zip(batch["input_ids"][:3], batch["labels"][:3], strict=True):
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
    for batch in batches("repeat", numbered, view_options=options):
        cut = int(batch["position_ids"][-1].diff().argmax()) + 1
        if not 8 <= cut <= LENGTH - 16:
            continue
        for tokens in batch["input_ids"][:3]:
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
    for batch in batches("repeat", numbered, positions=fixed, view_options={"share": 0.3, "passage": 8}):
        if 8 <= int(batch["position_ids"][-1].diff().argmax()) + 1 <= LENGTH - 8:
            long = batch["input_ids"][:3]
            changed += int((long != long[:, :1] + torch.arange(LENGTH)).any(dim=1).sum())
            total += 3
    assert total > 20
    assert abs(changed / total - 0.3) < 4 * (0.21 / total) ** 0.5


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
def test_a_share_of_the_steps_skips_and_the_others_have_no_pairs(name: str, numbered: list[TokenDocument]):
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
    drawn = [sampler.draw(np.random.default_rng(seed), LENGTH, TARGET) for seed in range(400)]
    plain = [positions for positions in drawn if bool((positions.diff() == 1).all())]
    assert abs(len(plain) / 400 - (1 - share)) < 0.1
    starts = [int(positions[0]) for positions in plain]
    assert 0.4 < np.mean([start == 0 for start in starts]) < 0.6
    assert 0.9 * (TARGET - LENGTH) < max(starts) <= TARGET - LENGTH


@pytest.mark.parametrize("options", [{}, {"spread": "log"}, {"skips": 3}, {"max_gap": 40}, {"shifted": 0.5}])
def test_skips_leave_out_positions_and_keep_the_order(options: dict[str, Any]):
    sampled = Positions(sampler="skip", options=options, target_length=TARGET)
    views = make_views("gap", length=LENGTH, positions=sampled)
    gaps, starts = [], 0
    for step in range(400):
        draw = views.draw(Generators(0, (step,)))
        positions = draw.short_positions
        assert positions is not None
        jumps = positions.diff() - 1
        assert positions[0] >= 0
        assert positions[-1] < TARGET
        assert int((jumps > 0).sum()) == options.get("skips", 1)
        assert draw.first == int((jumps > 0).nonzero()[0]) + 1
        gaps.append(int(jumps.sum()))
        starts += int(positions[0] > 0)
    most = options.get("max_gap", TARGET - LENGTH)
    assert options.get("skips", 1) <= min(gaps)
    assert 0.9 * most < max(gaps) <= most
    # Half of uniform draws lie below the middle, half of logarithmic ones below the geometric mean.
    middle = (most + 1) ** 0.5 if options.get("spread") == "log" else (most + options.get("skips", 1)) / 2
    assert abs(np.mean(np.array(gaps) <= middle) - 0.5) < 0.1
    assert abs(starts / 400 - options.get("shifted", 0)) < 0.1


@pytest.mark.parametrize(
    "options", [{"skips": 0}, {"max_gap": 0}, {"shifted": 1.5}, {"share": -0.1}, {"spread": "wide"}]
)
def test_skips_that_cannot_be_are_refused(options: dict[str, Any]):
    with pytest.raises(UsageError):
        position_sampler("skip", options)
