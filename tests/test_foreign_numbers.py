"""Of NaN, infinities, words and None that others give we make an undefined number, or an error that says why."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.tasks import TASKS
from lengthwise.measure import Misalignment, run
from lengthwise.measure.longppl import _encode
from lengthwise.measure.repeated_windows import KeptPredictions
from lengthwise.results import Results, Row, read_results
from lengthwise.subjects import Endpoint
from lengthwise.subjects.answers import PROTOCOLS, Refused, distribution, log_probs
from lengthwise.subjects.reading import ReadingPath
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus, tokenize
from tests.readings import in_memory, token_losses
from tests.served.stub import Stub, serving

NAN, INF = float("nan"), float("inf")
TEXT = as_corpus([tiny_text(600)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("number", [None, "-Infinity", "NaN", "-1.5", True, 0.5, [], {}])
def test_what_is_no_log_probability_in_a_servers_answer_is_refused(protocol: str, number: Any) -> None:
    entries = {
        "echo": {"logprobs": {"token_logprobs": [None, -0.5, number]}},
        "prompt_logprobs": {"prompt_logprobs": [None, {"8": {"logprob": -0.5}}, {"9": {"logprob": number}}]},
    }
    with pytest.raises(Refused, match="token 2 of 3"):
        log_probs(protocol, {"choices": [entries[protocol]]}, [7, 8, 9])


OTHER_ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fewer": ("echo", {"logprobs": {"token_logprobs": [None, -0.5]}}),
    "none of the first token": (
        "prompt_logprobs",
        {"prompt_logprobs": [{"8": {"logprob": -0.5}}, {"9": {"logprob": -0.5}}]},
    ),
    "late by one": ("prompt_logprobs", {"prompt_logprobs": [None, None, {"8": {"logprob": -0.5}}]}),
    "of the sampled token": (
        "prompt_logprobs",
        {"prompt_logprobs": [None, {"8": {"logprob": -0.5}}, {"5": {"logprob": -0.5}}]},
    ),
}


@pytest.mark.parametrize("case", OTHER_ENTRIES)
def test_an_answer_with_other_entries_than_tokens_is_refused(case: str) -> None:
    protocol, choice = OTHER_ENTRIES[case]
    with pytest.raises(Refused, match="entries"):
        log_probs(protocol, {"choices": [choice]}, [7, 8, 9])


@pytest.mark.parametrize("number", [None, "none", []])
def test_a_distribution_without_numbers_is_refused(number: Any) -> None:
    with pytest.raises(Refused):
        distribution({"choices": [{"logprobs": {"top_logprobs": [{"token_id:3": number}]}}]})


class Failing(Stub):
    """A server whose model computes `number` for the last token, once it was probed."""

    number: Any = None

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        status, found = super().answer(method, path, body)
        if self.number is not None and path == "/v1/completions":
            [choice] = found["choices"]
            if body.get("prompt_logprobs") == 0:
                choice["prompt_logprobs"][-1][str(body["prompt"][-1])]["logprob"] = self.number
            else:
                [top] = choice["logprobs"]["top_logprobs"]
                top[next(iter(top))] = self.number
        return status, found


@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_what_a_server_computes_wrong_is_named_with_its_place(number: float) -> None:
    ids = np.arange(1, 12)
    with serving(Failing(in_memory())) as stub:
        endpoint = Endpoint(stub.url, tokenizer=tiny_tokenizer())
        stub.number = number
        for path in (ReadingPath(), ReadingPath(decode=3)):
            endpoint.path = path
            # Above 0 it is refused as no log-probability, by whoever reads it first.
            with pytest.raises(LengthwiseError) as caught:
                token_losses(endpoint, [ids[:10]], [ids[8:11]])
            if isinstance(caught.value, NonFiniteLogits):
                assert caught.value.view == 0
                assert caught.value.position in (7, 8, 9)
        with pytest.raises(LengthwiseError):
            run(Misalignment(lengths=(16,), windows=1, estimator="paper"), endpoint, TEXT)


class WithoutUnknown:
    """A tokenizer that knows no word but one."""

    is_fast, bos_token_id, chat_template, name_or_path = True, None, None, "few-words"

    def __call__(self, text: Any, **_: Any) -> Any:
        def ids(one: str) -> list[int | None]:
            return [3 if word == "king" else None for word in one.split()]

        found = [ids(one) for one in text] if isinstance(text, list) else ids(text)
        offsets = [] if isinstance(text, list) else [(0, 1)] * len(found)
        return Answer(input_ids=found, offset_mapping=offsets)

    def get_vocab(self) -> dict[str, int]:
        return {"king": 3}

    def decode(self, ids: Any, **_: Any) -> str:
        return " ".join("king" for _ in ids)


class Answer(dict[str, Any]):
    """As transformers' `BatchEncoding`."""

    @property
    def input_ids(self) -> Any:
        return self["input_ids"]


@pytest.mark.parametrize("verb", ["text", "longppl", "eval"])
def test_a_tokenizer_that_has_no_id_is_named(verb: str) -> None:
    tokenizer: Any = WithoutUnknown()
    assert [list(each.ids) for each in tokenize(["king king"], tokenizer)] == [[3, 3]]
    with pytest.raises(UsageError, match="few-words has no id"):
        if verb == "text":
            tokenize(["king king", "king queen"], tokenizer)
        elif verb == "longppl":
            _encode(SimpleNamespace(tokenizer=tokenizer, name="m"), "king queen")  # type: ignore[arg-type]
        else:
            settings = Evaluation(tasks=("needle_multi_key",), lengths=(512,), samples=1)
            TASKS["needle_multi_key"].items(settings, tokenizer, TEXT)


@pytest.mark.parametrize("key", ["rows", "provenance", "config"])
@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_results_with_what_is_no_number_in_json_are_refused(key: str, number: float, tmp_path: Path) -> None:
    row = Row(model="m", task="perplexity", metric="loss", value=1.0)
    plain = json.loads(Results(kind="ppl", model_name="m", config={}, rows=[row]).to_json())
    if key == "rows":
        plain["rows"][0]["depth"] = number
    else:
        plain[key]["x"] = number
    (tmp_path / "results.json").write_text(json.dumps(plain))
    with pytest.raises(UsageError, match=r"results\.json: it holds -?(NaN|Infinity)"):
        read_results(tmp_path)


def test_predictions_that_are_no_numbers_are_not_kept() -> None:
    model = in_memory()
    text = tokenize(TEXT, model.tokenizer, cache=False)
    with torch.no_grad():
        model.model.get_input_embeddings().weight[text[0].ids[0]] = math.nan
    with pytest.raises(NonFiniteLogits):
        run(KeptPredictions(lengths=(64,), windows=4), model, text)
