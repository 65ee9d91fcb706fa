"""What servers do to log-probabilities, prompts, replies and requests: every verb is right, refuses it, or says so.

Each entry of `QUIRKS` is one server. `said` is in the error of the verbs that it concerns; all other verbs give the
numbers of the weights.
"""

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import LengthwiseError
from lengthwise.evaluation import Evaluation
from lengthwise.measure import Comparison, Limit, Perplexity
from lengthwise.measure.runner import run as measure
from lengthwise.results import Results
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import tiny_tokenizer
from tests.served.servers import (
    Made,
    adds_bos,
    as_bfloat16,
    at,
    bare,
    cached,
    counted,
    drops_bos,
    listed,
    never_says,
    noisy,
    now_and_then,
    numbers,
    one_row_before,
    other_weights,
    penalised,
    raw,
    remembered,
    repeats_requests,
    replied,
    retokenized,
    says,
    shifted,
    stands,
    strict,
    swapping,
    token_by_token,
    with_a_token,
)

NEEDLE: dict[str, Any] = {"tasks": ("needle_multi_key",), "lengths": (400,), "depths": (50.0,), "samples": 1}
VERBS: dict[str, Callable[[Path], Any]] = {
    "ppl": lambda _: Perplexity(lengths=(64,), windows=2, batch_size=2),
    "limit": lambda _: Limit(max_length=96, reference=32, windows=1, passage=8, scored=4, batch_size=8),
    "likelihood": lambda _: Evaluation(mode="likelihood", **NEEDLE),
    "greedy": lambda _: Evaluation(mode="greedy", **NEEDLE),
    "compare": lambda folder: Comparison(lengths=(96,), windows=1, side_b={"model": str(folder)}),
}
READ = ("ppl", "limit", "compare")
LOST = {"trained_length", "loss_best_temperature", "inverse_temperature"}
"""What needs whole distributions."""


@dataclass(frozen=True)
class Quirk:
    """A server, and what is said of it."""

    make: Made = dict
    said: str = ""
    """In the error; "" where every number is right."""
    verbs: tuple[str, ...] = tuple(VERBS)
    """Those that say it."""
    noted: str = ""
    """In the notes of every verb that gives numbers."""
    within: float = 1e-4
    """How far the numbers may be from those of the weights."""
    found: bool = False
    """It cannot be told from another model; `compare` with the weights finds it."""
    everywhere: bool = False
    """Every verb is run."""
    shape: str = "echo"
    bos: bool = False

    @property
    def walked(self) -> tuple[str, ...]:
        """The verbs that are run: one that scores and one that writes, and those that differ from these.

        What every verb refuses is refused at the door that all of them have: it is asked of one.
        """
        if self.found:
            return ("compare",)
        if self.everywhere:
            return tuple(VERBS)
        if len(self.verbs) == len(VERBS):
            return ("ppl",) if self.said else ("ppl", "greedy")
        return tuple(dict.fromkeys(("ppl", "greedy", *self.verbs)))


