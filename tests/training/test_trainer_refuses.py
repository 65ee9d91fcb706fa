"""What the trainer refuses before or at its first step, and what reaches the collator."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, IterableDataset
from trainers import trainer_for, windows
from transformers import TrainingArguments

from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from lengthwise.text import TokenDocument
from lengthwise.training import PairCollator, View


def test_pieces_of_batches_are_refused(documents: list[TokenDocument], tmp_path: Path):
    sent = {"accelerator_config": {"dispatch_batches": True}}
    with pytest.raises(UsageError, match="dispatch_batches"):
        trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_=sent)


def test_columns_that_leave_tokens_out_reach_the_collator(tmp_path: Path):
    rows = [{"input_ids": list(range(10, 34)), "completion_mask": [0] * 8 + [1] * 16} for _ in range(8)]
    trainer = trainer_for(tiny_llama(), tmp_path, rows, data_collator=PairCollator(View(16, offsets=(1, 8))))
    for batch in trainer.get_train_dataloader():
        # The first 16 tokens, 10 .. 25, of which the mask keeps 18 and later.
        for row in batch["labels"].chunk(2)[0]:
            assert row[row != -100].tolist() == list(range(18, 26))


@pytest.mark.parametrize("data", [list, Dataset.from_list, IterableDataset.from_generator])
@pytest.mark.parametrize("wrapped", [False, True])
def test_packed_rows_are_refused_by_the_trainer(data: Any, wrapped: bool, tmp_path: Path):
    # The model takes no seq_lengths, so a Trainer drops them before the collator sees them.
    rows = [{"input_ids": list(range(10, 34)), "seq_lengths": [12, 12]} for _ in range(8)]
    given = data((lambda: rows) if "generator" in data.__name__ else rows)
    collator = PairCollator(View(16, offsets=(1, 8)))
    other = (lambda items: collator(items)) if wrapped else collator
    # A stream that is cut is looked at when the trainer is made.
    with pytest.raises(UsageError, match=r"seq_lengths.*12, 12"):
        trainer_for(tiny_llama(), tmp_path, given, data_collator=other).train()


STRETCHES = PairCollator(View(16, offsets=(1, 8)))


@pytest.mark.parametrize(
    ("collator", "says"),
    [
        (lambda items: {**STRETCHES(items), "token_type_ids": 0}, "holds token_type_ids"),
        (lambda items: {"input_ids": torch.zeros(2, 4, dtype=torch.long)}, "input_ids"),
    ],
)
def test_batches_that_the_objective_does_not_read_are_refused(collator: Any, says: str, tmp_path: Path):
    rows = [{"input_ids": list(range(10, 34))} for _ in range(8)]
    trainer = trainer_for(tiny_llama(), tmp_path, rows, data_collator=collator)
    with pytest.raises(UsageError, match=says):
        trainer.train()


def test_what_would_change_another_loss_is_refused(tmp_path: Path):
    for arguments_, more in (
        ({"label_smoothing_factor": 0.1}, {}),
        ({"max_steps": 0}, {}),
        ({}, {"compute_loss_func": lambda *_, **__: 0}),
        ({}, {"compute_metrics": lambda _: {}}),
        ({}, {"model_init": lambda: tiny_llama()}),
    ):
        with pytest.raises(UsageError, match=next(iter({**arguments_, **more}))):
            model = None if "model_init" in more else tiny_llama()
            trainer_for(model, tmp_path, None, arguments_=arguments_, **more)
    mixture = tiny_llama()
    mixture.config.output_router_logits = True
    with pytest.raises(UsageError, match="output_router_logits"):
        trainer_for(mixture, tmp_path, None)


def test_several_gpus_in_one_process_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: 2))
    with pytest.raises(UsageError, match="2 GPUs"):
        trainer_for(tiny_llama(), tmp_path, None)


def test_ways_to_shard_that_lose_the_head_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trainer = trainer_for(tiny_llama(), tmp_path, None)
    state = type(trainer.accelerator.state)
    with monkeypatch.context() as patch:
        patch.setattr(state, "fsdp_plugin", SimpleNamespace(fsdp_version=1), raising=False)
        with pytest.raises(UsageError, match="FSDP1"):
            trainer._refuse_what_is_not_supported()
        patch.setattr(state, "fsdp_plugin", SimpleNamespace(fsdp_version=2), raising=False)
        trainer._refuse_what_is_not_supported()
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "is_deepspeed_enabled", True)
        with pytest.raises(UsageError, match="DeepSpeed"):
            trainer._refuse_what_is_not_supported()
    for size in ("get_tp_size", "get_cp_size", "get_sp_size"):
        with monkeypatch.context() as patch:
            patch.setattr(trainer, size, lambda: 2)
            with pytest.raises(UsageError, match="parallel"):
                trainer._refuse_what_is_not_supported()
