"""Reading token by token across LongRoPE's switch of frequencies is what transformers computes while it generates."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import Reading
from lengthwise.subjects.reading import reading_path
from tests.readings import in_memory
from tests.subjects.test_writing import SIZES

SWITCH = 40
ROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0],
    "original_max_position_embeddings": SWITCH, "factor": 4.0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "phi3": {"original_max_position_embeddings": SWITCH, "rope_parameters": ROPE},
    "phimoe": {
        "original_max_position_embeddings": SWITCH,
        "rope_parameters": ROPE | {"short_mscale": 1.0, "long_mscale": 1.2},
    },
    "llama": {"rope_parameters": ROPE},
}
IDS = np.random.default_rng(0).integers(1, 320, 61)


def made(kind: str) -> Any:
    torch.manual_seed(1)
    more = {"max_position_embeddings": 160, "pad_token_id": 0}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SIZES | more | KINDS[kind]))).eval()


def generated(model: Any, begin: int, chunk: int | None) -> Tensor:
    """-log p of the tokens from `begin` on, each of which is forced upon transformers' own loop."""
    out = model.generate(
        torch.tensor(IDS[None, :begin]),
        max_new_tokens=len(IDS) - begin,
        do_sample=False,
        prefix_allowed_tokens_fn=lambda _, sofar: [int(IDS[len(sofar)])],
        output_logits=True,
        return_dict_in_generate=True,
        prefill_chunk_size=chunk,
    )
    log_p = torch.stack(out.logits, dim=1)[0].log_softmax(-1)
    return -log_p.gather(1, torch.from_numpy(IDS[begin:])[:, None])[:, 0]


@pytest.mark.parametrize("read", ["decode=40", "decode=20", "decode=19", "chunks=24"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_path_gives_what_generate_computes(kind: str, read: str) -> None:
    chunk = int(read.removeprefix("chunks=")) if "chunks" in read else None
    begin = len(IDS) - 1 if chunk else len(IDS) - 1 - int(read.removeprefix("decode="))
    model = in_memory(made(kind))
    model.path = reading_path(Subject(model="tiny", read=read))
    expected = generated(model.model, begin, chunk)
    for _ in range(2):
        [found] = model.read([Reading(tokens=IDS[:-1], labels=IDS[1:])])
        torch.testing.assert_close(found.losses[-len(expected) :], expected.double(), rtol=1e-5, atol=1e-5)


def test_behind_the_switch_each_token_is_that_of_a_plain_pass() -> None:
    """With every version, of which older ones generate otherwise: all is read again with the other frequencies."""
    model = in_memory(made("phi3"))
    model.path = reading_path(Subject(model="tiny", read="decode=20"))
    [found] = model.read([Reading(tokens=IDS[:-1], labels=IDS[1:])])
    # Behind the first of them a cache is continued, with keys of the same frequencies.
    for length in range(SWITCH + 1, len(IDS)):
        with torch.no_grad():
            logits = made("phi3")(torch.from_numpy(IDS[None, :length]), use_cache=False).logits[0, -1]
        expected = -logits.double().log_softmax(-1)[int(IDS[length])]
        assert found.losses[length - 1] == pytest.approx(expected.item(), abs=1e-5)


def test_a_named_cache_that_transformers_drops_is_refused() -> None:
    model = in_memory(made("phi3"))
    model.path = reading_path(Subject(model="tiny", read="decode=40", kv_cache="full"))
    with pytest.raises(UsageError, match=r"drops its cache after 40 tokens.* without kv_cache=full"):
        model.read([Reading(tokens=IDS[:-1], labels=IDS[1:])])