ZSTD = b"\x28\xb5\x2f\xfd\x04\x00"
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
ERROR = {"error": {"message": "model overloaded", "type": "server_error"}}
DRAWN = {"token_logprobs": [-1.0, -2.5], "top_logprobs": [{" a": -1.0}, {" the": -0.3, " king": -2.5}]}
GREEDY = {"token_logprobs": [-1.0, None], "top_logprobs": [{" a": -1.0, " b": -3}, None]}
QUIRKS: dict[str, Quirk] = {
    # What the numbers are of.
    "vLLM as it is": Quirk(shape="vllm", everywhere=True),
    "SGLang as it is": Quirk(everywhere=True),
    "a first entry of 0": Quirk(listed(lambda values, _: [0.0, *values[1:]])),
    "no entry for the generated token": Quirk(listed(lambda values, _: values[:-1])),
    "no entry for the first token": Quirk(listed(lambda values, _: values[1:]), "changes by"),
    "early by one": Quirk(bare(listed(lambda values, _: [None, *values[2:], -1.0])), "changes by"),
    "late by one": Quirk(bare(listed(lambda values, _: [None, -3.0, *values[1:-2]])), "as it is sent"),
    "of the likeliest token": Quirk(
        lambda: {"predicts": lambda log_p: log_p.max(-1, keepdim=True).values.expand_as(log_p)},
        "does not change with the token",
    ),
    "top five alone": Quirk(
        lambda: {
            "predicts": lambda log_p: torch.where(log_p < log_p.topk(5).values[:, -1:], -math.inf, log_p)
        },
        "no log-probabilities",
    ),
    "cut off at -7": Quirk(numbers(lambda each: max(each, -7.0)), "cut off"),
    "in the order of the end": Quirk(listed(lambda values, _: [None, *values[-2:0:-1], -1.0]), "changes by"),
    "the same everywhere": Quirk(numbers(lambda each: 0.0), "same number"),
    "summed up": Quirk(
        listed(lambda values, _: [None, *torch.tensor(values[1:]).cumsum(0).tolist()]), "no log-prob"
    ),
    "zeros but for the last chunk": Quirk(
        listed(lambda values, _: [None] + [0.0] * (len(values) - 21) + values[-20:]), "changes by"
    ),
    "fewer where cached": Quirk(listed(lambda values, _: [None, *values[17:]]), "entries"),
    "zeros where cached": Quirk(cached, "changes by"),
    # How they are written.
    "four decimals": Quirk(numbers(lambda each: round(each, 4))),
    "rounded to bfloat16": Quirk(numbers(as_bfloat16), within=0.03, noted="bfloat16", everywhere=True),
    "rounded to float16": Quirk(
        numbers(lambda each: torch.tensor(each).half().item()), within=0.003, noted="float16"
    ),
    "with noise": Quirk(numbers(noisy), within=0.03, noted="nats apart"),
    "base 10": Quirk(numbers(lambda each: each / math.log(10)), found=True),
    "base 2": Quirk(numbers(lambda each: each / math.log(2)), found=True),
    "-9999 for what is unlikely": Quirk(stands(-9999.0), "no log-probabilities"),
    "-3.4e38": Quirk(stands(-3.4028234663852886e38), "no log-probabilities"),
    "-Infinity in JSON": Quirk(stands(-math.inf), "no log-probabilities"),
    # Which prompt is read.
    "adds a BOS, and counts nothing": Quirk(bare(adds_bos), found=True, bos=True),
    "adds a BOS, and counts it": Quirk(
        lambda: adds_bos() | counted(lambda ids: len(ids) + 1)(), "counts", bos=True
    ),
    "of one row before": Quirk(bare(one_row_before), "does not change with the token before it"),
    "writes the text anew": Quirk(says(retokenized), "counts"),
    "writes the text anew, and counts nothing": Quirk(bare(says(retokenized)), "changes by"),
    "cuts on the left": Quirk(
        lambda: {"reads": lambda ids: [0] * (len(ids) - 60) + ids[-60:]}, "tokens give other numbers alone"
    ),
    "never says a token": Quirk(lambda: {"predicts": never_says}),
    "never says a token, and cuts on the left": Quirk(
        lambda: {"predicts": never_says, "reads": lambda ids: [0] * (len(ids) - 60) + ids[-60:]},
        "tokens give other numbers alone",
    ),
    "says nothing from token 48 on": Quirk(
        lambda: {"predicts": lambda log_p: torch.cat([log_p[:47], log_p[47:] * math.nan])},
        "numbers at its end are no log-probabilities",
    ),
    "cuts on the right": Quirk(
        lambda: {"reads": lambda ids: ids[:40] + [0] * (len(ids) - 40)},
        "other tokens at its end change nothing",
    ),
    "cuts in the middle": Quirk(
        lambda: {
            "reads": lambda ids: ids if len(ids) < 60 else [*ids[:20], *[0] * (len(ids) - 45), *ids[-25:]]
        },
        "tokens give other numbers alone",
    ),
    "drops its BOS": Quirk(drops_bos, "with and without a BOS", bos=True),
    "counts another number": Quirk(counted(lambda ids: len(ids) + 3), "counts"),
    "counts 0": Quirk(counted(lambda ids: 0)),
    "no numbers (Ollama, LM Studio)": Quirk(shape="none", said="gives no log-probabilities of prompts"),
    "counts nothing": Quirk(bare(dict)),
    "writes one token after the other": Quirk(says(token_by_token)),
    "answers by length": Quirk(lambda: remembered(len), "does not change with the token"),
    "answers by the first tokens": Quirk(
        lambda: remembered(lambda ids: (len(ids), *ids[:8])), "does not change with the token"
    ),
    # What it predicts.
    "heats by what is asked": Quirk(
        lambda: {"predicts": lambda log_p: (log_p * 1e5).log_softmax(-1)}, "no log-probabilities"
    ),
    "heats by 0.7": Quirk(lambda: {"predicts": lambda log_p: (log_p / 0.7).log_softmax(-1)}, found=True),
    "a penalty of its own": Quirk(says(penalised), everywhere=True),
    "a penalty of its own, and errors with the request": Quirk(says(repeats_requests)),
    "a strict API": Quirk(says(strict)),
    # Who answers.
    "two replicas": Quirk(at(lambda number: number % 2 == 0, other_weights), "changes by"),
    "one replica of five": Quirk(at(lambda number: number % 5 == 0, other_weights), "when it is asked again"),
    "other weights later": Quirk(
        at(lambda number: number > 22, other_weights),
        "when it is asked again",
        everywhere=True,
    ),
    "mixes up who asked": Quirk(swapping, "other numbers when it is asked again"),
    "another model on request": Quirk(
        says(lambda body, ids, answer: answer | {"model": "other"}), noted="other"
    ),
    "falls back later": Quirk(
        at(lambda number: number > 22, lambda body, ids, answer: answer | {"model": "other"}), "'other'"
    ),
    "another build later": Quirk(
        at(
            lambda number: True,
            lambda body, ids, answer: answer | {"system_fingerprint": f"b{len(ids) // 48}"},
        ),
        "system_fingerprint",
    ),
    # The tokenizer.
    "ids shifted by a token in front": Quirk(lambda: {"tokenizer": shifted()}, "the tokenizer"),
    "a token of its own that the text has": Quirk(lambda: {"tokenizer": with_a_token("river")}),
    "a token of its own that every text has": Quirk(
        lambda: {"tokenizer": with_a_token("queen")}, "the tokenizer", shape="vllm"
    ),
    # Requests.
    "strict fields": Quirk(
        says(lambda body, ids, answer: (400, {"error": {"message": "unknown repetition_penalty"}})),
        "unknown repetition_penalty",
    ),
    "an error with 200": Quirk(at(lambda number: True, lambda *_: ERROR), "model overloaded"),
    "busy with 200": Quirk(now_and_then({"error": {"message": "slow down", "code": 429}})),
    "Retry-After in seconds": Quirk(now_and_then(raw("429 Too Many Requests", "Retry-After: 0"))),
    "Retry-After as a date": Quirk(now_and_then(raw("503 Busy", f"Retry-After: {DATE}"))),
    "a gateway's own status": Quirk(now_and_then(raw("529 Overloaded"))),
    "gzip": Quirk(
        says(
            lambda body, ids, answer: raw(
                "200 OK", "Content-Encoding: gzip", data=gzip.compress(json.dumps(answer).encode())
            )
        )
    ),
    "zstd": Quirk(says(lambda body, ids, answer: raw("200 OK", "Content-Encoding: zstd", data=ZSTD)), "JSON"),
    "chat alone": Quirk(says(lambda body, ids, answer: (404, {"detail": "Not Found"})), "completions"),
    # Replies.
    "a reply with its prompt": Quirk(
        replied(lambda ids, own: {"text": tiny_tokenizer().decode(ids) + own}),
        "its prompt",
        verbs=("greedy",),
    ),
    "a reply that is filtered": Quirk(
        replied(lambda ids, own: {"text": "", "finish_reason": "content_filter"}),
        "content_filter",
        verbs=("greedy",),
    ),
    "a reply of too few tokens": Quirk(
        replied(lambda ids, own: {"text": "the", "finish_reason": "length"}, completion_tokens=1),
        "has 1 tokens",
        verbs=("greedy",),
    ),
    "a reply of too many tokens": Quirk(
        replied(lambda ids, own: {"text": own}, completion_tokens=100), "has 100 tokens", verbs=("greedy",)
    ),
    "a reply of a number that is none": Quirk(
        replied(lambda ids, own: {"text": own}, completion_tokens="few"),
        "no text of a reply",
        verbs=("greedy",),
    ),
    "a prompt that is cut for the reply": Quirk(
        replied(lambda ids, own: {"text": own}, prompt_tokens=100), "counts 100 tokens", verbs=("greedy",)
    ),
    "a reply that is drawn": Quirk(
        replied(lambda ids, own: {"text": " a king", "logprobs": DRAWN}), "likeliest", verbs=("greedy",)
    ),
    "a greedy reply": Quirk(
        replied(lambda ids, own: {"text": own, "finish_reason": "stop", "logprobs": GREEDY})
    ),
}


