"""Ways in which servers differ from the stub, as keywords of it that are made for one server each."""

import math
import random
import threading
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import torch

from lengthwise.testing import tiny_llama, tiny_tokenizer

Says = Callable[[Any, list[int], Any], Any]
Made = Callable[[], dict[str, Any]]


def says(change: Says) -> Made:
    return lambda: {"says": change}


def listed(change: Callable[[list[Any], list[int]], list[Any]]) -> Made:
    """A server of echo with another list of numbers: of all tokens of the prompt and of one more."""

    def changed(body: Any, ids: list[int], answer: Any) -> Any:
        found = answer["choices"][0]["logprobs"]
        if found and "token_logprobs" in found:
            found["token_logprobs"] = change(found["token_logprobs"], ids)
        return answer

    return says(changed)


def numbers(change: Callable[[float], Any]) -> Made:
    return listed(lambda values, _: [None, *map(change, values[1:])])


def as_bfloat16(value: float) -> float:
    return torch.tensor(value).bfloat16().item()


def replied(choice: Callable[[list[int], str], Any], **usage: Any) -> Made:
    """Another reply, and other counts, from the prompt and the own reply."""

    def changed(body: Any, ids: list[int], answer: Any) -> Any:
        if body["max_tokens"] == 1:
            return answer
        return {"choices": [choice(ids, answer["choices"][0]["text"])], "usage": usage}

    return says(changed)


def bare(change: Made) -> Made:
    """The same from a server that counts nothing."""

    def made() -> dict[str, Any]:
        how = change()
        own = how.get("says", lambda body, ids, answer: answer)

        def uncounted(body: Any, ids: list[int], answer: Any) -> Any:
            answer = own(body, ids, answer)
            if isinstance(body["prompt"], list) and isinstance(answer, dict):
                answer.pop("usage", None)
            return answer

        return how | {"says": uncounted}

    return made


def raw(status: str, *lines: str, data: bytes = b"") -> tuple[int, Any]:
    """An answer of these lines and bytes."""
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(data)}", "", ""])
    return 0, lambda connection: connection.sendall(head.encode() + data)


def counted(change: Callable[[list[int]], int]) -> Made:
    return says(lambda body, ids, answer: answer | {"usage": {"prompt_tokens": change(ids)}})


class PerThread:
    """Hands the ids of a request on to what is predicted of them."""

    def __init__(self, reads: Any, predicts: Any) -> None:
        self._own, self._reads, self._predicts = threading.local(), reads, predicts

    def reads(self, ids: list[int]) -> list[int]:
        self._own.ids = ids
        return self._reads(ids)

    def predicts(self, log_p: torch.Tensor) -> torch.Tensor:
        return self._predicts(log_p, self._own.ids)


def reading(reads: Any, predicts: Any) -> Made:
    def made() -> dict[str, Any]:
        one = PerThread(reads, predicts)
        return {"reads": one.reads, "predicts": one.predicts}

    return made


BOS = tiny_tokenizer(bos_token="<s>").bos_token_id
adds_bos = reading(lambda ids: [BOS, *ids], lambda log_p, ids: log_p[1:])
drops_bos = reading(
    lambda ids: [*ids[1:], ids[-1]] if ids[0] == BOS else ids,
    lambda log_p, ids: torch.cat([log_p[:1], log_p[:-1]]) if ids[0] == BOS else log_p,
)
NEVER = tiny_tokenizer().convert_tokens_to_ids(",")


def never_says(log_p: torch.Tensor) -> torch.Tensor:
    """A token that long prompts of the proof have, and neither the short one nor a text, has no probability."""
    return log_p.index_fill(-1, torch.tensor(NEVER), -math.inf)


one_row_before = reading(lambda ids: ids, lambda log_p, ids: torch.cat([log_p[:1], log_p[:-1]]))


def at(when: Callable[[int], bool], change: Says) -> Made:
    """The answers to some requests are changed: to the first where `when(1)`, and so on."""

    def made() -> dict[str, Any]:
        asked = count(1)
        return says(lambda body, ids, own: change(body, ids, own) if when(next(asked)) else own)()

    return made


def now_and_then(answer: Any) -> Made:
    """Every sixth request gets this answer, and its own when it comes again."""
    return at(lambda number: number % 6 == 3, lambda *_: answer)


@cache
def _other_model() -> Any:
    return tiny_llama(seed=5)


def other_weights(body: Any, ids: list[int], answer: Any) -> Any:
    """The prompt's numbers are those of another model."""
    if not (answer["choices"][0]["logprobs"] or {}).get("token_logprobs"):
        return answer
    with torch.no_grad():
        log_p = _other_model()(torch.tensor([ids])).logits[0].log_softmax(-1)
    own = [log_p[place, token].item() for place, token in enumerate(ids[1:])]
    answer["choices"][0]["logprobs"] = {"token_logprobs": [None, *own, -1.0]}
    return answer


def later(first: int) -> Made:
    """The probabilities of all tokens are those of others after `first` requests."""

    def made() -> dict[str, Any]:
        asked = count()
        return {"predicts": lambda log_p: log_p.flip(-1) if next(asked) >= first else log_p}

    return made


