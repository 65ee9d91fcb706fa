"""The README's block of Python runs as it stands."""

import re
from pathlib import Path

import torch
from transformers import TrainingArguments

import lengthwise
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer

_README = Path(__file__).parent.parent / "README.md"
(_TRAINER,) = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)


def test_the_trainer_trains(tmp_path):
    tokenizer = tiny_tokenizer()
    (tmp_path / "text.txt").write_text(tiny_text(2000))
    model = tiny_llama(vocab_size=len(tokenizer))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    names = {
        "model": model,
        "L": 16,
        "documents": lengthwise.tokenize(
            lengthwise.load_corpus(str(tmp_path / "text.txt"), split="all"), tokenizer, cache=False
        ),
        "args": TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            learning_rate=1e-2,
            save_strategy="no",
            use_cpu=True,
            dataloader_pin_memory=False,
        ),
    }
    exec(_TRAINER, names)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_every_public_name_is_there():
    for name in lengthwise.__all__:
        assert callable(getattr(lengthwise, name)), name
