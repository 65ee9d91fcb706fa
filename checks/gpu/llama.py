"""A Llama with random weights, its tokenizer and a made-up text, in a folder that the parts after it share."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from part import Result, options

# About Llama-3.2-1B; small: a few thousand parameters.
ONE_BILLION: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}
SMALL: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def folders(work: Path) -> tuple[Path, Path]:
    """Of the model and of the text."""
    return work / "llama", work / "text"


def main() -> None:
    asked = options()
    result = Result(asked.result)
    result.keep(ok=None, headline="did not end")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from lengthwise.testing import tiny_text, tiny_tokenizer

    model_folder, text_folder = folders(asked.work)
    started = time.monotonic()
    torch.manual_seed(0)
    config = LlamaConfig(
        **(SMALL if asked.small else ONE_BILLION), tie_word_embeddings=True, bos_token_id=None, eos_token_id=0
    )
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(asked.device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(kept)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    model.save_pretrained(model_folder)
    tiny_tokenizer().save_pretrained(model_folder)
    text_folder.mkdir(exist_ok=True)
    words = 2000 if asked.small else 45000
    for index in range(4):
        (text_folder / f"{index}.txt").write_text(tiny_text(words, seed=index))
    tokens = len(tiny_tokenizer()(tiny_text(words))["input_ids"])
    seconds = time.monotonic() - started
    result.keep(
        ok=True,
        parameters=parameters,
        tokens_of_a_document=tokens,
        seconds=seconds,
        headline=f"{parameters / 1e9:.2f}B parameters, {tokens} tokens a document, made in {seconds:.0f} s",
    )


if __name__ == "__main__":
    main()
