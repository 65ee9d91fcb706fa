"""The examples run as they are, and train on exactly what they say."""

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Trainer, set_seed

from lengthwise.alignment import Objective, alignment_loss_from_logits
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.training import PairCollator, View

FOLDER = Path(__file__).parents[2] / "examples"
ALIGN = Objective(alpha=10.0, divergence="jeffreys")

# PEFT asks transformers for a property under its old name; TRL sets an argument under its old name.
pytestmark = [
    pytest.mark.usefixtures("offline"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning"),
]


def example(name: str) -> Any:
    if name == "trl_sft":
        pytest.importorskip("trl")
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "grad_norm" in entry]


@pytest.mark.parametrize("name", ["plain_loop", "transformers_trainer", "trl_sft"])
def test_it_runs_as_it_is_with_at_most_five_lines_of_ours(name: str):
    result = example(name).main()
    found = result if isinstance(result, list) else losses(result)
    assert len(found) >= 8
    assert all(0 < loss < 100 for loss in found)
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert 1 <= sum(line.endswith("# lengthwise") for line in lines) <= 5


def stretches(module: ModuleType) -> list[dict[str, Any]]:
    ids = tiny_tokenizer()(tiny_text(1500))["input_ids"]
    return [{"input_ids": ids[i * module.STRETCH :][: module.STRETCH]} for i in range(16)]


def both_windows(collate: PairCollator) -> Callable[[Any], dict[str, Tensor]]:
    """The two windows as an ordinary batch of twice the size."""

    def batch(items: Any) -> dict[str, Tensor]:
        ids = collate(items)["input_ids"]
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}

    return batch


def by_hand(module: ModuleType, model: nn.Module, items: list[dict[str, Any]]) -> list[float]:
    """Full logits, the plain formula, SGD with clipping."""
    collate = PairCollator(View(module.LENGTH, offsets=module.OFFSETS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for start in range(0, len(items), 4):
        batch = collate(items[start : start + 4])
        loss = alignment_loss_from_logits(
            *model(input_ids=batch["input_ids"]).logits.chunk(2),
            *batch["labels"].chunk(2),
            geometry=batch["geometry"],
            objective=ALIGN,
        ).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def assert_same_weights(a: nn.Module, b: nn.Module, tolerance: float) -> None:
    for (name, left), (_, right) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert (left - right).abs().max().item() <= tolerance, name


def test_plain_loop_and_trainer_follow_the_plain_formula(tmp_path: Path):
    plain, trainer = example("plain_loop"), example("transformers_trainer")
    model = tiny_llama().double()
    items = stretches(plain)
    models = [copy.deepcopy(model) for _ in range(3)]
    expected = by_hand(plain, models[0], items)
    assert len(set(expected)) == 4
    assert plain.train(models[1], items, ALIGN) == pytest.approx(expected, rel=1e-9)
    trained = trainer.train(models[2], items, str(tmp_path), ALIGN)
    assert losses(trained) == pytest.approx(expected, rel=1e-9)
    assert_same_weights(models[1], models[0], 1e-9)
    assert_same_weights(models[2], models[0], 1e-9)


def adapters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def test_trl_trains_on_the_same_numbers(tmp_path: Path):
    """With alpha 0 as SFTTrainer on both windows; with alpha as AlignmentTrainer on the same packed texts."""
    module, own = example("trl_sft"), example("transformers_trainer")
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM

    save_tiny_model(tmp_path / "model")
    texts = Dataset.from_dict({"text": [tiny_text(200, seed=seed) for seed in range(3)]})

    def model() -> Any:
        return AutoModelForCausalLM.from_pretrained(str(tmp_path / "model")).double()

    def run(alpha: float) -> Any:
        set_seed(0)
        base = model()
        base.config._name_or_path = str(tmp_path / "model")
        objective = Objective(alpha=alpha, divergence="jeffreys")
        return module.train(base, tiny_tokenizer(), texts, str(tmp_path), objective)

    plain = run(0.0)

    def plain_sft() -> Any:
        set_seed(0)
        return module.SFTTrainer(
            model(),
            plain.args,
            data_collator=both_windows(plain.data_collator),
            train_dataset=plain.train_dataset,
            processing_class=plain.processing_class,
            peft_config=LoraConfig(r=4, target_modules="all-linear"),
        )

    sft = plain_sft()
    sft.train()
    assert len(losses(plain)) >= 3
    assert losses(plain) == pytest.approx(losses(sft), rel=1e-6)
    expected = adapters(sft.model)
    assert expected
    for name, value in adapters(plain.model).items():
        assert (value - expected[name]).abs().max() <= 1e-6, name

    aligned = run(10.0)
    ours = own.train(plain_sft().model, list(aligned.train_dataset), str(tmp_path), ALIGN)
    assert losses(aligned) == pytest.approx(losses(ours), rel=1e-9)
    assert losses(aligned)[0] > losses(plain)[0]
    for name, value in adapters(ours.model).items():
        assert (value - adapters(aligned.model)[name]).abs().max() <= 1e-9, name


def test_trl_keeps_masked_tokens_out_of_the_labels(tmp_path: Path):
    """Prompts of a prompt-completion data set."""
    module = example("trl_sft")
    from datasets import Dataset

    texts = {
        "prompt": [tiny_text(40, seed=seed) for seed in range(12)],
        "completion": [" " + tiny_text(40, seed=seed + 50) for seed in range(12)],
    }
    model = str(save_tiny_model(tmp_path / "model"))
    trainer = module.train(model, tiny_tokenizer(), Dataset.from_dict(texts), str(tmp_path), ALIGN)
    batch = next(iter(trainer.get_train_dataloader()))
    masked = batch["labels"][:, :-1] == -100
    assert 0.2 < masked.float().mean() < 0.8
    shown = torch.where(masked, -100, batch["input_ids"][:, 1:])
    assert torch.equal(shown, batch["labels"][:, :-1])
    assert losses(trainer)[0] > 0
