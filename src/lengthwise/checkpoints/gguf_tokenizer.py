"""The tokenizer that transformers makes of a GGUF file, held against what the file says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers.normalizers import Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

_AS_GPT2 = {"gpt-2", "gpt2", "mpt", "olmo", "jais"}
"""Rules of splitting text (`tokenizer.ggml.pre`) that are GPT-2's."""
_DIGITS_ALONE = {"smollm", "starcoder", "refact", "command-r"}
"""Rules that first split off each digit, and then split the rest of the text by GPT-2's rule."""
_SPACE = "\u2581"


def mend(tokenizer: Any, says: Mapping[str, Any]) -> None:
    """Split text as the file says where transformers' reader does not; `says` is without `tokenizer.ggml.`.

    It leaves digits to GPT-2's rule, which takes blanks before a number apart, and puts no space before a text that
    begins with one, as SentencePiece does.
    """
    backend, kind = tokenizer.backend_tokenizer, says.get("model")
    if kind == "gpt2" and says.get("pre") in _DIGITS_ALONE:
        split = ByteLevel(add_prefix_space=False, use_regex=True)
        backend.pre_tokenizer = PreTokenizers([Digits(individual_digits=True), split])
    if kind == "llama" and "prepend_scheme=first" in repr(backend.pre_tokenizer):
        backend.normalizer = Normalizers([Prepend(prepend=_SPACE), Replace(pattern=" ", content=_SPACE)])
        backend.pre_tokenizer = None


def unlike_its_keys(tokenizer: Any, says: Mapping[str, Any]) -> list[str]:
    """In words, what a tokenizer does otherwise than the file says; `says` as of `mend`."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping

    # Older readers choose by the architecture, and have no table.
    splits = getattr(gguf_tokenizer_mapping, "GGUF_PRE_TOKENIZER_SPLITS", None)
    rule, kind, problems = says.get("pre", "default"), says.get("model"), list[str]()
    if kind == "gpt2" and rule == "default":
        problems.append("it does not say by which rule its tokenizer splits text (tokenizer.ggml.pre)")
    elif kind == "gpt2" and splits is not None and rule not in {*_AS_GPT2, *_DIGITS_ALONE, *splits}:
        problems.append(f"transformers does not split text by the rule {rule}, as its tokenizer does")
    ids = tokenizer("a").input_ids
    does = {
        "add_bos_token": tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id],
        "add_space_prefix": tokenizer.convert_ids_to_tokens(ids)[-1].startswith(_SPACE),
    }
    for name, done in does.items():
        asked = says.get(name, done)
        # Of SentencePiece alone is it asked whether a text begins with a space.
        if asked != done and (name == "add_bos_token" or kind == "llama"):
            problems.append(f"it has {name} = {asked}, and transformers' tokenizer does not do so")
    return problems
