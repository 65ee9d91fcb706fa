"""The `eval:` section of a recipe."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.measure import Perplexity, run
from lengthwise.runs import read_metrics
from lengthwise.training import Recipe, train
from tests.tiny_folders import texts_in


def test_a_recipe_measures_stops_and_keeps_the_best(make: Callable[..., Recipe], tmp_path: Path):
    """The rule by hand on the run's own log; the kept model gives the best number again."""
    other = texts_in(tmp_path / "other", 2, 400, seed=70)
    metric = "eval_perplexity/perplexity@32"
    held = {
        "every": 1,
        "corpus": str(other),
        "split": "all",
        "windows": 6,
        "measurements": {"ppl": {"lengths": [32], "windows": 2}},
        "metric": metric,
        "patience": 2,
        "keep_best": True,
    }
    optimizer = {"learning_rate": 0.3, "schedule": "constant"}
    recipe = make(eval=held, steps=20, save_every=20, optimizer=optimizer)
    results = train(recipe, tmp_path / "run")
    found = {line["step"]: line for line in read_metrics(tmp_path / "run" / "metrics.jsonl")}
    numbers = [found[step][metric] for step in sorted(found)]
    assert all(
        {"loss", "eval_loss", "eval_jeffreys", "eval_cross_entropy"} < line.keys() for line in found.values()
    )
    best = min(range(len(numbers)), key=lambda index: numbers[index])
    assert len(numbers) == best + 1 + 2 < 20
    assert f"after step {best + 1}; {best + 3} of 20 steps" in " ".join(results.notes)
    rows = run(Perplexity(lengths=(32,), windows=2), str(tmp_path / "run" / "model"), str(other)).rows
    [again] = [row.value for row in rows if row.metric == "perplexity" and row.is_headline]
    assert again == pytest.approx(numbers[best], rel=1e-5)


@pytest.mark.parametrize("name", ["eval_jefreys", "eval_perplexity/loss@23"])
def test_a_number_that_no_evaluation_has_is_named_with_the_nearest(name, make, tmp_path):
    held = {"every": 1, "corpus": str(texts_in(tmp_path / "other", 2, 400)), "split": "all", "windows": 4}
    held |= {"measurements": {"ppl": {"lengths": [32], "windows": 2}}, "metric": name}
    near = "eval_jeffreys" if "jef" in name else "eval_perplexity/loss@32"
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        train(make(eval=held), tmp_path / "run")


@pytest.mark.parametrize(
    ("held", "changes", "words"),
    [
        ({"every": 2}, {}, "trained on"),
        ({"every": 4, "corpus": "books", "keep_best": True}, {}, "save_every = 2"),
        ({"every": 2, "corpus": "books", "measurements": {"pppl": {}}}, {}, "ppl"),
        ({"every": 2, "corpus": "books", "measurements": {"ppl": {"length": 3}}}, {}, "lengths"),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused(held, changes, words, make):
    with pytest.raises(UsageError, match=words):
        make(eval=held, **changes)
