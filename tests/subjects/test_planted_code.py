"""Models whose code has a fault that a few tokens do not show: a run refuses them, with the reason, or says so.

What is unsound beyond a length alone is in `test_plain_pass`.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.measure import Perplexity
from lengthwise.measure.runner import run
from lengthwise.subjects import LoadedModel, Reading
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_llama, tiny_text
from tests.readings import in_memory

WHOLE, CHUNKS = ReadingPath(), ReadingPath(chunk=60)


def embeddings(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any], None]:
    """`change` takes the ids and their embeddings."""
    return lambda model: model.model.embed_tokens.register_forward_hook(
        lambda _, args, states: change(args[0], states)
    )


def logits(change: Callable[[Tensor, Any], Tensor]) -> Callable[[Any], None]:
    def plant(model: Any) -> None:
        def hook(_module: Any, _args: Any, given: Any, output: Any) -> None:
            output["logits"] = change(output["logits"], given)

        model.register_forward_hook(hook, with_kwargs=True)

    return plant


def counts(model: Any) -> None:
    calls = count()
    embeddings(lambda _, states: states + (next(calls) > 14))(model)


def longest(model: Any) -> None:
    """As code did that made NTK's frequencies anew for a longer text, and kept them."""
    rope, made = model.model.rotary_emb, model.model.rotary_emb.inv_freq

    def hook(module: Any, _args: Any, given: Any) -> None:
        module.longest = max(getattr(module, "longest", 64), int(given["position_ids"].max()) + 1)
        module.inv_freq = made * 64 / module.longest

    rope.register_forward_pre_hook(hook, with_kwargs=True)


def sharper(found: Tensor, given: Any) -> Tensor:
    """Beyond position 64."""
    positions = given["position_ids"] if "position_ids" in given else torch.arange(found.shape[1])[None]
    return found * torch.where(positions[:, -found.shape[1] :] > 64, 2.0, 1.0)[..., None]


def from_3(model: Any) -> None:
    """Positions of a table, which begin at 3 where none are given."""
    table, forward = nn.Embedding(800, model.config.hidden_size), model.forward
    places: list[Tensor] = []

    def own(input_ids: Tensor, position_ids: Tensor | None = None, **given: Any) -> Any:
        places[:] = [torch.arange(input_ids.shape[1])[None] + 3 if position_ids is None else position_ids]
        return forward(input_ids, position_ids=position_ids, **given)

    model.forward = own
    embeddings(lambda _, states: states + table(places[0]).detach())(model)


def from_3_without_a_token(banned: float) -> Callable[[Any], None]:
    def plant(model: Any) -> None:
        from_3(model)
        logits(lambda found, _: found.index_fill(-1, torch.tensor([7]), banned))(model)

    return plant


def next_from(row: int) -> Callable[[Tensor, Tensor], Tensor]:
    def change(_: Tensor, states: Tensor) -> Tensor:
        later = torch.nn.functional.pad(states[:, 1:], (0, 0, 0, 1))
        return states + later * (torch.arange(states.shape[1]) >= row)[:, None]

    return change


def next_behind_a_cache(tokens: int) -> Callable[[Any], None]:
    """A mask that is causal only where the cache has fewer tokens."""

    def plant(model: Any) -> None:
        for index, layer in enumerate(model.model.layers):

            def hook(_module: Any, args: Any, given: Any, index: int = index) -> Any:
                cache = next(
                    (each for name, each in given.items() if name in ("cache", "past_key_values")), None
                )
                several = cache is not None and given["hidden_states"].shape[1] > 1
                if several and cache.get_seq_length(index) >= tokens:
                    given["attention_mask"] = torch.zeros_like(given["attention_mask"], dtype=torch.float32)
                return args, given

            layer.self_attn.register_forward_pre_hook(hook, with_kwargs=True)

    return plant


def full(ids: Tensor, states: Tensor) -> Tensor:
    """As an expert that takes 60 tokens, of all texts side by side: later ones pass by."""
    chosen = ids < 100
    return states * ~(chosen & (chosen.flatten().cumsum(0).view(ids.shape) > 60))[..., None]


PLANTED: dict[str, tuple[Callable[[Any], Any], ReadingPath, str]] = {
    "it counts its calls": (counts, WHOLE, "after these texts than before"),
    "it keeps the longest text": (longest, WHOLE, "after these texts than before"),
    "its logits have another scale far on": (logits(sharper), WHOLE, "output head of tiny"),
    "it counts positions from 3": (from_3, WHOLE, "than without positions"),
    "it sees the next token from row 330 on": (embeddings(next_from(330)), WHOLE, "later token in a text of 600"),
    "it sees the next token behind a cache": (next_behind_a_cache(1), CHUNKS, "later token in a text of 60 tokens"),
    "and deep in a text alone": (next_behind_a_cache(300), CHUNKS, "later token in a text of 60 tokens"),
    "it counts so, and bans a token": (from_3_without_a_token(-torch.inf), WHOLE, "than without positions"),
    "it bans it by a large number": (from_3_without_a_token(-1e9), WHOLE, "than without positions"),
    "an expert is full with some texts": (embeddings(full), WHOLE, "side by side, with some texts alone"),
}  # fmt: skip


def measured(model: LoadedModel) -> dict[str, Any]:
    """As a run does: texts of several lengths, four at a time; the first ones have no token below 100."""
    tokens = np.random.default_rng(0).integers(320, size=(40, 600))
    tokens[:16] = tokens[:16].clip(100)
    model.check_ready(600)
    for begin in range(0, 40, 4):
        for size in (40, 64, 120):
            model.read([Reading(tokens=row[:size], labels=row[:size]) for row in tokens[begin : begin + 4]])
    model.read([Reading(tokens=tokens[0], labels=tokens[0])])
    model.check_unchanged()
    return model.describe()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_of_a_models_own_code_is_refused(fault: str) -> None:
    plant, path, words = PLANTED[fault]
    llama = tiny_llama()
    plant(llama)
    model = in_memory(llama)
    model.path = path
    with pytest.raises(UsageError, match=words):
        measured(model)


@pytest.mark.parametrize("path", [WHOLE, CHUNKS], ids=str)
def test_a_sound_model_is_measured(path: ReadingPath) -> None:
    model = in_memory(tiny_llama())
    model.path = path
    assert measured(model)["remarks"] == in_memory(tiny_llama()).remarks


def test_logits_that_are_all_alike_are_said() -> None:
    llama = tiny_llama()
    logits(lambda found, _: found * 0)(llama)
    model = in_memory(llama)
    model.check_ready(10)
    assert model.describe()["remarks"][0] == "It predicts all tokens alike: its logits differ by 0."


def test_a_run_asks_at_its_end_whether_the_model_is_what_it_was() -> None:
    llama = tiny_llama()
    counts(llama)
    with pytest.raises(UsageError, match="after these texts than before"):
        run(Perplexity(lengths=(16,), windows=12, batch_size=1), in_memory(llama), [tiny_text(400)])


def test_autocast_is_said() -> None:
    """It moved a tiny model by 0.2 nats, and the record still said float32."""
    spec, text = Perplexity(lengths=(16,), windows=4), [tiny_text(400)]
    plain = run(spec, in_memory(tiny_llama()), text)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = run(spec, in_memory(tiny_llama()), text)
    assert any("under autocast, in bfloat16" in note for note in cast.notes)
    assert not any("autocast" in note for note in plain.notes)
    assert cast.rows[0].value != plain.rows[0].value
