"""The studies of sparsity: from a smoke run to a page, and verdicts on made-up outcomes."""

import math
from dataclasses import replace

import pytest

from lengthwise.results import read_results
from lengthwise_studies.claims import judge
from lengthwise_studies.sparsity import bounds, coupling_study, parity
from lengthwise_studies.sparsity.grid import Outcome, decision, difference, over_seeds, share
from lengthwise_studies.study_table import produce


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("sparse-parity", {"sparse-parity-anywhere.svg", "sparse-parity-local.svg"}),
        ("position-coupling", {"position-coupling-nope.svg", "position-coupling-rotary.svg"}),
        ("sparsity-bounds", {"sparsity-bounds.svg"}),
    ],
)
def test_a_smoke_run_gives_a_page(name, figures, tmp_path):
    made = produce(name, tmp_path, scale="smoke")
    assert made.page.exists()
    assert {one.name for one in (tmp_path / "figures").glob("*.svg")} == figures
    assert not read_results(tmp_path / "results.json").partial


def test_shares_and_their_intervals():
    counts = [("a", 1, [10, 10]), ("b", 1, [5, 7]), ("c", 1, [0, 0])]
    outcome = Outcome(train_loss=[0.0, 0.0], samples=10, right=counts, seconds=0.0)
    all_right, some, none = (share(outcome, (what, 1)) for what in "abc")
    assert some.value == 0.6
    assert some.seeds == (0.5, 0.7)
    # Clopper and Pearson: 12 of 20.
    assert (some.low, some.high) == pytest.approx((0.36054, 0.80881), abs=1e-5)
    assert (all_right.low, all_right.high) == pytest.approx((0.025 ** (1 / 20), 1))
    assert (none.low, none.high) == pytest.approx((0, 1 - 0.025 ** (1 / 20)))
    assert all_right.wrong == 1 - all_right.low
    assert share(outcome, ("a", 1), ("b", 1)).seeds == (0.75, 0.85)
    apart = difference(all_right, some)
    assert (apart.value, apart.low) == (pytest.approx(0.4), None), "two seeds have no interval"
    # Student's t at two degrees of freedom: 4.3027; the standard error is 0.1 / sqrt(3).
    three = over_seeds([0.3, 0.4, 0.5])
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert (three.value, three.low, three.high) == pytest.approx((0.4, 0.4 - half, 0.4 + half), abs=1e-4)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((4, 0, 4), "holds"),
        ((0, 4, 4), "does not hold"),
        ((0, 0, 4), "not decided"),
        ((1, 0, 4), "holds for 1 of 4, 3 not decided"),
        ((1, 3, 4), "holds for 1 of 4"),
        ((0, 1, 4), "does not hold for 1 of 4, 3 not decided"),
    ],
)
def test_a_claim_fails_only_where_the_numbers_contradict_it(counts, said):
    assert decision(*counts) == said


def _parity_outcomes(scale, near, far):
    """Of models with these accuracies by k and length, where planted tokens are local, and where not."""

    def outcome(accuracy):
        # Seeds differ a little; their mean is 2 of 1000 above the accuracy.
        right = [
            (f"k = {k}", length, [round(1000 * accuracy(k, length)) + seed for seed in range(5)])
            for k in scale.test_ks
            for length in scale.test_lengths
        ]
        return Outcome(train_loss=[0.1] * 5, samples=1000, right=right, seconds=1.0)

    return {cell: outcome(near if cell.local else far) for cell in parity.cells_of(scale)}


def _verdicts(claims, numbers):
    return [one.verdict for one in judge(claims, numbers)]


class TestParityVerdicts:
    scale = replace(parity.SCALES["default"], train_ks=(4, 6))

    def _verdicts(self, near, far):
        return _verdicts(
            parity.CLAIMS, parity.Accuracies(self.scale, _parity_outcomes(self.scale, near, far))
        )

    def test_models_that_generalize_where_tokens_are_local(self):
        def near(k, length):
            return 0.5 if k > 6 else 0.98 - (length > 32) * 0.01 * k

        def far(k, length):
            return 0.5 if length > 32 or k > 6 else 0.98

        verdicts = self._verdicts(near, far)
        assert verdicts == [
            "holds for 2 of 4",
            "holds for 2 of 4",
            "holds for 1 of 2, 1 not decided",
            "holds",
            "local better at 2 of 2, worse at 0",
        ]

    def test_models_that_were_not_trained_decide_nothing(self):
        assert self._verdicts(*[lambda k, n: 0.6] * 2) == ["says nothing: not trained"] * 5


def test_verdicts_on_bounds():
    scale = bounds.SCALES["default"]

    def perfect(k, length):
        return 0.993

    def failing(k, length):
        return 0.993 if length <= 32 else 0.6

    numbers = bounds.bounded(scale, _parity_outcomes(scale, perfect, failing))
    local = [one for one in numbers if one.cell.local and one.length == 64]
    # delta 0.005; L = 32, M = 64, L_local = 8, etas 1: 32 * 64^2 * 0.005 and 64 * 0.005.
    assert local[0].delta == pytest.approx(0.005)
    assert local[0].bound(bounds.THEOREM) == pytest.approx(655.36)
    assert local[0].bound(bounds.IMPROVED) == pytest.approx(0.32)
    verdicts = _verdicts(bounds.CLAIMS, numbers)
    assert verdicts[0] == "vacuous"
    assert verdicts[1] == "says something at 2 of 8"
    assert verdicts[2:4] == ["holds", "holds"]
    assert verdicts[4] == "locality lowers the error at 4 of 4 lengths"
    # A model that fails at twice the length breaks the improved bound with a constant of 1.
    broken = bounds.bounded(scale, _parity_outcomes(scale, failing, failing))
    assert _verdicts(bounds.CLAIMS, broken)[3].startswith("needs a constant")


def test_verdicts_on_coupling():
    scale = coupling_study.SCALES["default"]
    exact = {
        "none": [0] * 3,
        "random": [0] * 3,
        "coupled": [64, 64, 0],
        "predicted": [32] * 3,
        "pointed": [64] * 3,
    }

    def outcome(cell):
        right = [
            (metric, length, [number] * 5)
            for length, number in zip(cell.lengths(scale), [60, *exact[cell.ids]], strict=True)
            for metric in (coupling_study.TOKENS, coupling_study.BOTH)
        ]
        return Outcome(train_loss=[0.1] * 5, samples=64, right=right, seconds=1.0)

    cells = [coupling_study.CoupledCell("parity", ids) for ids in exact]
    found = {cell: outcome(cell) for cell in cells}
    ours = [claim for claim in coupling_study.claims(scale) if claim.place == "parity"]
    # At two, three and four times the training length.
    counts = ((2, 0), (2, 0), (3, 0), (1, 2), (3, 0))
    assert _verdicts(ours, found) == [
        *("higher in {} of 3 cases, lower in {}".format(*one) for one in counts),
        "holds for 2 of 3 cases",
        "does not hold",
    ]
    table = coupling_study.exact_table(scale, found)
    assert len(table.rows) == 7, "predicted ids have a line for tokens alone too"
