"""The table of divergences, the objective's settings, and what one more divergence takes."""

import math
from typing import get_args

import pytest
import torch

from lengthwise.alignment import DIVERGENCES, Objective, divergence_from_logits
from lengthwise.alignment.divergences import Detach, Divergence
from lengthwise.alignment.formulas import FORMULAS
from lengthwise.errors import UsageError
from tests.alignment.problems import assert_fused_is_plain, problem


def test_every_divergence_has_an_entry_a_formula_and_a_reason_for_each_refusal():
    assert list(DIVERGENCES) == list(FORMULAS)
    for entry in DIVERGENCES.values():
        assert {*entry.detach, *entry.refused} == set(get_args(Detach))


def test_one_more_score_is_one_more_line(monkeypatch):
    """Half of Jensen-Shannon's score, as a source of its own: its gradient and value are halved."""
    from lengthwise.alignment.formulas import SCORES, jensen_shannon

    monkeypatch.setitem(SCORES, "half", lambda difference, total: SCORES["mixture"](difference, total) / 2)
    monkeypatch.setitem(DIVERGENCES, "half_js", Divergence("", "half", k=(0, 0), sign=(1, 1)))
    formula = (lambda p, q: jensen_shannon(p, q) / 2, lambda pairs, _: pairs[4].sum())
    monkeypatch.setitem(FORMULAS, "half_js", formula)
    assert_fused_is_plain(problem(), alpha=3.0, divergence="half_js")


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf, -math.inf, "0.1", None, True])
def test_alpha_is_a_finite_weight(alpha):
    with pytest.raises(UsageError, match="alpha") as caught:
        Objective(alpha=alpha)
    assert repr(alpha) in caught.value.problem


@pytest.mark.parametrize(
    ("divergence", "detach", "meant"),
    [
        ("jefreys", "none", "jeffreys"),
        ("wasserstein", "none", "sce"),
        ("sce", "shrot", "short"),
        ("kl", "none", "long, short"),
        ("reverse_kl", "both-targets", "long, short"),
        ("js", "both-targets", "none, long, short"),
    ],
)
def test_unknown_and_meaningless_terms_are_refused(divergence, detach, meant):
    with pytest.raises(UsageError) as caught:
        Objective(alpha=0.3, divergence=divergence, detach=detach)
    assert meant in caught.value.expected


@pytest.mark.parametrize("name", ["fused", "plain"])
@pytest.mark.parametrize(("divergence", "detach"), [("sce", "none"), ("sce", "short"), ("entropy", "none")])
def test_a_weight_without_finite_optimum_warns(name, divergence, detach):
    term = {"alpha": 0.5, "divergence": divergence, "detach": detach}
    with pytest.warns(UserWarning, match="entropy") as caught:
        getattr(problem(), name)(**term)
    assert caught[0].filename == __file__.replace("test_divergences.py", "problems.py")


@pytest.mark.parametrize(
    ("divergence", "detach", "ce_on", "limit"),
    [
        ("sce", "none", "both", 1 / 2),
        ("sce", "none", "long", 1 / 3),
        ("sce", "long", "long", 1 / 3),
        ("sce", "short", "long", 1 / 2),
        ("sce", "both-targets", "short", math.inf),
        ("entropy", "none", "short", 0),
        ("entropy", "long", "short", 1 / 2),
        ("jeffreys", "none", "short", math.inf),
        ("reverse_kl", "long", "long", math.inf),
    ],
)
def test_the_limit_of_sharpening(divergence, detach, ce_on, limit):
    terms = {"divergence": divergence, "detach": detach, "ce_on": ce_on}
    assert Objective(alpha=0.0, **terms).sharpening_limit == limit
    Objective(alpha=0.9 * min(limit, 10.0), **terms).warn_of_sharpening()
    if limit < 1:
        with pytest.warns(UserWarning, match=f"from alpha = {limit:.3g} on"):
            Objective(alpha=limit or 1e-3, **terms).warn_of_sharpening()


@pytest.mark.parametrize(
    ("ce_on", "free", "expected"),
    [
        ("both", False, (1 / (1 - 2 * 0.1),) * 2),
        ("both", True, (1 / (1 - 2 * 0.1),) * 2),
        ("long", False, (1 / (1 - 2 * 0.1),) * 2),
        ("long", True, (1 / (1 - 3 * 0.1), 2 / (1 - 3 * 0.1))),
    ],
)
def test_stationary_inverse_temperatures(ce_on, free, expected):
    """The claim of the warning: where sce with alpha = 0.1 takes a calibrated model, whose two views have one
    temperature or, `free`, one each."""
    torch.manual_seed(0)
    logits = 0.1 * torch.randn(400, 64, dtype=torch.float64)
    truth = logits.softmax(-1)
    inverse_temperatures = torch.ones(2 if free else 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([inverse_temperatures], max_iter=50, line_search_fn="strong_wolfe")
    objective = Objective(alpha=0.1, ce_on=ce_on)

    def closure():
        optimizer.zero_grad()
        views = [b * logits for b in inverse_temperatures.expand(2)]
        losses = [-(truth * view.log_softmax(-1)).sum(-1).mean() for view in views]
        loss = (
            objective.trained_cross_entropy(*losses) + 0.1 * divergence_from_logits(*views, objective).mean()
        )
        loss.backward()
        return loss

    optimizer.step(closure)
    assert inverse_temperatures.expand(2).tolist() == pytest.approx(expected, rel=0.01)