@pytest.fixture(scope="session")
def folders(folder: Path, bos_folder: Path) -> dict[bool, Path]:
    """Without a BOS, and with one."""
    return {False: folder, True: bos_folder}


@pytest.fixture(scope="session")
def weights(folders: dict[bool, Path]) -> dict[bool, LoadedModel]:
    return {bos: load(str(folder)) for bos, folder in folders.items()}


@pytest.fixture(scope="session")
def own(folders: dict[bool, Path], text: str) -> Callable[[str, bool], Results]:
    """What the weights give."""
    known: dict[Any, Results] = {}

    def found(verb: str, bos: bool) -> Results:
        if (verb, bos) not in known:
            folder = folders[bos]
            known[verb, bos] = measure(
                VERBS[verb](folder), Subject(model=str(folder), text=text, split="all")
            )
        return known[verb, bos]

    return found


def assert_alike(one: Results, other: Results, within: float) -> None:
    rows = {row.place: row.value for row in other.rows if row.metric not in LOST}
    found = {row.place: row.value for row in one.rows}
    assert rows.keys() <= found.keys()
    for place, value in rows.items():
        assert found[place] == (None if value is None else pytest.approx(value, abs=within, rel=within)), (
            place
        )


def assert_alike_replies(one: Results, other: Results) -> None:
    replies, wanted = ([record["reply"] for record in each.records.values()] for each in (one, other))
    assert replies == wanted != []


@pytest.mark.parametrize("name", QUIRKS)
def test_a_server_is_right_or_refused(name, serve, weights, folders, own, text):
    quirk = QUIRKS[name]
    folder = folders[quirk.bos]
    for verb in quirk.walked:
        stub = serve(quirk.shape, model=weights[quirk.bos], **quirk.make())
        subject = Subject(model=stub.url, text=text, split="all", tokenizer=str(folder))
        if quirk.said and verb in quirk.verbs:
            with pytest.raises(LengthwiseError) as caught:
                measure(VERBS[verb](folder), subject)
            assert quirk.said in caught.value.problem, verb
            assert "fix:" in str(caught.value) or "expected:" in str(caught.value)
            continue
        found = measure(VERBS[verb](folder), subject)
        assert quirk.noted in " ".join(found.notes), verb
        if verb == "compare":
            [row] = found.select(metric="difference", length=96)[:1]
            assert row.value > 0.1 if quirk.found else row.value < quirk.within
        elif verb == "greedy":
            assert_alike_replies(found, own(verb, quirk.bos))
        else:
            assert_alike(found, own(verb, quirk.bos), quirk.within)
