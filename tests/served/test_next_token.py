"""What servers do to the number of the token after a prompt, alone and in a whole distribution: right or refused."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import LengthwiseError
from lengthwise.measure import Misalignment, Perplexity
from lengthwise.measure.runner import run as measure
from lengthwise.settings import Subject
from tests.served.servers import Made, distributed, forced, later

AGAIN = "when it is asked again"
OTHER = "another number than in a prompt"
LOWER = torch.tensor(-9999.0)
DISTRIBUTIONS: dict[str, tuple[Made, str]] = {
    "as it is": (dict, ""),
    "rounded to float16": (distributed(lambda log_p: log_p.half().float()), ""),
    "ids off by one": (distributed(lambda log_p: log_p.roll(1)), OTHER),
    "heated": (distributed(lambda log_p: (log_p / 2).log_softmax(-1)), OTHER),
    "the likeliest alone": (
        distributed(lambda log_p: torch.where(log_p < log_p.max(), LOWER, 0.0)),
        OTHER,
    ),
    "the likeliest fifty": (
        distributed(
            lambda log_p: torch.where(log_p < log_p.topk(50).values[-1], LOWER, log_p).log_softmax(-1)
        ),
        OTHER,
    ),
    "always the same": (
        distributed(lambda log_p: torch.arange(len(log_p)).neg().float().log_softmax(-1)),
        OTHER,
    ),
    "in base 2": (distributed(lambda log_p: log_p / math.log(2)), "sum to 1"),
    "a hundred entries": (lambda: {"most_logprobs": 100}, "sum to 1"),
    "other weights later": (later(25), AGAIN),
}
FORCED: dict[str, tuple[Made, str]] = {
    "as it is": (dict, ""),
    "after others are left out": (forced(lambda _: 0.0), OTHER),
    "heated": (forced(lambda value: value / 2), OTHER),
    "never": (forced(lambda _: -9999.0), OTHER),
    "more than sure": (forced(lambda value: value + 20), "is no log-probability"),
}
PAPER = Misalignment(lengths=(32,), windows=3, estimator="paper")
DECODED = Perplexity(lengths=(64,), windows=1)


@pytest.mark.parametrize(
    ("spec", "read", "make", "said"),
    [
        *(pytest.param(PAPER, None, *each, id=f"whole, {name}") for name, each in DISTRIBUTIONS.items()),
        *(pytest.param(DECODED, "decode=8", *each, id=f"alone, {name}") for name, each in FORCED.items()),
        pytest.param(PAPER, "decode=8", dict, "after one pass, and read is decode=8", id="whole, decoded"),
        pytest.param(DECODED, "decode=64", later(60), AGAIN, id="alone, all of it, other weights later"),
    ],
)
def test_it_is_that_of_a_prompt(
    spec: Any, read: str | None, make: Made, said: str, serve: Any, folder: Path, text: str
) -> None:
    served = Subject(
        model=serve("vllm", **make()).url, text=text, split="all", tokenizer=str(folder), read=read
    )
    if said:
        with pytest.raises(LengthwiseError, match=said):
            measure(spec, served)
        return
    found, own = (
        measure(spec, each) for each in (served, Subject(model=str(folder), text=text, split="all"))
    )
    wanted = {row.place: row.value for row in own.rows}
    for row in found.rows:
        if row.place in wanted and row.value is not None:
            assert row.value == pytest.approx(wanted[row.place], rel=3e-3, abs=3e-3)
