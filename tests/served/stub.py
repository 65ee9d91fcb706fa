"""A server on the loopback that answers as servers do, with a tiny real model behind it, and fails as they do."""

import copy
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from lengthwise.subjects import LoadedModel

NAME = "tiny"
LIMIT = 512
BLOCK = 16


class Stub:
    """What the server does.

    Args:
        model: that it serves.
        shape: "vllm", "echo" (echo and logprobs alone), "none" (llama.cpp: neither).
        failures: statuses of the next completions, 0 for a cut connection.
        tokenizer: the server's, if it is another.
        most_logprobs: entries of a whole distribution, if fewer than V.
        mixes_prompts: its prefix cache returns the first block of another prompt, except for a salted request.
        reads: ids of a prompt -> the ids that it reads in their place, as many.
        predicts: log p of all tokens [T, V] -> what it takes for them.
        says: body of a completion, its ids and its answer -> the answer that it sends, or (status, answer).
    """

    def __init__(
        self,
        model: LoadedModel,
        shape: str = "vllm",
        *,
        failures: tuple[int, ...] = (),
        tokenizer: Any = None,
        most_logprobs: int | None = None,
        mixes_prompts: bool = False,
        reads: Callable[[list[int]], list[int]] = lambda ids: ids,
        predicts: Callable[[torch.Tensor], torch.Tensor] = lambda log_p: log_p,
        says: Callable[[Any, list[int], Any], Any] = lambda body, ids, answer: answer,
    ) -> None:
        # Its own: a request that the client no longer waits for may run on while a test runs the same model.
        self.network, self.shape = copy.deepcopy(model.model), shape
        self.tokenizer = tokenizer or model.tokenizer
        self.failures = list(failures)
        self.most_logprobs = most_logprobs
        self.mixes_prompts = mixes_prompts
        self.reads, self.predicts, self.says = reads, predicts, says
        self.blocks: list[list[int]] = []
        self.seen: Counter[str] = Counter()
        self.keys: set[str | None] = set()
        self.headers: dict[str, str] = {}
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of one request; status 0 cuts the connection, after what a function of it sends."""
        self.seen[path] += 1
        vllm = self.shape not in ("echo", "none")
        if path == "/v1/models":
            owner = {"none": "llamacpp", "echo": "sglang"}.get(self.shape, "vllm")
            return 200, {"data": [{"id": NAME, "owned_by": owner, "max_model_len": LIMIT}]}
        if path == "/version" and vllm:
            return 200, {"version": "0"}
        if path == "/tokenize" and vllm:
            return 200, {"tokens": self.tokenizer(body["prompt"], add_special_tokens=False).input_ids}
        if path != "/v1/completions":
            return 404, {"detail": "Not Found"}
        if self.failures:
            return self.failures.pop(0), {"error": {"message": f"busy, {body['model']}"}}
        prompt = body["prompt"]
        ids = self.tokenizer(prompt).input_ids if isinstance(prompt, str) else prompt
        status, answer = self._completed(body, ids)
        said = self.says(body, ids, answer) if status == 200 else answer
        return said if isinstance(said, tuple) else (status, said)

    def _completed(self, body: dict[str, Any], ids: list[int]) -> tuple[int, Any]:
        if len(ids) + body["max_tokens"] > LIMIT:
            return 400, {"error": {"message": f"maximum context length is {LIMIT} tokens"}}
        if self.mixes_prompts and "allowed_token_ids" in body and "cache_salt" not in body:
            self.blocks.append(ids[:BLOCK])
            ids = [*next((block for block in self.blocks if block != ids[:BLOCK]), ids[:BLOCK]), *ids[BLOCK:]]
        with torch.no_grad():
            log_p = self.network(torch.tensor([self.reads(ids)])).logits[0].double().log_softmax(-1)
        log_p = self.predicts(log_p)
        own = [log_p[place, token].item() for place, token in enumerate(ids[1:])]
        choice: dict[str, Any] = {"text": "", "logprobs": None}
        if body.get("prompt_logprobs") == 0 and self.shape not in ("echo", "none"):
            entries: list[Any] = [None]
            entries += [
                {str(t): {"logprob": v, "rank": 1}, "7": {"logprob": -9.0}}
                if t != 7
                else {"7": {"logprob": v}}
                for t, v in zip(ids[1:], own, strict=True)
            ]
            choice["prompt_logprobs"] = entries
        if body.get("echo") and self.shape == "echo":
            choice["logprobs"] = {"token_logprobs": [None, *own, -1.0]}
            choice["text"] = self.tokenizer.decode(ids)
        if body.get("logprobs") == -1:
            if self.most_logprobs is None and self.shape == "echo":
                return 400, {"error": {"message": "logprobs must be at least 0"}}
            best = log_p[-1].topk(self.most_logprobs or log_p.shape[1])
            named = {
                f"token_id:{t}": v for t, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            }
            choice["logprobs"] = {"top_logprobs": [named]}
        if forced := body.get("allowed_token_ids"):
            named = {f"token_id:{token}": log_p[-1, token].item() for token in forced}
            choice["logprobs"] = {"top_logprobs": [named]} if self.shape == "vllm" else None
        if body["max_tokens"] > 1:
            choice["text"] = self._written(ids, body)
        return 200, {"model": body["model"], "choices": [choice], "usage": {"prompt_tokens": len(ids)}}

    def _written(self, ids: list[int], body: dict[str, Any]) -> str:
        start, stops = len(ids), {self.tokenizer.eos_token_id, *body.get("stop_token_ids", ())}
        for _ in range(body["max_tokens"]):
            with torch.no_grad():
                token = int(self.network(torch.tensor([ids])).logits[0, -1].argmax())
            if token in stops:
                break
            ids = [*ids, token]
        return self.tokenizer.decode(ids[start:], skip_special_tokens=True)


@contextmanager
def serving(stub: Stub) -> Iterator[Stub]:
    """The stub on a free port of the loopback, its `url` set."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            stub.keys.add(self.headers.get("Authorization"))
            stub.headers |= self.headers.items()
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            status, answer = stub.answer(self.command, self.path, body)
            if status == 0:
                if callable(answer):
                    answer(self.connection)
                self.close_connection = True
                return
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that has gone is no error of the server."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
