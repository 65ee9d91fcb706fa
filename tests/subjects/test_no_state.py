"""What a reading gives depends on nothing that was read before, on no other one of its batch, and on no shortcut.

The oracle of each reading is a model of its own, which has read nothing else, and reads it whole along the same path.
"""

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from lengthwise import extend
from lengthwise.checkpoints.hidden import cache_argument
from lengthwise.errors import MissingError, UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import Branch, LoadedModel, Reading
from lengthwise.subjects.caches import KV_CACHES
from lengthwise.subjects.reading import ReadingPath, reading_path
from lengthwise.testing import tiny_llama
from tests.readings import in_memory
from tests.subjects.test_writing import KINDS, SIZES

LENGTH = 40
"""The original length of every rope below, of which one has frequencies that stay."""
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": LENGTH}
GEMMA = {
    "head_dim": 8, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": LENGTH,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    },
}  # fmt: skip
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "scaled frequencies that stay": ("llama", {"rope_parameters": YARN}),
    "dynamic NTK in one kind of layer": ("gemma3_text", GEMMA),
    "ALiBi that takes position ids": ("falcon", {"alibi": True, "new_decoder_architecture": False}),
    "learned positions with an offset": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "states inside its layers": (
        "recurrent_gemma",
        {"lru_width": 32, "attention_window_size": 16, "block_types": ["recurrent", "attention"]},
    ),
}
EXTENDED = {"dynamic_ntk": {}, "clex": {}, "longrope": {"long_factor": [1.0, 2.0, 3.0, 4.0]}}
"""lengthwise's own methods by 4 whose frequencies follow the text."""
EVERY = [*KINDS, *MORE, *EXTENDED]
SIZES_READ = (20, 70, LENGTH, LENGTH + 1, 20)
PATHS = {"one pass": ReadingPath(), "chunks": ReadingPath(chunk=24), "decode": ReadingPath(decode=9)}


def extended(kind: str) -> Any:
    model = tiny_llama(max_position_embeddings=LENGTH)
    extend(model, kind, factor=4, **EXTENDED[kind])
    return model


@cache
def unread(kind: str) -> tuple[Any, Any]:
    """A model that has read nothing but what proves its head, and the head: `made` copies both."""
    model_type, settings = (KINDS | MORE)[kind]
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(SIZES | settings))).eval()
    return model, in_memory(model, kind).head


def made(kind: str, path: ReadingPath) -> LoadedModel:
    model, head = (extended(kind), None) if kind in EXTENDED else copy.deepcopy(unread(kind))
    loaded = in_memory(model, kind)
    loaded.path = path
    if head is not None:
        loaded.__dict__["head"] = head
    return loaded


def trusted(kind: str, path: ReadingPath) -> LoadedModel:
    """The same as an oracle: it does not look whether it sees later tokens."""
    loaded = made(kind, path)
    loaded.proofs.blind_up_to, loaded.proofs.blind_behind = 1 << 40, (1 << 40, 1 << 40)
    return loaded


