"""`Endpoint`: a served model as a `Predictor`, proven at the longest length before anything is measured."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.checkpoints.resolve import read_tokenizer
from lengthwise.errors import UsageError, require
from lengthwise.settings import ServerOptions, path_text
from lengthwise.subjects import answers, client, probing
from lengthwise.subjects.reading import Ends, Read, Reading, ReadingPath, Tokens, Want, check_wants
from lengthwise.subjects.rows import Rows, finite_losses
from lengthwise.text import tokenizer_fingerprint


class Endpoint:
    """A model behind an OpenAI-style API. Measurements take it like a loaded model.

    Prompts are token ids. A prompt beyond the server's maximum is refused here, never cut.

    Args:
        url: of the API.
        served_model: the name that the server gives the model; None is the only one that it serves.
        tokenizer: name or folder of the model's tokenizer, or the tokenizer; None is what the server says it loaded.
        server: how it is asked: `ServerOptions(patience=300)`.

    Raises:
        UsageError: several models are served, a server without log-probabilities of prompts, another tokenizer.
        MissingError: no server answers, or there is no tokenizer of that name.
    """

    gives: ClassVar[frozenset[Want]] = frozenset({Want.LOSS, Want.NEXT})
    # A server does not say.
    dtype: str | None = None
    vocab_size: int | None = None
    rope_by_length: str | None = None
    trained_length: int | None = None

    def __init__(
        self,
        url: str,
        *,
        served_model: str | None = None,
        tokenizer: Any = None,
        server: ServerOptions | None = None,
    ) -> None:
        self._client = client.Client(url, server)
        self.name = url
        self.path = ReadingPath()
        self._card = probing.card_of(self._client, served_model)
        self.served_model: str = self._card["id"]
        length = self._card.get("max_model_len")
        self.served_length: int | None = length if isinstance(length, int) and length > 0 else None
        """The server's maximum, prompt and generated token together; None if it does not say."""
        tokenizer = probing.served_tokenizer(self._card) if tokenizer is None else path_text(tokenizer)
        self.tokenizer = read_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        self.protocol = probing.protocol_of(self._client, self._card, self.tokenizer)
        probing.check_tokenizer(self._client, self._card, self.tokenizer)
        self._known, self._apart = probing.steady(self._ask, url, self.tokenizer)
        self._gives_next = False
        self.proven_to = probing.PROBED
        """Tokens of the longest prompt that the server was seen to read whole."""

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest view: its last label and one generated token go to the server too."""
        return None if self.served_length is None else self.served_length - 2

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if the server does not take views of `tokens` tokens, or does not read them whole."""
        self._check_fits(tokens)
        if self.path.decode:
            probing.check_next(partial(self._forced, cold=True), self._known, self._client.url)
        if tokens >= self.proven_to:
            # The last label goes to the server too.
            probing.check_length(self._log_probs, self._client.url, self.tokenizer, tokens + 1)
            self.proven_to = tokens + 1

    def check_unchanged(self) -> None:
        """See `Predictor.check_unchanged`: `_log_probs` looks with every batch."""

    def _check_fits(self, tokens: int) -> None:
        if self.max_positions is not None and tokens > self.max_positions:
            raise UsageError(
                f"{tokens} tokens are needed, but {self.name} serves {self.served_length} in all",
                expected=f"at most {self.max_positions}: the last label and one generated token come on top",
                fix="use a shorter length, or start the server with a greater maximum (vLLM: --max-model-len)",
            )

    def read(self, readings: Sequence[Reading]) -> list[Read]:
        """See `Predictor.read`. One request a text and a branch, several at once; nothing is shared here.

        UsageError if rows are wanted, which no server gives.
        """
        for each in readings:
            check_wants(self, each.want, needs="this was asked of it", fix="load the model instead")
        if any(each.want is Want.NEXT for each in readings):
            require(
                not self.path.decode,
                f"{self.name} gives whole distributions after one pass, and read is decode={self.path.decode}",
                "read=prefill",
            )
            read = [Read(rows=self._next(each.tokens)) for each in readings]
            self._log_probs([])
            return read
        texts, labels = [], []
        for each in readings:
            if len(each.labels):
                texts.append(each.tokens)
                labels.append(each.labels)
            for branch in each.branches:
                texts.append(branch.after(each.tokens))
                labels.append(branch.labels)
        try:
            # Cold first: afterwards the server's cache holds these prompts.
            cold = iter(self._losses_of(texts, labels, cold=True) if self.path.decode else ())
            warm = iter(self._losses_of(texts, labels))
            if self.path.decode:
                self._log_probs([])
        except NonFiniteLogits as error:
            owners = [
                index
                for index, each in enumerate(readings)
                for _ in range(bool(len(each.labels)) + len(each.branches))
            ]
            raise NonFiniteLogits(error.position, view=owners[error.view or 0]) from error
        found = []
        for each in readings:
            read = Read()
            if len(each.labels):
                read.losses, read.cold = next(warm), next(cold, None)
            read.branches = [next(warm) for _ in each.branches]
            for _ in each.branches:
                next(cold, None)
            found.append(read)
        return found

    def again(self, reading: Reading, read: Read, *, dtype: str | None = None) -> list[tuple[Read, Read]]:
        """See `Predictor.again`: the same is asked once more, alone in place of in a batch."""
        return [(read, self.read([reading])[0])]

    def _losses_of(
        self, texts: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]], *, cold: bool = False
    ) -> list[Tensor]:
        """-log p of the labels of each text along the path; `cold` without the server's prefix cache."""
        if not (decoded := self.path.decode):
            return self._scored(texts, labels)
        ends = self._decoded(texts, [each[-decoded:] for each in labels], cold=cold)
        begun = [
            self._scored([text[:-decoded]], [each[:-decoded]])[0] if len(each) > decoded else ()
            for text, each in zip(texts, labels, strict=True)
        ]
        return [torch.cat([torch.as_tensor(one).double(), two]) for one, two in zip(begun, ends, strict=True)]

    def _scored(self, views: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]]) -> list[Tensor]:
        """-log p of the last N labels of each view, from the server's log-probabilities of a prompt."""
        prompts = []
        for view, following in zip(views, labels, strict=True):
            self._check_fits(len(view))
            assert np.array_equal(view[len(view) - len(following) + 1 :], following[:-1])
            prompts.append([int(token) for token in (*view, following[-1])])
        each = zip(self._log_probs(prompts), labels, strict=True)
        return finite_losses(self.name, [values[len(values) - len(own) :] for values, own in each], prompts)

    def _decoded(
        self, views: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]], *, cold: bool
    ) -> list[Tensor]:
        """-log p of the last N labels of each view [T], each as the one token that is generated after its prefix.

        The prefixes of a view grow by a token, so a server with a prefix cache reads all but the newest from it. If
        `cold`, every request has a salt of its own, which keeps vLLM from using its prefix cache.
        """
        values, texts = [], []
        for view, following in zip(views, labels, strict=True):
            self._check_fits(len(view))
            first = len(view) - len(following) + 1
            values.append(
                [
                    self._forced(view[: first + step], int(token), cold=cold)
                    for step, token in enumerate(following)
                ]
            )
            texts.append([*view, following[-1]])
        return finite_losses(self.name, values, texts)

    def _forced(self, prefix: Sequence[int] | NDArray[Any], token: int, *, cold: bool) -> float:
        """log p of a token after a prefix, from a request that allows the server no other token."""
        salt = {"cache_salt": uuid.uuid4().hex} if cold else {}
        fields = {**answers.FORCED, "allowed_token_ids": [token], **salt}
        try:
            # The server reads the prefix from its cache.
            [answer] = self._client.complete(
                self.served_model, [[int(each) for each in prefix]], fields, tokens=1
            )
            return answers.distribution(answer)[token]
        except (answers.Refused, KeyError) as error:
            raise UsageError(
                f"{self.name} gives no log-probability of a token that we choose: {error}",
                expected="a server with allowed_token_ids and logprobs on /v1/completions, such as vLLM",
                fix="compare without read=decode: then prompts are scored",
            ) from error

    def _next(self, view: NDArray[Any]) -> Rows:
        """log p of every token after `view`, fp64; UsageError if the server gives only some of them, or others."""
        self._check_fits(len(view))
        if not self._gives_next:
            probing.check_next(
                lambda ids, token: float(self._after(ids)[0, token]), self._known, self._client.url
            )
            self._gives_next = True
        logits = self._after(view)
        return Rows(lambda rows: logits[rows], 1, logits.shape[1])

    def _after(self, view: Sequence[int] | NDArray[Any]) -> Tensor:
        """The same [1, V]."""
        try:
            [answer] = self._client.complete(
                self.served_model, [[int(token) for token in view]], answers.DISTRIBUTION
            )
            found = answers.distribution(answer)
            values = [found.get(token, math.nan) for token in range(len(found))]
            log_p = torch.tensor([values], dtype=torch.float64)
            if not abs(float(log_p.exp().sum()) - 1) < 1e-2:
                raise answers.Refused(f"{len(found)} entries whose probabilities do not sum to 1")
        except answers.Refused as error:
            raise UsageError(
                f"{self.name} does not give the whole distribution of the next token: {error.problem}",
                expected="log-probabilities of every token of the vocabulary, by token id",
                fix="start vLLM with --max-logprobs -1",
            ) from error
        return log_p

    def write(self, prompts: Sequence[Tokens], *, at_once: int = 1, **ends: Unpack[Ends]) -> list[str]:
        """See `Predictor.write`. The server writes on where `until` is true, and its reply is cut there.

        UsageError for a prompt that leaves no room, or `stop_ids` with a server other than vLLM.
        """
        for prompt in prompts:
            self._check_fits(len(prompt) + ends["new_tokens"] - 2)
        fields: dict[str, Any] = {"max_tokens": ends["new_tokens"], "logprobs": 1}
        stop_ids, at_least, until = ends.get("stop_ids"), ends.get("at_least", 0), ends.get("until")
        if stop_ids or at_least:
            if self.protocol != "prompt_logprobs":
                raise UsageError(
                    f"{self.name} cannot end a reply at a token",
                    expected="a server of vLLM, for tasks whose replies end there",
                    fix="use --mode likelihood, or a task without it",
                )
            fields |= {"stop_token_ids": sorted(stop_ids or ()), "min_tokens": at_least}
        found = self._client.complete(self.served_model, [list(prompt) for prompt in prompts], fields)
        how, texts = {"most": ends["new_tokens"], "at_least": at_least}, []
        for prompt, answer in zip(prompts, found, strict=True):
            before = self.tokenizer.decode(prompt, skip_special_tokens=True)
            try:
                texts.append(answers.written(answer, before, **how))
            except answers.Refused as error:
                raise UsageError(
                    f"{self.name} does not write as it was asked to: {error.problem}",
                    expected="greedy replies, without the prompt, of as many tokens as were asked for",
                    fix="ask the server itself, without filters, limits and sampling of a gateway, or use "
                    "--mode likelihood",
                ) from error
        self._log_probs([])
        return texts if until is None else [answers.cut(self.tokenizer, text, until) for text in texts]

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only."""
        return {
            "name": self.name,
            "source": f"{self.name} {self.served_model}",
            "adapter": None,
            "served_model": self.served_model,
            "served_length": self.served_length,
            "server": self._card.get("owned_by"),
            "server_version": probing.version_of(self._client),
            "served_from": self._card.get("root"),
            "protocol": self.protocol,
            "remarks": self._remarks(),
            "trained_length": None,
            "claimed_length": self.served_length,
            "max_positions": self.max_positions,
            "tokenizer": type(self.tokenizer).__name__,
        }

    def fingerprint(self) -> dict[str, Any]:
        """What can be known of a served model: its name, what it was loaded from, its maximum, what it predicts."""
        return {
            "served name": self.served_model,
            "served weights": str(self._card.get("root")),
            "served length": str(self.served_length),
            "loss of a short prompt": -float(self._known[1].mean()),
            "tokenizer": tokenizer_fingerprint(self.tokenizer),
        }

    def _remarks(self) -> list[str]:
        """What must be said of its numbers."""
        found = []
        if (other := self._client.answers_as.get("model", self.served_model)) != self.served_model:
            found.append(f"the model {other!r} answers where {self.served_model!r} is asked")
        if rounded := probing.rounded_to(self._known[1]):
            found.append(f"log-probabilities come rounded to {rounded}")
        if self._apart > probing.UNLIKE:
            found.append(f"a prompt that is asked again has numbers that are {self._apart:.2g} nats apart")
        return found

    def _log_probs(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """log p of each token of the prompts but the first; UsageError where the server is not what it was.

        A short prompt goes with them, which must give what it gave at first. It goes alone after each batch of other
        requests.
        """
        known, numbers = self._known
        *found, again = self._ask([*prompts, known])
        apart = probing.check_same(self._client.url, numbers, np.array(again, dtype=float))
        self._apart = max(self._apart, apart)
        return found

    def _ask(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        found = self._client.complete(self.served_model, prompts, answers.PROTOCOLS[self.protocol])
        return [answers.log_probs(self.protocol, *each) for each in zip(found, prompts, strict=True)]

    def ids_of(self, text: str) -> list[int]:
        """The ids of its tokenizer, which was seen to be the server's."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)