def swapping() -> dict[str, Any]:
    """Of two prompts of a length that are under way at once, each gets the numbers of the other."""
    changes, waiting = threading.Condition(), dict[int, list[Any]]()

    def changed(body: Any, ids: list[int], answer: Any) -> Any:
        with changes:
            pair = waiting.setdefault(len(ids), [])
            pair.append(answer)
            if len(pair) == 2:
                del waiting[len(ids)]
                changes.notify_all()
            # A busy machine may take this long between two requests that are sent at once.
            elif not changes.wait_for(lambda: len(pair) == 2, timeout=0.3):
                del waiting[len(ids)]
                return answer
        return pair[0] if pair[1] is answer else pair[1]

    return {"says": changed}


def cached() -> dict[str, Any]:
    """Blocks of 16 tokens that were read before have the number 0."""
    known = set[tuple[int, ...]]()

    def change(values: list[Any], ids: list[int]) -> list[Any]:
        held = 0
        while held + 16 < len(ids) and tuple(ids[: held + 16]) in known:
            held += 16
        known.update(tuple(ids[:end]) for end in range(16, len(ids) + 1, 16))
        return [None, *([0.0] * held + values[1 + held :])][: len(values)]

    return listed(change)()


def penalised(body: Any, ids: list[int], answer: Any) -> Any:
    """A repetition penalty of its own, in prompts' numbers and in replies, unless the request has one."""
    if "repetition_penalty" in body:
        return answer
    choice = answer["choices"][0]
    if choice["logprobs"]:
        own = choice["logprobs"]["token_logprobs"]
        own[1:-1] = [
            v * (1.3 if t in ids[:p] else 1.0)
            for p, (t, v) in enumerate(zip(ids[1:], own[1:-1], strict=True), 1)
        ]
    choice["text"] = "penalised" if body["max_tokens"] > 1 else choice["text"]
    return answer


def strict(body: Any, ids: list[int], answer: Any) -> Any:
    """As OpenAI's own API: a field that it does not have is refused by its name."""
    problem = {"message": "Unrecognized request argument supplied: repetition_penalty", "code": 400}
    return (400, {"error": problem}) if "repetition_penalty" in body else answer


def repeats_requests(body: Any, ids: list[int], answer: Any) -> Any:
    """`penalised`, and an error repeats the request, whatever it is about."""
    if "prompt_logprobs" in body:
        return 400, {"error": {"message": f"no prompt_logprobs in {body}"}}
    return penalised(body, ids, answer)


def retokenized(body: Any, ids: list[int], answer: Any) -> Any:
    """The prompt's eleventh and twelfth token became one."""
    found = answer["choices"][0]["logprobs"]
    if len(ids) > 12 and found and "token_logprobs" in found:
        own = found["token_logprobs"]
        found["token_logprobs"] = [*own[:10], own[10] + own[11], *own[12:]]
    return answer | {"usage": {"prompt_tokens": len(ids) - (len(ids) > 12)}}


def shifted() -> Any:
    """The tokenizer with one token more in front, so that all ids are others and as many."""
    tokenizer = tiny_tokenizer()

    class Shifted:
        eos_token_id = tokenizer.eos_token_id

        def __call__(self, text: str, **how: Any) -> Any:
            found = tokenizer(text, **how)
            found["input_ids"] = [each + 1 for each in found.input_ids]
            return found

        def decode(self, ids: Any, **how: Any) -> str:
            return tokenizer.decode([max(0, each - 1) for each in ids], **how)

    return Shifted()


def with_a_token(token: str) -> Any:
    """The tokenizer with one token more."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([token])
    return tokenizer


def stands(value: Any) -> Made:
    """This stands for what is unlikely."""
    return numbers(lambda each: each if each > -6 else value)


def token_by_token(body: Any, ids: list[int], answer: Any) -> Any:
    """A prompt is repeated one token after the other, so that letters of several tokens are lost."""
    if body.get("echo"):
        answer["choices"][0]["text"] = "".join(tiny_tokenizer().decode([each]) for each in ids)
    return answer


def remembered(key: Callable[[list[int]], Any]) -> dict[str, Any]:
    """A cache of answers: prompts with one key get the numbers of the first of them."""
    known: dict[Any, Any] = {}

    def change(values: list[Any], ids: list[int]) -> list[Any]:
        return known.setdefault(key(ids), values)

    return listed(change)()


_DRAWN = random.Random(0)


def noisy(value: float) -> float:
    """Other numbers each time."""
    return min(0.0, value + _DRAWN.uniform(-0.05, 0.05))


def distributed(change: Callable[[torch.Tensor], torch.Tensor]) -> Made:
    """Another whole distribution of the next token: log p [V] -> [V]."""

    def changed(body: Any, ids: list[int], answer: Any) -> Any:
        if body.get("logprobs") == -1:
            [tops] = answer["choices"][0]["logprobs"]["top_logprobs"]
            own = torch.tensor([tops[f"token_id:{token}"] for token in range(len(tops))])
            tops |= {f"token_id:{token}": value for token, value in enumerate(change(own).tolist())}
        return answer

    return says(changed)


def forced(change: Callable[[float], float]) -> Made:
    """Another number of the one token that is allowed."""

    def changed(body: Any, ids: list[int], answer: Any) -> Any:
        if "allowed_token_ids" in body:
            [tops] = answer["choices"][0]["logprobs"]["top_logprobs"]
            tops |= {name: change(value) for name, value in tops.items()}
        return answer

    return says(changed)
