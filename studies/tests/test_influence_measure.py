"""Which tokens are chosen, what they recover, and what is shown of it."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import paired_difference
from lengthwise.measure.runner import run as measure
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text
from lengthwise_studies.sparsity import kept_context
from lengthwise_studies.sparsity.influence_measure import Influence
from lengthwise_studies.sparsity.kept_context import greedy, leave_one_out
from tests.readings import in_memory

SMALL = {
    "length": 64,
    "short": 8,
    "windows": 4,
    "gain": 0.01,
    "kept": (1, 2),
    "candidates": 3,
    "examined": 6,
    "targets": 2,
}


def planted_losses(sets: list[list[Any]]) -> list[np.ndarray]:
    """6, less 1 for token 5, 2 for 9, and 2 more for both; token 20 costs 1. Twice that for the second target."""
    worth = [
        [
            (5 in one) + 2.0 * (9 in one) + 2.0 * (5 in one and 9 in one) - (20 in one)
            for one in map(list, some)
        ]
        for some in sets
    ]
    return [(6 - np.array(some)) * (1 + index) for index, some in enumerate(worth)]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return in_memory()


@pytest.fixture(scope="module")
def other_model() -> LoadedModel:
    return in_memory(tiny_llama(seed=1), "other")


@pytest.fixture
def run(tmp_path: Path) -> Subject:
    """A model and a text that holds what a page must escape."""
    (tmp_path / "a.txt").write_text(tiny_text(400).replace("king", "<b>&amp;"))
    return Subject(model=str(save_tiny_model(tmp_path / "model")), text=str(tmp_path / "a.txt"))


def test_choices():
    tried, distant = [[20, 9, 5, 30], [20, 9]], [np.arange(1, 32), np.arange(1, 33)]
    assert greedy(planted_losses, tried, 3) == [[9, 5, 30], [9, 20]]
    assert leave_one_out(planted_losses, distant, tried, 2) == [[9, 5], [9, 20]]
    assert greedy(planted_losses, [], 3) == []


def test_the_first_by_gradient_has_the_largest_norm(monkeypatch: pytest.MonkeyPatch):
    scores = np.zeros(40)
    scores[[20, 9, 5, 30]] = 4, 3, 2, 1
    monkeypatch.setattr(
        kept_context, "embedding_attributions", lambda model, ids, target: scores[:target, None]
    )
    [found] = kept_context.by_gradient(None, [np.arange(60)], [40], short=8)  # type: ignore[arg-type]
    assert found[:4] == [20, 9, 5, 30]


def test_controls(model: LoadedModel):
    """Of one window of random tokens, in which the target comes twice before."""
    ids = np.random.default_rng(1).integers(model.vocab_size, size=64)
    ids[[3, 17, 50]] = 40
    settings = Influence(**{**SMALL, "kept": (3,)})
    [found] = settings._kept(model, ids, None, [50], np.random.default_rng(0))
    assert found["kept"]["recent"] == [41, 40, 39]
    assert found["kept"]["copies"] == [17, 3]
    assert set(found["kept"]["random"]) < set(range(1, 42))
    assert [found["kept"]["gradient"]] == kept_context.by_gradient(model, [ids], [50], short=8, most=3)


def test_targets_together_are_chosen_as_one_by_one(model: LoadedModel):
    windows = list(np.random.default_rng(1).integers(model.vocab_size, size=(2, 40)))
    targets, distant = [30, 36], [np.arange(1, 22), np.arange(1, 28)]
    tried = kept_context.by_gradient(model, windows, targets, short=8, most=5)

    def losses(*which: int) -> Any:
        own = [windows[i] for i in which], [targets[i] for i in which]
        return partial(kept_context.losses_keeping, model, *own, short=8, batch_size=4)

    both = losses(0, 1)
    assert greedy(both, tried, 3) == [greedy(losses(i), [tried[i]], 3)[0] for i in (0, 1)]
    assert leave_one_out(both, distant, tried, 3) == [
        leave_one_out(losses(i), [distant[i]], [tried[i]], 3)[0] for i in (0, 1)
    ]


def test_the_numbers_are_ratios_of_sums():
    settings = Influence(**SMALL)
    losses = {"greedy": [3.0, 2.0], "random": [5.0, 5.0], "greedy_foreign": [4.5, 4.0]}
    one = {"position": 40, "losses": losses}
    two = {"position": 50, "losses": {name: [1.0, 1.0] for name in losses}}
    records = [
        {"document": "a", "examined": [[40, 1.0, 5.0, 0.4], [41, 2.0, 2.0, 0.0]], "targets": [one]},
        {"document": "a", "examined": [[50, 1.0, 2.0, 0.2], [51, 2.0, 2.0, 0.0]], "targets": [two]},
        {"document": "b", "examined": [[42, 3.0, 3.0, 0.0]], "targets": []},
    ]
    found = {
        (one.row.metric, one.row.kept): one.estimator(one.totals.sum(axis=0, keepdims=True))[0]
        for one in settings.statistics(records)
    }
    assert found["gain", None] == 2.5
    assert found["gaining", None] == 2 / 5
    assert found["loss_long", None] == 1
    assert found["jeffreys", None] == pytest.approx(0.12)
    assert found["recovered_greedy", 1] == (2 + 1) / 5
    assert found["recovered_greedy", 2] == (3 + 1) / 5
    assert found["recovered_random", 2] == (0 + 1) / 5
    assert found["recovered_net", 2] == (2 + 0) / 5
    assert found["enough", 1] == 1 / 2
    assert ("recovered_copies", 1) not in found


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [tiny_text(300, seed=seed) for seed in range(3)]


def test_without_targets_the_same_tokens_are_examined(model: LoadedModel, texts: list[str]):
    whole, examined = (
        measure(Influence(**{**SMALL, "targets": targets}), model, texts) for targets in (2, 0)
    )
    kept = [row for row in whole.rows if row.metric in ("gaining", "jeffreys")]
    assert [(row.metric, row.value) for row in examined.rows] == [(row.metric, row.value) for row in kept]
    assert [examined.records[key]["examined"] for key in examined.records] == [
        whole.records[key]["examined"] for key in whole.records
    ]


def test_only_what_is_of_the_same_tokens_is_compared(model, other_model, texts):
    whole = [measure(Influence(**SMALL), one, texts) for one in (model, other_model)]
    with pytest.raises(UsageError, match="not of the same items"):
        paired_difference(*whole, kind=Influence)
    one, two = (measure(Influence(**{**SMALL, "targets": 0}), one, texts) for one in (model, other_model))
    values = [{row.metric: row.value or 0.0 for row in side.rows} for side in (one, two)]
    found = {row.metric: row.value for row in paired_difference(one, two, kind=Influence)}
    assert set(found) == {"gaining", "jeffreys"}
    for metric, value in found.items():
        assert value == pytest.approx(values[0][metric] - values[1][metric])


def test_a_text_without_gains_has_no_numbers_of_them_and_a_note(tmp_path: Path, run: Subject):
    found = measure(Influence(**{**SMALL, "gain": 1000}), run, out=tmp_path / "run")
    values = {row.metric: row.value for row in found.rows if row.kept is None}
    assert values["gaining"] == 0
    assert values["gain"] is values["loss_long"] is None
    assert any("more than 1000 nats" in note for note in found.notes)
    assert len((tmp_path / "run" / "samples.jsonl").read_text().splitlines()) == SMALL["windows"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"length": 64, "short": 30}, "leave 1 distant tokens"),
        ({"kept": (9,)}, "candidates is 8"),
        ({"length": 64, "candidates": 24}, "for 24 candidates"),
        ({"length": 64, "examined": 33}, "examined is 33"),
        ({"kept": ()}, "kept"),
        ({"gain": float("nan")}, "gain is nan"),
    ],
)
def test_refused_settings(settings: dict[str, Any], match: str):
    with pytest.raises(UsageError, match=match):
        Influence(**settings)
