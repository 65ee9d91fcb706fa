"""The trainer's steps are those of a loop written by hand, however a step is cut."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import IterableDataset
from torch import nn
from trainers import LENGTH, SomeIgnored, arguments, trainer_for, windows
from transformers import Trainer, TrainerCallback

from lengthwise import versions
from lengthwise.alignment import Normalizers, Objective, alignment_loss_from_logits
from lengthwise.checkpoints import Head
from lengthwise.errors import LengthwiseError
from lengthwise.testing import tiny_llama
from lengthwise.text import TokenDocument
from lengthwise.training import AlignmentTrainer, PairCollator, View
from lengthwise.training.sections import Adapter
from lengthwise.training.starting_model import add_adapter
from lengthwise.training.trainer import logged_parts
from tests.architectures import tiny_model

PARTS = logged_parts(Objective(alpha=1.0))

LOGGED = ("loss", *PARTS, "grad_norm", "paired_positions")


def steps_of(trainer: Trainer) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if "grad_norm" in entry]


def assert_same_weights(a: nn.Module, b: nn.Module, tolerance: float) -> None:
    for (name, left), (_, right) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert (left - right).abs().max().item() <= tolerance, name


def assert_same_training(trainer: Trainer, log: list[dict[str, float]], model: nn.Module) -> None:
    """In fp64: what is left is the order of sums."""
    for expected, got in zip(log, steps_of(trainer), strict=True):
        for name in LOGGED:
            assert got[name] == pytest.approx(expected[name], rel=1e-9), name
    assert_same_weights(trainer.model, model, 1e-9)


class ByHand:
    """The loop that a reader would write: full logits, plain formulas, AdamW, clipping."""

    def __init__(self, model: nn.Module, **objective: Any) -> None:
        self.model = model
        self.objective = Objective(**({"alpha": 0.7, "divergence": "jeffreys"} | objective))
        self.optimizer = torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0
        )
        self.log: list[dict[str, float]] = []

    def forward(self, batches: list[dict[str, Any]]) -> tuple[torch.Tensor, dict[str, float]]:
        geometries = [batch["geometry"] for batch in batches]
        labels = [batch["labels"].chunk(2) for batch in batches]
        normalizers = Normalizers(
            labels_long=sum(int((long != -100).sum()) for long, _ in labels),
            labels_short=sum(int((short != -100).sum()) for _, short in labels),
            paired_positions=sum(
                len(long) * geometry.paired_positions
                for (long, _), geometry in zip(labels, geometries, strict=True)
            ),
        )
        total = torch.zeros(())
        sums = dict.fromkeys(("loss", *PARTS), 0.0)
        for batch, (long, short), geometry in zip(batches, labels, geometries, strict=True):
            logits = self.model(input_ids=batch["input_ids"]).logits.chunk(2)
            output = alignment_loss_from_logits(
                *logits, long, short, geometry=geometry, normalizers=normalizers, objective=self.objective
            )
            total = total + output.loss
            for name in sums:
                sums[name] += getattr(output, name).item()
        return total, {**sums, "paired_positions": float(normalizers.paired_positions)}

    def step(self, batches: list[dict[str, Any]]) -> None:
        self.model.train()
        loss, sums = self.forward(batches)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.log.append({**sums, "grad_norm": norm.item()})


MODELS: dict[str, Callable[[], nn.Module]] = {
    "tied": tiny_llama,
    "untied": lambda: tiny_llama(tie_word_embeddings=False),
    # And an embedding scale.
    "soft-capped": lambda: tiny_model("gemma2-soft-cap"),
}


# Held in fp64, where a wrong divisor cannot hide behind rounding: what is left is the order of sums.
@pytest.mark.parametrize(
    ("name", "micro"), [*((name, 8) for name in MODELS), ("tied", 4), ("tied", 2), ("tied", 1)]
)
def test_training_equals_a_hand_written_loop_however_the_step_is_cut(name, micro, documents, tmp_path):
    model = MODELS[name]().double()
    by_hand = ByHand(copy.deepcopy(model))
    data = windows(documents)
    collator = SomeIgnored(View(LENGTH))
    cut = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": 8 // micro}
    trainer = trainer_for(model, tmp_path, data, data_collator=collator, arguments_=cut)
    assert isinstance(trainer.head, Head)
    trainer.train()
    for step in range(4):
        by_hand.step([collator([data[8 * step + i] for i in range(8)])])
    assert_same_training(trainer, by_hand.log, by_hand.model)


def test_offsets_may_differ_between_micro_batches(documents: list[TokenDocument], tmp_path: Path):
    data = windows(documents, batch_size=2, steps=16)
    model = tiny_llama().double()
    by_hand = ByHand(copy.deepcopy(model), alpha=0.2, divergence="sce")
    trainer = trainer_for(
        model,
        tmp_path,
        data,
        objective=Objective(alpha=0.2),
        arguments_={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    )
    trainer.train()
    collator = PairCollator(View(LENGTH))
    batches = [collator([data[2 * i], data[2 * i + 1]]) for i in range(16)]
    assert len({batch["geometry"].offset for batch in batches[:4]}) > 1
    for step in range(4):
        by_hand.step(batches[4 * step : 4 * step + 4])
    assert_same_training(trainer, by_hand.log, by_hand.model)


def test_alpha_0_is_a_plain_trainer_on_both_windows(documents: list[TokenDocument], tmp_path: Path):
    model = tiny_llama().double()
    pairs = PairCollator(View(LENGTH))

    def both_windows(items: Any) -> dict[str, Any]:
        ids = pairs(items)["input_ids"]
        return {"input_ids": ids, "labels": ids}

    # SGD, whose steps are as exact as the gradients are: transformers' own loss takes fp64 logits to fp32.
    sgd = {"optim": "sgd", "learning_rate": 0.05, "per_device_train_batch_size": 8}
    plain = Trainer(
        copy.deepcopy(model),
        arguments(tmp_path, **sgd),
        train_dataset=windows(documents),
        data_collator=both_windows,
    )
    plain.train()
    ours = trainer_for(model, tmp_path, windows(documents), objective=Objective(), arguments_=sgd)
    ours.train()
    for expected, got in zip(steps_of(plain), steps_of(ours), strict=True):
        assert got["loss"] == pytest.approx(expected["loss"], rel=1e-6)
        assert got["cross_entropy"] == got["loss"]
        assert got["misalignment"] > 0
    assert_same_weights(ours.model, plain.model, 1e-6)


def test_several_steps_in_one_log_are_averaged(documents: list[TokenDocument], tmp_path: Path):
    every = trainer_for(tiny_llama(), tmp_path, windows(documents))
    every.train()
    second = trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_={"logging_steps": 2})
    second.train()
    single, double = steps_of(every), steps_of(second)
    assert len(double) == 2
    for index, entry in enumerate(double):
        for name in ("loss", *PARTS):
            pair = [single[2 * index + i][name] for i in range(2)]
            assert entry[name] == pytest.approx(sum(pair) / 2, rel=1e-6)


@pytest.mark.parametrize("lora", [False, True])
def test_gradient_checkpointing_changes_nothing(lora: bool, documents: list[TokenDocument], tmp_path: Path):
    def run(checkpointing: bool) -> AlignmentTrainer:
        torch.manual_seed(0)
        model = add_adapter(tiny_llama(), Adapter(r=2) if lora else None)
        settings: dict[str, Any] = {versions.checkpointing(): checkpointing}
        if checkpointing:
            settings[f"{versions.checkpointing()}_kwargs"] = {"use_reentrant": False}
        trainer = trainer_for(model, tmp_path, windows(documents), arguments_=settings)
        trainer.train()
        return trainer

    plain, checkpointed = run(False), run(True)
    for expected, got in zip(steps_of(plain), steps_of(checkpointed), strict=True):
        assert {name: got[name] for name in LOGGED} == {name: expected[name] for name in LOGGED}
    assert_same_weights(plain.model, checkpointed.model, 0.0)


def test_evaluation_gives_the_objective_of_all_its_rows(documents: list[TokenDocument], tmp_path: Path):
    """Of batches with unequal labels and offsets, the plain formula on all rows at once."""
    data, collator = windows(documents, steps=2), SomeIgnored(View(LENGTH))
    batches = [collator([data[8 * step + i] for i in range(8)]) for step in range(2)]
    for of in (lambda batch: batch["geometry"].offset, lambda batch: int((batch["labels"] >= 0).sum())):
        assert of(batches[0]) != of(batches[1])
    model = tiny_llama().double()
    settings = {"per_device_eval_batch_size": 8}
    evaluated = trainer_for(
        model, tmp_path, data, eval_dataset=data, data_collator=collator, arguments_=settings
    )
    metrics = evaluated.evaluate(metric_key_prefix="test")
    with torch.no_grad():
        _, expected = ByHand(model.eval()).forward(batches)
    for name in ("loss", *PARTS):
        assert metrics[f"test_{name}"] == pytest.approx(expected[name], rel=1e-9), name


class Poison(TrainerCallback):
    """From the given step on, the decoder's output is NaN; or one gradient is infinite."""

    def __init__(self, model: nn.Module, step: int, *, gradient: bool = False) -> None:
        self.model, self.step, self.gradient = model, step, gradient

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 != self.step:
            return
        if self.gradient:
            next(self.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
        else:
            self.model.model.norm.register_forward_hook(lambda *arguments: arguments[2] * float("nan"))


@pytest.mark.parametrize("gradient", [False, True])
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_weights_change(gradient, documents, tmp_path):
    model = tiny_llama()
    # Stopped at its step, not where it is logged.
    saving = {"save_strategy": "steps", "save_steps": 1, "logging_steps": 100}
    trainer = trainer_for(model, tmp_path, windows(documents), arguments_=saving)
    trainer.add_callback(Poison(model, 3, gradient=gradient))
    with pytest.raises(LengthwiseError, match=r"(nan|inf).* 3") as caught:
        trainer.train()
    assert caught.value.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-2"]
    kept = tiny_llama(seed=1)
    trainer_for(kept, tmp_path, windows(documents))._load_from_checkpoint(str(tmp_path / "checkpoint-2"))
    assert_same_weights(kept, model, 0.0)


@pytest.mark.parametrize("micro_batches", [1, 3, 5])
def test_the_rest_of_a_stream_is_in_no_step(micro_batches: int, tmp_path: Path, caplog: Any):
    """At a rate of 0 each pass over the stream gives the same losses and gradients again."""
    rng = np.random.default_rng(3)
    rows = [{"input_ids": rng.integers(0, 320, size=LENGTH + 7).tolist()} for _ in range(4 * micro_batches)]
    how = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 0.0}
    trainer = trainer_for(
        tiny_llama().double(),
        tmp_path,
        IterableDataset.from_generator(lambda: iter(rows)),
        data_collator=PairCollator(View(LENGTH, offsets=(1, 7))),
        arguments_=how | {"optim": "sgd", "max_grad_norm": 1e9},
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "offset" in entry]
    assert len(steps) == trainer.state.global_step == (4 if micro_batches > 1 else 0)
    found = {(entry["loss"], entry["grad_norm"]) for entry in steps}
    assert len(found) == micro_batches // 2
    assert "left out: 1 of the 2 batches" in caplog.text


def test_a_second_training_logs_its_own_steps_alone(documents: list[TokenDocument], tmp_path: Path):
    """The last step of three was not logged when the first one ended."""
    how = {"max_steps": 3, "logging_steps": 2, "learning_rate": 0.0}
    trainer = trainer_for(tiny_llama().double(), tmp_path, windows(documents), arguments_=how)
    logged = []
    for _ in range(2):
        trainer.train()
        logged.append([entry["loss"] for entry in trainer.state.log_history if "offset" in entry])
    assert logged[0] == logged[1]
    assert len(logged[0]) == 1


@pytest.mark.parametrize("strategy", ["random", "sequential"])
def test_windows_are_read_in_their_order(strategy: str, documents: list[TokenDocument], tmp_path: Path):
    data = windows(documents)
    trainer = trainer_for(tiny_llama(), tmp_path, data, arguments_={"train_sampling_strategy": strategy})
    trainer.train()
    assert [entry["offset"] for entry in steps_of(trainer)] == [
        data.view.draw(data.seed, [step])[0].offset for step in range(4)
    ]
