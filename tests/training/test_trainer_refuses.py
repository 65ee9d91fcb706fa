"""What the trainer refuses before or at its first step, and what reaches the collator."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, IterableDataset
from trainers import trainer_for, windows
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    LlamaModel,
    MixtralConfig,
    MixtralForCausalLM,
    TrainingArguments,
)

from lengthwise import versions
from lengthwise.alignment import Objective
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama, tiny_tokenizer
from lengthwise.text import TokenDocument
from lengthwise.training import AlignmentTrainer, PairCollator, View, WindowDataset
from lengthwise.training.supported import check_supported


def test_pieces_of_batches_are_refused(documents: list[TokenDocument], tmp_path: Path):
    sent = {"accelerator_config": {"dispatch_batches": True}}
    with pytest.raises(UsageError, match="dispatch_batches"):
        trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_=sent)


def test_steps_at_which_a_process_may_have_no_batch_are_refused(
    documents: list[TokenDocument], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    uneven = {"accelerator_config": {"even_batches": False}}
    trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_=uneven)
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    with pytest.raises(UsageError, match="even_batches"):
        trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_=uneven)


def test_columns_that_leave_tokens_out_reach_the_collator(tmp_path: Path):
    rows = [{"input_ids": list(range(10, 34)), "completion_mask": [0] * 8 + [1] * 16} for _ in range(8)]
    trainer = trainer_for(
        tiny_llama(), tmp_path, rows, data_collator=PairCollator(View(16, offsets=(1, 8), min_context=7))
    )
    for batch in trainer.get_train_dataloader():
        # The first 16 tokens, 10 .. 25, of which the mask keeps 18 and later.
        for row in batch["labels"].chunk(2)[0]:
            assert row[row != -100].tolist() == list(range(18, 26))


def given_as(kind: str, size: int) -> Any:
    """Eight rows of one size."""
    rows = [{"input_ids": list(range(10, 10 + size))} for _ in range(8)]
    return IterableDataset.from_generator(lambda: iter(rows)) if kind == "stream" else rows


@pytest.mark.parametrize("kind", ["rows", "stream"])
@pytest.mark.parametrize("size", [24, 26, 32])
def test_rows_whose_windows_have_no_pair_are_refused(kind: str, size: int, tmp_path: Path):
    """Training would go on without the divergence, whatever alpha is."""
    with pytest.raises(UsageError, match=f"{size} tokens.*begin {size - 16} apart have no pair"):
        trainer_for(tiny_llama(), tmp_path, given_as(kind, size)).train()
    trainer_for(tiny_llama(), tmp_path, given_as(kind, 23)).train()


@pytest.mark.parametrize("offsets", [None, (0, 0), (0, 7)])
def test_an_offset_of_0_is_refused_by_the_trainer(
    offsets: Any, documents: list[TokenDocument], tmp_path: Path
):
    view = View(16, offsets=offsets)
    same = WindowDataset(documents, view, batch_size=8, steps=4)
    pairs = windows(documents)
    for data, evaluated in ((same, None), (pairs, same), (pairs, {"a": pairs, "b": same})):
        with pytest.raises(UsageError, match="offset of 0"):
            trainer_for(tiny_llama(), tmp_path, data, eval_dataset=evaluated)
    if offsets is not None:
        for kind in ("rows", "stream"):
            with pytest.raises(UsageError, match="offset of 0"):
                data = given_as(kind, view.longest_stretch)
                trainer_for(tiny_llama(), tmp_path, data, data_collator=PairCollator(view))


TORN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "evaluation of 3 at a time": ({"per_device_eval_batch_size": 3}, {}, "eval_batch_size is 3"),
    "evaluation of two steps at a time": ({"per_device_eval_batch_size": 16}, {}, "eval_batch_size is 16"),
    "training of 3 at a time": ({"per_device_train_batch_size": 3}, {}, "train_batch_size is 3"),
    "half a step": ({"per_device_train_batch_size": 4}, {}, "step has 4 samples"),
    "a step and a half": (
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3},
        {},
        "step has 12 samples",
    ),
    "fewer where memory ends": ({"auto_find_batch_size": True}, {}, "auto_find_batch_size"),
    "evaluation by length": (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in TrainingArguments.__dataclass_fields__
        else {"group_by_length": True},
        {},
        "group_by_length",
    ),
    "another view": ({}, {"data_collator": PairCollator(View(8, offsets=(1, 3)))}, "length of the view"),
}


@pytest.mark.parametrize("form", ["one", "several"])
@pytest.mark.parametrize("case", TORN)
def test_steps_of_windows_that_would_be_torn_are_refused_at_once(
    case: str, form: str, documents: list[TokenDocument], tmp_path: Path
):
    changes, more, says = TORN[case]
    held = windows(documents, steps=3)
    given = {"eval_dataset": held if form == "one" else {"a": held, "b": held}, **more}
    with pytest.raises(UsageError, match=says):
        trainer_for(tiny_llama(), tmp_path, windows(documents), arguments_=changes, **given)
    other = WindowDataset(documents, View(8, offsets=(1, 3)), batch_size=8, steps=1)
    with pytest.raises(UsageError, match="length of the view"):
        collator = PairCollator(View(16))
        trainer_for(tiny_llama(), tmp_path, windows(documents), eval_dataset=other, data_collator=collator)


def test_parts_of_a_step_of_windows_are_read(documents: list[TokenDocument], tmp_path: Path):
    cut = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 1}
    for held, size in ((windows(documents, steps=3), 4), (windows(documents, batch_size=3, steps=1), 8)):
        how = cut | {"per_device_eval_batch_size": size}
        trainer = trainer_for(tiny_llama(), tmp_path, windows(documents), eval_dataset=held, arguments_=how)
        trainer.train()
        assert trainer.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize("data", [list, Dataset.from_list, IterableDataset.from_generator])
@pytest.mark.parametrize("wrapped", [False, True])
def test_packed_rows_are_refused_by_the_trainer(data: Any, wrapped: bool, tmp_path: Path):
    # The model takes no seq_lengths, so a Trainer drops them before the collator sees them.
    rows = [{"input_ids": list(range(10, 34)), "seq_lengths": [12, 12]} for _ in range(8)]
    given = data((lambda: rows) if "generator" in data.__name__ else rows)
    collator = PairCollator(View(16, offsets=(1, 8), min_context=7))
    other = (lambda items: collator(items)) if wrapped else collator
    # A stream that is cut is looked at when the trainer is made.
    with pytest.raises(UsageError, match=r"seq_lengths.*12, 12"):
        trainer_for(tiny_llama(), tmp_path, given, data_collator=other).train()


STRETCHES = PairCollator(View(16, offsets=(1, 8), min_context=7))


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
        ({}, {"preprocess_logits_for_metrics": lambda logits, labels: logits}),
        ({"label_names": ["targets"]}, {}),
        ({"label_names": []}, {}),
        ({}, {"model_init": lambda: tiny_llama()}),
    ):
        with pytest.raises(UsageError, match=next(iter({**arguments_, **more}))):
            model = None if "model_init" in more else tiny_llama()
            trainer_for(model, tmp_path, None, arguments_=arguments_, **more)


def test_a_model_of_which_nothing_is_trained_is_refused(tmp_path: Path):
    rows = [{"input_ids": list(range(10, 33))}] * 8
    frozen = trainer_for(tiny_llama().requires_grad_(False), tmp_path, rows)
    with pytest.raises(UsageError, match="requires_grad"):
        frozen.train()


@pytest.mark.parametrize("nested", [False, True])
def test_a_router_loss_is_refused_wherever_the_model_has_it(
    nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mixture = tiny_llama()
    if nested:
        # As in a model of text and images.
        text = LlamaConfig(output_router_logits=True)
        monkeypatch.setattr(LlamaConfig, "get_text_config", lambda self, **_: text)
    else:
        mixture.config.output_router_logits = True
    with pytest.raises(UsageError, match="output_router_logits"):
        trainer_for(mixture, tmp_path, None)


def mixture_of_experts() -> MixtralForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = MixtralConfig(vocab_size=320, num_key_value_heads=2, num_local_experts=4, **sizes)
    return MixtralForCausalLM(config)


@pytest.mark.parametrize(
    ("coefficient", "refused"), [(None, "router_aux_loss_coef"), (0.1, "router_aux_loss_coef"), (0.0, None)]
)
def test_trl_adds_a_router_loss_by_itself(coefficient: float | None, refused: str | None, tmp_path: Path):
    """Its configuration then says so; with a coefficient of 0 the loss is the objective's."""
    trl = pytest.importorskip("trl")

    class AlignmentSFTTrainer(AlignmentTrainer, trl.SFTTrainer): ...

    rows = [{"input_ids": list(range(10, 34))} for _ in range(8)]
    how = {"max_steps": 1, "logging_steps": 1, "use_cpu": True, "save_strategy": "no", "report_to": "none"}
    how |= {"bf16": False, "max_length": None, versions.checkpointing(): False}
    arguments = trl.SFTConfig(str(tmp_path), router_aux_loss_coef=coefficient, **how)
    made = {
        "objective": Objective(alpha=0.3),
        "data_collator": PairCollator(View(16, offsets=(1, 8), min_context=7)),
    }
    made |= {"train_dataset": Dataset.from_list(rows), "processing_class": tiny_tokenizer()}
    if refused:
        with pytest.raises(UsageError, match=refused):
            AlignmentSFTTrainer(mixture_of_experts(), arguments, **made)
        return
    trainer = AlignmentSFTTrainer(mixture_of_experts(), arguments, **made)
    trainer.train()
    [first] = [entry for entry in trainer.state.log_history if "divergence" in entry]
    assert first["loss"] == pytest.approx(first["cross_entropy"] + 0.3 * first["divergence"], rel=1e-6)


@pytest.mark.parametrize("kind", [LlamaModel, LlamaForSequenceClassification, LlamaForTokenClassification])
def test_a_model_of_no_next_token_is_refused(kind: Any, tmp_path: Path):
    config = tiny_llama().config
    config.pad_token_id = 0
    with pytest.raises(UsageError, match=r"causal language model|outside the head's vocabulary"):
        trainer_for(kind(config), tmp_path, [{"input_ids": list(range(10, 33))}] * 8).train()


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
            check_supported(trainer)
        patch.setattr(state, "fsdp_plugin", SimpleNamespace(fsdp_version=2), raising=False)
        check_supported(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "is_deepspeed_enabled", True)
        with pytest.raises(UsageError, match="DeepSpeed"):
            check_supported(trainer)
    for size in ("get_tp_size", "get_cp_size", "get_sp_size"):
        with monkeypatch.context() as patch:
            patch.setattr(trainer, size, lambda: 2)
            with pytest.raises(UsageError, match="parallel"):
                check_supported(trainer)
