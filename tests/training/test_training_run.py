import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainers import metrics

from checks.zoo.architectures import animals, build
from lengthwise.alignment import Objective
from lengthwise.errors import Interrupted, LengthwiseError, MissingError, UsageError
from lengthwise.results import read_results
from lengthwise.subjects import load
from lengthwise.testing import tiny_tokenizer
from lengthwise.training import AlignmentTrainer, read_recipe, train
from lengthwise.training.build import _RecipeTrainer
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import add_adapter, load_for_training, training_documents
from lengthwise.training.trainer import logged_parts
from lengthwise.training.training_run import checkpoint_step

PARTS = logged_parts(Objective(alpha=1.0))

Make = Callable[..., Recipe]
METRICS = ("loss", *PARTS, "alpha", "learning_rate", "grad_norm", "offset", "paired_positions")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_equal_weights(a: Path, b: Path) -> None:
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


@pytest.fixture(scope="module")
def whole(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(make(), out)
    return out


def test_what_a_run_leaves_behind(make: Make, whole: Path):
    recipe, out = make(), whole
    results = train(recipe, out, resume=True)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["checkpoint-4", "checkpoint-6"]

    lines = metrics(out)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert set(line) == {"step", *METRICS}
        assert line["alpha"] == 1.0
        assert 1 <= line["offset"] <= 7
        assert line["paired_positions"] == 4 * (16 - line["offset"] - 8)
    assert [line["learning_rate"] for line in lines[:2]] == [0.005, 0.01]
    assert lines[-1]["learning_rate"] == pytest.approx(0.001)

    assert read_results(out / "results.json").rows == results.rows
    assert not results.partial
    for when, line in (("first", lines[0]), ("last", lines[-1])):
        for name in ("loss", *PARTS):
            (row,) = results.select(metric=f"{name}_{when}")
            assert (row.task, row.unit, row.length, row.n) == ("training", "nats", 16, 1)
            assert row.value == line[name]
    facts = results.provenance
    assert facts["tokens"] == 6 * 4 * 2 * 16
    assert facts["parameters"] == facts["trainable_parameters"] == 28832
    assert facts["documents"] == 4
    assert facts["full_logits"] is None

    assert_equal_weights(out / "model", out / "checkpoints" / "checkpoint-6")
    again = load(str(out / "model"))
    assert again.model.config.use_cache
    assert again.tokenizer("a king").input_ids == tiny_tokenizer()("a king").input_ids
    assert read_recipe(out / "config.yaml") == recipe


def test_named_checkpoints_stay_and_the_first_and_last_tenth_are_averaged(make: Make, tmp_path: Path):
    recipe = make(steps=20, save_every=10, save_at=[1, 3])
    results, lines = train(recipe, tmp_path), metrics(tmp_path)
    assert {checkpoint_step(path) for path in (tmp_path / "checkpoints").iterdir()} == {1, 3, 10, 20}
    assert load(str(tmp_path / "checkpoints" / "checkpoint-3")).tokenizer is not None
    assert read_recipe(tmp_path / "config.yaml") == recipe
    for when, part in (("first", lines[:2]), ("last", lines[-2:])):
        (row,) = results.select(metric=f"jeffreys_{when}")
        assert row.n == 2
        assert row.value == pytest.approx(sum(line["jeffreys"] for line in part) / 2)


def test_a_finished_run_is_read_not_repeated(make: Make, whole: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lengthwise.training.training_run.load_for_training", None)
    assert train(make(), whole, resume=True).rows == read_results(whole / "results.json").rows
    with pytest.raises(UsageError, match=str(whole)):
        train(make(), whole)


def test_stopped_between_the_last_checkpoint_and_the_model(make: Make, whole: Path, tmp_path: Path, capsys):
    stopped = tmp_path / "stopped"

    def stop(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lengthwise.training.training_run.save_whole", stop)
        with pytest.raises(Interrupted, match="after step 6 of 6"):
            train(make(), stopped)
    results = train(make(), stopped, resume=True)
    assert capsys.readouterr().out == ""
    assert not results.partial
    assert metrics(stopped) == metrics(whole)
    assert_equal_weights(stopped / "model", whole / "model")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:664] PytorchStreamWriter failed writing file"),
    ],
)
def test_a_full_disk_is_said_plainly_and_the_last_checkpoint_stays(make, tmp_path, monkeypatch, error):
    original = torch.save

    def save(value: Any, path: Any, *arguments: Any, **named: Any) -> None:
        if "checkpoint-4" in str(path):
            raise error
        original(value, path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save)
        with pytest.raises(LengthwiseError, match=str(tmp_path)):
            train(make(), tmp_path)
    assert train(make(), tmp_path, resume=True).provenance["resumed_at_step"] == 2