def text(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng([size, seed]).integers(1, 320, size + 1)


def reading(size: int, seed: int, *, branches: bool) -> Reading:
    ids = text(size, seed)
    places = (size // 2, size - 3) if branches else ()
    sides = [Branch(place=place, tokens=text(7, place)[:-1], labels=text(7, place)[1:]) for place in places]
    return Reading(tokens=ids[:-1], labels=ids[1:], branches=sides)


def alone(fresh: Any, asked: Reading) -> torch.Tensor:
    """The losses of a text and of each branch with the text before it, each read by a model of its own."""
    found = [fresh().read([Reading(tokens=asked.tokens, labels=asked.labels)])[0].losses]
    for branch in asked.branches:
        whole = np.concatenate([asked.tokens[: branch.place], branch.tokens])
        found.append(fresh().read([Reading(tokens=whole, labels=branch.labels)])[0].losses)
    return torch.cat(found)


def together(model: LoadedModel, asked: list[Reading]) -> list[torch.Tensor]:
    return [torch.cat([read.losses, *read.branches]) for read in model.read(asked)]


@cache
def expected(kind: str, path: str, size: int, seed: int, branches: bool) -> torch.Tensor:
    return alone(lambda: trusted(kind, PATHS[path]), reading(size, seed, branches=branches))


def is_refused(kind: str, path: str) -> bool:
    """Whether a model without a cache that can be continued is asked to read along such a path; then it refuses."""
    if path == "one pass" or kind not in ("mamba", "states inside its layers"):
        return False
    model = made(kind, PATHS[path])
    # Before transformers 5.24 Mamba's forward pass calls its states `cache_params`, and returns them elsewhere.
    if kind == "mamba" and cache_argument(model.model) is not None:
        return False
    for branches in (False, True):
        with pytest.raises(UsageError, match="cache"):
            model.read([reading(LENGTH, 0, branches=branches)])
    return True


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("branches", [False, True], ids=["texts", "branches"])
def test_what_was_read_before_changes_nothing(kind: str, path: str, branches: bool) -> None:
    """Each text after a shorter or a longer one, below, at and beyond the original length.

    Alone and in batches; with branches, which change neither their text nor the next.
    """
    if is_refused(kind, path):
        return
    model = made(kind, PATHS[path])
    for batch in (1,) if branches else (1, 2):
        for size in SIZES_READ:
            asked = [reading(size, seed, branches=branches) for seed in range(batch)]
            for seed, found in enumerate(together(model, asked)):
                truth = expected(kind, path, size, seed, branches)
                torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-4)


KEPT = [DynamicCache()]


def sharing(_config: Any, _tokens: int) -> DynamicCache:
    """A new cache, with layers that were there before."""
    cache = DynamicCache()
    cache.layers = KEPT[0].layers
    return cache


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda *_: KEPT[0], "holds tokens"),
        (sharing, "holds tokens"),
        (lambda *_: None, "a NoneType"),
        (lambda *_: DynamicCache, "a type"),
        (lambda *_: "dynamic", "a str"),
    ],
)
@pytest.mark.parametrize("kind", ["a plain cache", "lfm2"])
def test_a_cache_that_is_not_empty_or_none_at_all_is_refused(make: Any, words: str, kind: str) -> None:
    """At its first reading, or at the second one, which would go on from the first."""
    model = made(kind, ReadingPath(chunk=24, cache=make, option="cache=mine:make"))
    KEPT[0] = DynamicCache(config=model.config)
    with pytest.raises(UsageError, match=f"cache=mine:make gives .*{words}"):
        for seed in range(2):
            model.read([reading(50, seed, branches=False)])


def through(path: ReadingPath) -> LoadedModel:
    # Two heads, so that a token's keys are one of the groups of 64 that quanto asks for.
    model = in_memory(tiny_llama(head_dim=32))
    model.path = path
    return model


@pytest.mark.parametrize("path", ["chunks=24", "decode=9"])
# An offloaded one is for CUDA, and the tests compute on the processor.
@pytest.mark.parametrize("cache", [name for name in KV_CACHES if "offloaded" not in name])
def test_a_branch_through_a_cache_is_its_whole_sequence_alone(cache: str, path: str) -> None:
    along = reading_path(Subject(model="tiny", kv_cache=cache, read=path))
    asked = reading(90, 0, branches=True)
    try:
        whole = alone(lambda: through(along), asked)
    except MissingError as error:
        # The package of a quantized cache; fp8 needs none.
        pytest.skip(str(error))
    model = through(along)
    for _ in range(2):
        [found] = together(model, [asked])
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4)
    rows = [reading(90, seed, branches=False) for seed in range(3)]
    for seed, found in enumerate(together(model, rows)):
        own = alone(lambda: through(along), rows[seed])
        torch.testing.assert_close(found, own, rtol=1e-3, atol=1e-3)
