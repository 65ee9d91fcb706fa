from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from checks.zoo.architectures import animals, build, made
from lengthwise.checkpoints import extend
from lengthwise.checkpoints.hidden import decoder_of
from lengthwise.checkpoints.position_limits import (
    as_length,
    max_positions,
    rope_by_input_length,
    sliding_layers,
    trained_length,
)
from lengthwise.positions import ROPE_METHODS
from lengthwise.subjects import load
from lengthwise.testing import tiny_llama

OPTIONS: dict[str, dict[str, Any]] = {"longrope": {"long_factor": [2.0] * 4}, "eabf": {"skip_layers": 1}}


@pytest.mark.parametrize("method", ROPE_METHODS)
def test_rope_methods_say_whether_they_look_at_the_input_s_length(method: str):
    """As the frequencies that they give at two lengths."""
    model = tiny_llama()
    extension = extend(model, method, factor=4.0, **OPTIONS.get(method, {}))
    short, long = (extension.inverse_frequencies(length)[0] for length in (128, 512))
    assert (rope_by_input_length(model.config) is not None) == (not short.equal(long))


NONE = None, 0, -1, int(1e30), 1e30, float("nan"), "4k"


@pytest.mark.parametrize(
    ("value", "length"), [*((value, None) for value in NONE), (2048, 2048), (4096.0, 4096)]
)
def test_a_length_that_is_none_is_not_taken_for_one(value: Any, length: int | None):
    assert trained_length(SimpleNamespace(max_position_embeddings=value)) == as_length(value) == length


@pytest.mark.parametrize("name", ["gemma2", "minimax", "mistral", "moshi", "qwen2, upper layers slide"])
def test_the_layers_that_slide(name: str, tmp_path: Path):
    """The oracle: whether another first token, as a layer gets it, changes its last row, far beyond the window."""
    animal = next(each for each in animals() if each.name == name)
    build(animal._replace(settings=animal.settings | {"sliding_window": 16}), tmp_path / "m")
    model, reached, rows, changed = (
        load(str(tmp_path / "m")).model,
        list[bool](),
        list[torch.Tensor](),
        [False],
    )

    def change(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        states = args[0] if args else kwargs.pop("hidden_states")
        first = torch.arange(states.shape[1])[None, :, None] == 0
        return (states + 3 * torch.sin(torch.arange(states.shape[2])) * first * changed[0], *args[1:]), kwargs

    for layer in decoder_of(model).layers:
        hooks = (
            layer.register_forward_pre_hook(change, with_kwargs=True),
            layer.register_forward_hook(
                lambda _, __, out: rows.append((out[0] if isinstance(out, tuple) else out)[0, -1])
            ),
        )
        for changed[0] in (False, True):
            model(input_ids=torch.arange(5, 65)[None], use_cache=False)
        reached.append(not rows[-2].equal(rows[-1]))
        for hook in hooks:
            hook.remove()
    assert sliding_layers(model.config) == [layer for layer, far in enumerate(reached) if not far]


TABLES = {
    "gemma3": None,
    "phi4_multimodal": None,
    "git": 1024,
    "openai-gpt": 1024,
    "gpt2": 1024,
    "roberta": 623,
}
"""Models of the zoo, and the positions of a text that their table has; the first three see images too."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_an_image_is_none_of_a_text(name: str) -> None:
    assert max_positions(made(next(each for each in animals() if each.name == name))) == TABLES[name]