def test_mixed_precision_lora_freezes_a_bfloat16_base(make: Make, tmp_path: Path):
    recipe = make(precision="bfloat16", adapter={"r": 2})
    model = add_adapter(load_for_training(recipe).model, recipe.adapter)
    dtypes = {(parameter.requires_grad, parameter.dtype) for parameter in model.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}
    train(recipe, tmp_path / "mixed")
    train(make(adapter={"r": 2}), tmp_path / "full")
    for full, mixed in zip(metrics(tmp_path / "full"), metrics(tmp_path / "mixed"), strict=True):
        assert mixed["loss"] == pytest.approx(full["loss"], rel=0.05)


def test_the_seed_decides_windows_offsets_and_adapters(make: Make, tmp_path: Path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(make(seed=seed, adapter={"r": 2, "lora_dropout": 0.2}, steps=3), tmp_path / name)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert metrics(tmp_path / "a") != metrics(tmp_path / "c")


def test_packing_lets_windows_cross_documents(make: Make, shared: Path, tmp_path: Path):
    longest = 1800
    data = {"corpus": str(shared / "text"), "split": "all"}
    with pytest.raises(UsageError, match=r"\d+"):
        train(make(length=longest, data=data, steps=1), tmp_path / "a")
    recipe = make(data=data | {"packing": True}, steps=2)
    loaded = load_for_training(recipe)
    (packed,), facts = training_documents(recipe, loaded.tokenizer)
    assert (packed.ids == loaded.tokenizer.eos_token_id).sum() == 4
    assert len(packed.ids) == facts["corpus_tokens"] + 4
    train(recipe, tmp_path / "b")


def test_a_tracker_that_is_not_installed_is_named_with_what_brings_it(make, tmp_path, monkeypatch):
    monkeypatch.setattr("lengthwise.training.build.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match="wandb"):
        train(make(report_to=["wandb"]), tmp_path)


def test_shards_without_an_accelerator_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch):
    # accelerate makes no plugin on CPUs, so there is nothing that would shard.
    def without_plugin(trainer: Any, *args: Any, **kwargs: Any) -> None:
        trainer.accelerator = SimpleNamespace(state=SimpleNamespace())

    monkeypatch.setattr(AlignmentTrainer, "__init__", without_plugin)
    _RecipeTrainer(recipe=make())
    with pytest.raises(UsageError, match="parallel"):
        _RecipeTrainer(recipe=make(parallel={}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "changes"),
    [("dbrx", {"precision": "bfloat16"}), ("gemma3n_text", {"quantize": "nf4", "adapter": {"r": 2}})],
)
def test_a_model_whose_code_cannot_be_trained_so_is_refused(make: Make, tmp_path: Path, name, changes):
    """It reads texts; DBRX adds two dtypes under autocast, Gemma 3n clips weights in training alone."""
    build(next(each for each in animals() if each.name == name), tmp_path / "m")
    train(make(model=str(tmp_path / "m"), steps=1), tmp_path / "so")
    kind = f"a {load(str(tmp_path / 'm')).model.__class__.__name__} cannot read .* in a step of training in"
    with pytest.raises(UsageError, match=kind):
        train(make(model=str(tmp_path / "m"), steps=1, **changes), tmp_path / "run")
