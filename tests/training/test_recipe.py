import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import get_scheduler

from lengthwise.alignment import PairGeometry
from lengthwise.errors import UsageError
from lengthwise.settings import checked
from lengthwise.training.recipe import Optimizer, Recipe, read_recipe, shipped_recipes
from lengthwise.yaml_text import to_yaml

MINIMAL: dict[str, Any] = {
    "model": "m",
    "data": {"corpus": "c"},
    "length": 16,
    "steps": 4,
    "optimizer": {"learning_rate": 1e-3},
}


def test_length_steps_model_corpus_and_learning_rate_have_no_default():
    with pytest.raises(UsageError) as caught:
        checked(Recipe, {"data": {}, "optimizer": {}}, source="recipe")
    message = str(caught.value)
    for key in ("model", "length", "steps", "data.corpus", "optimizer.learning_rate"):
        assert f"missing key '{key}'" in message


def test_offsets_default_to_all_that_leave_a_pair():
    for length, min_context, last in ((16, None, 7), (17, None, 8), (16, 0, 15), (16, 12, 3)):
        recipe = Recipe(**MINIMAL | {"length": length, "min_context": min_context})
        assert recipe.view.offsets == (1, last)
        assert PairGeometry(length, last, min_context).paired_positions == 1
        assert PairGeometry(length, last + 1, min_context).paired_positions == 0


def test_accumulation_follows_from_size_micro_and_processes():
    recipe = Recipe(**MINIMAL | {"batch": {"size": 12, "micro": 2}})
    assert [recipe.batch.cut(n) for n in (1, 2, 3)] == [(2, 6), (2, 3), (2, 2)]
    assert Recipe(**MINIMAL | {"batch": {"size": 12}}).batch.cut(4) == (3, 1)
    with pytest.raises(UsageError, match="multiple of 5"):
        recipe.batch.cut(5)
    with pytest.raises(UsageError, match=r"3 .* 4 (.|\n)*1, 3"):
        recipe.batch.cut(4)


POSE = {"sampler": "pose", "target_length": 64}
CREAM, CLEX = ({"sampler": name, "target_length": 64} for name in ("cream", "clex_positions"))
GAP = {"views": "gap", "positions": POSE}
OPTIMIZER = MINIMAL["optimizer"]
# What is changed, and words of the message.
REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # In the wrong place.
    ({"objective": {"offsets": [1, 3]}}, ("fix: move 'offsets' out of 'objective'",)),
    ({"objective": {"min_context": 0}}, ("fix: move 'min_context' out of 'objective'",)),
    ({"positions": POSE | {"length": 64}}, ("did you mean 'target_length'?",)),
    # Pairs that there are not.
    *(({"offsets": offsets}, ("within 1 to 7",)) for offsets in ([0, 3], [4, 3], [1, 8])),
    ({"min_context": 15}, ("expected 0 to 14",)),
    # Numbers.
    ({"positions": POSE | {"target_length": 10**30}}, ("positions.target_length",)),
    ({"length": 10**12}, ("length",)),
    ({"steps": True}, ("steps",)),
    ({"steps": 0}, ("steps is 0",)),
    ({"seed": -1}, ("seed is -1",)),
    ({"save_every": 0}, ("save_every is 0",)),
    ({"batch": {"size": 8, "micro": 3}}, ("batch.micro = 3 does not divide the 8 samples of a step",)),
    ({"objective": {"alpha": -0.1}}, ("objective.alpha is -0.1", "expected: greater than or equal to 0")),
    *(
        ({"optimizer": OPTIMIZER | {name: value}}, (f"optimizer.{name} is ",))
        for name, value in {
            "learning_rate": 0,
            "betas": [0.9, 1],
            "weight_decay": -1,
            "max_grad_norm": 0,
        }.items()
    ),
    ({"steps": 10**30}, ("steps",)),
    ({"seed": 2**32}, ("seed",)),
    ({"save_at": [7, 3, 9]}, ("save_at names 7, 9",)),
    ({"batch": {"size": 10**30}}, ("batch.size",)),
    ({"optimizer": {"learning_rate": True}}, ("optimizer.learning_rate",)),
    ({"optimizer": OPTIMIZER | {"warmup_steps": 10**30}}, ("optimizer.warmup_steps",)),
    (
        {"optimizer": OPTIMIZER | {"schedule": "constant", "final_share": 0.1}},
        ("a constant schedule has none",),
    ),
    # Views and positions.
    ({"views": "gap"}, ("gap views without positions",)),
    (GAP | {"offsets": [1, 3]}, ("gap views with offsets (1, 3)",)),
    (GAP | {"views": "cyclic"}, ("cyclic views with a sampler",)),
    (GAP | {"view_options": {"share": 0.5}}, ("share",)),
    (GAP | {"min_context": 16}, ("min_context = 16: expected 0 to 15",)),
    ({"positions": POSE | {"target_length": 16}}, ("target_length = 16: expected more than length = 16",)),
    ({"positions": POSE | {"sampler": "poes"}}, ("did you mean 'pose'",)),
    ({"positions": POSE | {"options": {"gap": 3}}}, ("unknown key 'gap'",)),
    *(({"positions": CREAM | {"options": {"sigma": sigma}}}, ("sigma is ",)) for sigma in (0, float("inf"))),
    ({"positions": CREAM | {"options": {"sigm": 1.0}}}, ("did you mean 'sigma'",)),
    ({"positions": CLEX | {"options": {"original_length": 0}}}, ("original_length is 0",)),
    ({"positions": {"sampler": "cream", "target_length": 40}}, ("no multiple of the window",)),
    ({"positions": POSE | {"target": 3}}, ("unknown key 'positions.target'",)),
    # Adapters and extensions.
    ({"quantize": "nf4"}, ("quantize without adapter",)),
    ({"parallel": {}, "adapter": {"r": 2}, "quantize": "nf4"}, ("parallel with quantize",)),
    ({"adapter": {"config": "AdaLoraConfig", "total_step": 9}}, ("schedule of ranks",)),
    ({"adapter": {"init_lora_weights": "pissa_niter_4"}}, ("pissa_niter_4", "olora")),
    ({"adapter": {"init_lora_weights": "lora_ga"}}, ("init_lora_weights = lora_ga",)),
    ({"adapter": {"init_lora_weights": "olora"}, "quantize": "nf4"}, ("quantize with init_lora_weights",)),
    ({"adapter": {"config": "EvaConfig"}}, ("peft has no EvaConfig",)),
    ({"adapter": {"config": "LoraConfi"}}, ("peft has no LoraConfi", "did you mean 'LoraConfig'")),
    ({"adapter": {"rank": 3}}, ("LoraConfig", "'rank'")),
    ({"adapter": {"lora_dropout": float("nan")}}, ("lora_dropout = nan",)),
    ({"shifted_sparse": 1}, ("shifted_sparse = 1",)),
    ({"extend": {"method": "yarn", "factor": 2, "options": {"beta_fats": 3}}}, ("beta_fats", "beta_fast")),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED, ids=str)
