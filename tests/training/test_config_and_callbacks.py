"""What users of TRL and PEFT expect: a config that is saved and parsed, a callback that measures, the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trainers import SETTINGS
from transformers import HfArgumentParser, TrainingArguments

from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.measure import Misalignment
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import TokenDocument
from lengthwise.training import (
    AlignmentArguments,
    AlignmentConfig,
    AlignmentTrainer,
    MeasureCallback,
    PairCollator,
    View,
    WindowDataset,
)

TERMS = {"alpha": 0.3, "divergence": "jeffreys", "detach": "short", "ce_on": "long"}


def trainer(documents: Sequence[TokenDocument], args: TrainingArguments, **others: Any) -> AlignmentTrainer:
    return AlignmentTrainer(
        tiny_llama(num_hidden_layers=1).double(),
        args,
        train_dataset=WindowDataset(documents, View(16, offsets=(1, 7)), batch_size=4, steps=4),
        data_collator=PairCollator(View(16)),
        processing_class=tiny_tokenizer(),
        **others,
    )


def losses(trained: AlignmentTrainer) -> list[float]:
    return [entry["loss"] for entry in trained.state.log_history if "grad_norm" in entry]


def test_a_config_is_parsed_saved_and_trained_with(documents: Sequence[TokenDocument], tmp_path: Path):
    words = [f"--{name}={value}" for name, value in TERMS.items()]
    (parsed,) = HfArgumentParser(AlignmentConfig).parse_args_into_dataclasses(  # type: ignore[arg-type]
        ["--output_dir", str(tmp_path), "--use_cpu", *words]
    )
    assert parsed.objective() == Objective(**TERMS)
    (alone,) = HfArgumentParser(AlignmentArguments).parse_args_into_dataclasses(words)  # type: ignore[arg-type]
    assert alone.objective() == parsed.objective()
    assert {name: parsed.to_dict()[name] for name in TERMS} == TERMS

    config = AlignmentConfig(str(tmp_path / "a"), **SETTINGS, **TERMS, save_steps=4)
    ours = trainer(documents, config)
    ours.train()
    saved = torch.load(tmp_path / "a" / "checkpoint-4" / "training_args.bin", weights_only=False)
    assert saved.objective() == ours.objective == Objective(**TERMS)

    plain = TrainingArguments(str(tmp_path / "b"), **SETTINGS, save_strategy="no")
    given = trainer(documents, plain, objective=Objective(**TERMS))
    given.train()
    assert losses(given) == losses(ours)


def test_the_objective_is_given_once_and_checked(documents: Sequence[TokenDocument], tmp_path: Path):
    config = AlignmentConfig(str(tmp_path), **SETTINGS)
    with pytest.raises(UsageError, match="AlignmentConfig"):
        trainer(documents, config, objective=Objective(alpha=0.3))
    with pytest.raises(UsageError, match="objective"):
        trainer(documents, TrainingArguments(str(tmp_path), **SETTINGS))
    with pytest.raises(UsageError, match="-1"):
        AlignmentConfig(str(tmp_path), alpha=-1, **SETTINGS)


def test_a_callback_measures_and_leaves_training_alone(documents: Sequence[TokenDocument], tmp_path: Path):
    text = [tiny_text(300, seed=seed) for seed in range(2)]

    def run(every: int | None) -> AlignmentTrainer:
        config = AlignmentConfig(str(tmp_path), **SETTINGS, save_strategy="no", alpha=0.3)
        ours = trainer(documents, config)
        if every is not None:
            spec = Misalignment(lengths=(32,), windows=2)
            ours.add_callback(MeasureCallback(ours, spec, text, every=every))
        ours.train()
        return ours

    plain, measured = run(None), run(2)
    assert losses(measured) == losses(plain)
    assert measured.model.training
    rows = [entry for entry in measured.state.log_history if "misalignment/jeffreys@32" in entry]
    assert [entry["step"] for entry in rows] == [2, 4]
    first, last = (entry["misalignment/jeffreys@32"] for entry in rows)
    assert 0 < first != last > 0
    assert rows[0]["misalignment/sce@32"] == pytest.approx(
        rows[0]["misalignment/entropy@32"] + rows[0]["misalignment/jeffreys@32"]
    )
    with pytest.raises(UsageError, match="0"):
        MeasureCallback(measured, Misalignment(), text, every=0)


def test_a_callback_measures_at_each_evaluation(documents: Sequence[TokenDocument], tmp_path: Path):
    config = AlignmentConfig(
        str(tmp_path), **SETTINGS, save_strategy="no", alpha=0.3, eval_strategy="steps", eval_steps=2
    )
    ours = trainer(
        documents,
        config,
        eval_dataset=WindowDataset(documents, View(16, offsets=(3, 3)), batch_size=4, steps=1),
    )
    spec = Misalignment(lengths=(32,), windows=2)
    ours.add_callback(MeasureCallback(ours, spec, [tiny_text(300)]))
    ours.train()
    steps = [entry["step"] for entry in ours.state.log_history if "misalignment/sce@32" in entry]
    assert steps == [entry["step"] for entry in ours.state.log_history if "eval_loss" in entry] == [2, 4]
