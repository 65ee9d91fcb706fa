"""One model of each kind, tiny and random: what every verb says of it is what its plain forward pass says.

`make check-zoo` asks the same of every architecture that transformers has (`checks/zoo`).
"""

import inspect
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MambaForCausalLM

from checks.zoo.architectures import PUBLISHED, Animal, animals, build, made
from checks.zoo.judge import cell_of
from checks.zoo.verbs import Case
from lengthwise import check_rope
from tests.architectures import random_ids

ANIMALS = {
    "llama": "plain rope",
    "llama, dynamic NTK": "frequencies that depend on the longest text so far",
    "qwen3, YaRN": "scaled frequencies and queries",
    "phi3, LongRoPE": "other frequencies beyond a length",
    "gemma3_text, linear in full layers": "sliding and full layers, each with a rope",
    "llama4_text": "chunked attention, layers without positions",
    "falcon, ALiBi": "distances in place of positions",
    "gpt2": "a table of positions",
    "roberta": "a table whose positions begin behind the padding",
    "rembert": "a cache that is a pair of caches",
    "gpt_oss": "attention sinks, experts",
    "deepseek_v3": "latent keys, experts",
    "bamba": "recurrent and full layers, the first recurrent",
    "jamba": "a recurrent state that is dropped where several tokens follow",
    "minimax": "linear and full layers",
    "mamba": "a state alone, which is a cache since transformers 5.24",
}
TRIED = (
    "ppl, batches", "limit", "compare, decode", "compare, chunks",
    "eval, likelihoods, batches", "eval, replies, batches",
)  # fmt: skip
"""The verbs that are tried; the others read as these do, or one at a time. A text after another: `test_no_state`."""
UNLIKE = ("llama4_text", "roberta", "rembert", "gpt_oss", "deepseek_v3")
"""Of which `test_no_state` has no model."""
EXPECTED: dict[tuple[str, str], tuple[str, str]] = {
    ("llama, dynamic NTK", "compare, decode"): ("transformers", ""),
    ("llama, dynamic NTK", "compare, chunks"): ("transformers", ""),
    ("jamba", "compare, chunks"): ("transformers", ""),
    ("minimax", "compare, chunks"): ("transformers", ""),
    # Its states are a cache since transformers 5.24, which drops them where several tokens follow.
    **(
        {("mamba", "compare, chunks"): ("transformers", "")}
        if "cache" in inspect.signature(MambaForCausalLM.forward).parameters
        else dict.fromkeys(
            (("mamba", "compare, decode"), ("mamba", "compare, chunks")), ("refused", "takes no cache")
        )
    ),
}
"""What is no equality: refused or a fault of transformers, and a word of the reason."""


BY_TOKENIZER = ("llama", "a tokenizer with BOS")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in PUBLISHED if kind != BY_TOKENIZER], ids=", ".join)
@torch.no_grad()
def test_a_variant_is_another_model(kind):
    """A class may pass over a setting, and the zoo would have its architecture twice."""
    plain, other = made(Animal(kind[0], "", {})), made(Animal(*kind, PUBLISHED[kind]))
    assert check_rope(other)["faults"] == []
    assert not torch.allclose(
        *(each(input_ids=random_ids(1, 200)).logits for each in (plain, other)), atol=0.1
    )


@cache
def _case(name: str, folder: Path) -> Case:
    [animal] = (each for each in animals() if each.name == name)
    build(animal, folder / name)
    return Case(folder / name)


def _cells() -> Iterator[Any]:
    for cell in [
        *product(ANIMALS, TRIED),
        *product(("llama", "llama, dynamic NTK"), ("ppl", "measure", "longppl")),
        *product(UNLIKE, ("after another text",)),
    ]:
        yield pytest.param(*cell, id=": ".join(cell))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "verb"), list(_cells()))
def test_a_verb_says_what_the_plain_forward_pass_says(name, verb, tmp_path_factory):
    cell = cell_of(_case(name, tmp_path_factory.getbasetemp()), verb)
    verdict, words = EXPECTED.get((name, verb), ("equal", ""))
    assert (cell.verdict, words in cell.why) == (verdict, True), cell