def test_a_recipe_that_cannot_work_is_refused_at_once(changes: dict[str, Any], expected: tuple[str, ...]):
    started = time.monotonic()
    with pytest.raises(UsageError) as refused:
        checked(Recipe, MINIMAL | changes, source="recipe")
    assert time.monotonic() - started < 60, "nothing is counted up to a number of a recipe"
    for part in expected:
        assert part in str(refused.value)


def test_the_config_of_a_run_is_a_recipe(tmp_path: Path):
    changes = {"offsets": [1, 4], "objective": {"ce_on": "short"}}
    recipe = Recipe(**MINIMAL | {"adapter": {"target_modules": ["q_proj", "v_proj"]}} | changes)
    (tmp_path / "config.yaml").write_text(to_yaml({"kind": "train", **recipe.to_dict()}))
    assert read_recipe(tmp_path / "config.yaml") == recipe
    with pytest.raises(UsageError, match="unknown key 'kind'"):
        read_recipe(tmp_path / "config.yaml", ["kind=train"])


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_shipped_recipes_are_valid_and_take_overrides(name: str):
    recipe = read_recipe(name, ["objective.divergence=js", "objective.alpha=80", "steps=3", "data.bos=never"])
    assert (recipe.objective.divergence, recipe.objective.alpha, recipe.steps) == ("js", 80, 3)
    assert recipe.data.bos == "never"


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'tiny-books'"):
        read_recipe("tiny-boks")
    with pytest.raises(UsageError, match=r"cannot read .*missing\.yaml"):
        read_recipe("missing.yaml")
    with pytest.raises(UsageError, match="cannot be looked up"):
        read_recipe("x" * 300)


def shares(steps: int = 10, **settings) -> list[float]:
    return [Optimizer(learning_rate=1.0, **settings).share_of_peak(step, steps) for step in range(steps)]


def test_cosine_is_transformers_own():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_scheduler(
        "cosine_warmup_with_min_lr",
        optimizer,
        num_warmup_steps=3,
        num_training_steps=10,
        scheduler_specific_kwargs={"min_lr_rate": 0.1},
    )
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert shares(warmup_steps=3, schedule="cosine", final_share=0.1) == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_the_last_step_has_the_last_share_and_it_stays(schedule: str, warmup: int):
    settings = {"warmup_steps": warmup, "schedule": schedule, "final_share": 0.1}
    assert shares(**settings)[-1] == pytest.approx(0.1)
    assert Optimizer(learning_rate=1.0, **settings).share_of_peak(10, 10) == pytest.approx(0.1)
