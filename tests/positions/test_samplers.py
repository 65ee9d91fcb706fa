from collections import Counter

import numpy as np
import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.positions import POSITION_SAMPLERS, position_sampler
from lengthwise.positions.samplers import cream_ratios, first_gap

every_sampler = pytest.mark.parametrize("name", POSITION_SAMPLERS)


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def draws(sampler, count: int, length: int, target: int) -> list[torch.Tensor]:
    return [sampler(rng(7, index), length, target) for index in range(count)]


@every_sampler
def test_positions_ascend_within_the_target_and_follow_from_the_generator(name: str):
    sampler = position_sampler(name)
    found = draws(sampler, 100, 40, 160)
    for index, positions in enumerate(found):
        assert positions.shape == (40,)
        assert positions.dtype == torch.int64
        assert (positions.diff() > 0).all()
        assert positions[0] >= 0
        assert positions[-1] <= 159
        assert torch.equal(sampler(rng(7, index), 40, 160), positions)
    assert len({tuple(p.tolist()) for p in found}) > 50
    assert max(int(p[-1]) for p in found) > 140


@every_sampler
def test_a_target_of_the_window_itself_leaves_positions_as_they_are(name: str):
    assert position_sampler(name)(rng(0), 40, 40).tolist() == list(range(40))


@every_sampler
def test_impossible_lengths_are_refused(name: str):
    with pytest.raises(UsageError, match=r"39.*40"):
        position_sampler(name)(rng(0), 40, 39)
    for impossible, says in (
        ((1, 4), "length is 1"),
        ((16.5, 64), "length is 16.5"),
        ((16, 64.5), "is 64.5"),
    ):
        with pytest.raises(UsageError, match=says):
            position_sampler(name)(rng(0), *impossible)


def within_five_sigma(counts: Counter, values: dict[int, float]) -> None:
    total = sum(counts.values())
    assert set(counts) <= set(values)
    for value, share in values.items():
        spread = 5 * (total * share * (1 - share)) ** 0.5
        assert abs(counts[value] - total * share) <= spread, value


def test_every_subset_of_random_positions_is_equally_likely():
    found = Counter(tuple(p.tolist()) for p in draws(position_sampler("random_positions"), 3000, 2, 4))
    numbered = {subset: index for index, subset in enumerate(sorted(found))}
    assert len(numbered) == 6
    counts = Counter({numbered[subset]: count for subset, count in found.items()})
    within_five_sigma(counts, dict.fromkeys(range(6), 1 / 6))


def test_pose_has_an_even_cut_in_the_first_half_and_an_even_gap():
    found = draws(position_sampler("pose"), 4000, 9, 14)
    within_five_sigma(Counter(int(p[-1]) - 8 for p in found), dict.fromkeys(range(6), 1 / 6))
    cuts = Counter(first_gap(p) for p in found if p[-1] > 8)
    within_five_sigma(cuts, dict.fromkeys(range(1, 6), 1 / 5))
    for positions in found:
        steps = positions.diff()
        assert int((steps != 1).sum()) <= 1


# f: probabilities of r = 2 .. 2f as the released code draws them (f = 8 to the digits that are known).
RELEASED = {
    2: [0.5, 0.1306, 0.3694],
    8: [
        *(0.0228, 0.025, 0.0434, 0.0674, 0.0938, 0.1169, 0.1306, 0.1306),
        *(0.1169, 0.0938, 0.0674, 0.0434, 0.025, 0.0129, 0.0098),
    ],
}


@pytest.mark.parametrize("factor", RELEASED)
def test_cream_legacy_has_the_probabilities_of_the_released_code(factor: int):
    found = cream_ratios(factor, legacy=True)
    np.testing.assert_allclose(found, RELEASED[factor], atol=6e-5)
    # The released code's own steps: a table of the distribution function, inverted, rounded down.
    table = np.linspace(2, 2 * factor, 1000)
    normal = torch.distributions.Normal(1.0 + factor, 3.0)
    cdf = normal.cdf(torch.from_numpy(table)).numpy()
    uniform = (np.arange(200_000) + 0.5) / 200_000
    ratios = np.floor(np.interp(uniform, cdf, table)).astype(int)
    stepped = np.bincount(ratios, minlength=2 * factor + 1)[2:] / len(uniform)
    np.testing.assert_allclose(stepped, found, atol=2e-3)


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_creams_gaussian_is_symmetric_and_favours_the_middle_where_legacy_does_not(factor: int):
    found = cream_ratios(factor)
    assert found.sum() == pytest.approx(1)
    np.testing.assert_allclose(found, found[::-1])
    assert found.argmax() == factor - 1
    expected = np.exp(-(1.0**2) / (2 * 9))
    assert found[factor - 2] / found[factor - 1] == pytest.approx(expected)
    if factor == 2:
        assert cream_ratios(factor, legacy=True).argmin() == 1


@pytest.mark.parametrize(("factor", "tails"), [(2, {6827, 8184}), (8, {31403, 32736})])
def test_creams_chunks_at_its_real_size(factor: int, tails: set[int]):
    found = set()
    for positions in draws(position_sampler("cream"), 40, 4096, 4096 * factor):
        ends = (
            (e, positions[e - 1] == e - 1, positions[-e] == factor * 4096 - e) for e in (1365, 4 * factor)
        )
        edge = next(e for e, head, tail in ends if head and tail)
        found.add(int(positions[-edge]))
        middle = positions[edge:-edge]
        assert int(middle[-1] - middle[0]) == len(middle) - 1
    assert found == tails


def test_creams_middle_is_even_between_its_bounds():
    # f = 2, L = 24: head and middle have 8 tokens; r = 3 puts the middle's last position at 18 .. 27.
    last = Counter(int(p[15]) for p in draws(position_sampler("cream", {"sigma": 0.1}), 4000, 24, 48))
    within_five_sigma(last, dict.fromkeys(range(18, 28), 1 / 10))


def test_cream_says_which_lengths_it_takes():
    with pytest.raises(UsageError, match=r"80 or 120"):
        position_sampler("cream")(rng(0), 40, 100)
    with pytest.raises(UsageError, match=r"(?s) 5 .* 40 "):
        position_sampler("cream")(rng(0), 40, 200)


def test_clex_positions_pin_both_ends_of_an_even_extent():
    found = draws(position_sampler("clex_positions"), 2000, 10, 40)
    assert all(p[0] == 0 for p in found)
    within_five_sigma(Counter(int(p[-1]) for p in found), dict.fromkeys((9, 19, 29, 39), 1 / 4))
    inner = Counter(int(i) for p in found if p[-1] == 19 for i in p[1:-1])
    assert set(inner) == set(range(1, 19))


def test_clex_positions_of_a_longer_window_are_divided():
    found = draws(position_sampler("clex_positions", {"original_length": 10}), 200, 20, 40)
    assert all(p.dtype == torch.float32 for p in found)
    # 1, 2, 3 or 4 times the window's 20 positions, halved.
    assert {float(p[-1]) for p in found} == {9.5, 19.5, 29.5, 39.5}
    with pytest.raises(UsageError, match=r"20.*12"):
        position_sampler("clex_positions", {"original_length": 12})(rng(0), 20, 48)


def test_the_first_gap():
    assert first_gap(torch.tensor([3, 4, 5])) == 3
    assert first_gap(torch.tensor([0, 1, 5])) == 2
    assert first_gap(torch.tensor([0.0, 0.5, 1.0])) == 1
