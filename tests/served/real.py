"""One real server against its checkpoint: vLLM on this machine's CPU. `make served` runs this.

Starts vLLM on the loopback with SmolLM2-135M in fp32, measures `ppl` and Eq. 2 over HTTP, compares the server with
the checkpoint, and stops it by its process id; then the same comparison with a server that was told to use YaRN x2,
which must be found. Run folders and `summary.json` go to --out.

    python tests/served/real.py --vllm .venv-served/bin/vllm --out runs/served
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "smollm2-135m"
YARN = {
    "max_position_embeddings": 16384,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 100000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 8192,
    },
}
SMALLEST_FOUND = 0.05
"""Nats per token that YaRN must be apart on average; fp32 rounding is a thousandth of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--plain", help="URL of a server that runs already, plain")
    parser.add_argument("--yarn", help="URL of a server that runs already, with YaRN x2")
    given = parser.parse_args()
    compare = ["compare", NAME, "{url}", "--length", str(given.length // 4), "--length", str(given.length)]
    common = ["--limit", str(given.windows), "--overwrite"]
    with server(given, {}, given.plain) as url:
        verb(given.out / "plain", [*compare, *common, "--fail-above", "0.001"], url)
        verb(given.out / "ppl", ["ppl", "{url}", "--tokenizer", NAME, "--length", "512", *common], url)
        paper = ["measure", "{url}", "--tokenizer", NAME, "--estimator", "paper", "--length", "512"]
        verb(given.out / "paper", [*paper, *common], url)
    with server(given, YARN, given.yarn) as url:
        verb(given.out / "yarn", [*compare, *common], url)
    summary = {name: headline(given.out / name) for name in ("plain", "ppl", "paper", "yarn")}
    found = summary["yarn"][f"difference@{given.length}"]
    (given.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))
    if found < SMALLEST_FOUND:
        sys.exit(f"YaRN x2 was not found: {found} nats per token")


@contextmanager
def server(given: argparse.Namespace, overrides: dict[str, Any], running: str | None) -> Iterator[str]:
    """The URL of a server, started here and stopped by its process id unless one is `running`."""
    if running:
        yield running
        return
    from lengthwise.models.resolve import resolve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(given.vllm.resolve(), "serve", resolve(NAME).location, "--served-model-name", NAME),
        *("--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--enforce-eager"),
        # The last label and one generated token come on top of the context.
        *("--max-model-len", given.length + 2, "--max-logprobs", -1, "--max-num-seqs", 8),
        *(["--hf-overrides", json.dumps(overrides)] if overrides else []),
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    # The first request compiles, which on a busy machine takes longer than the engine waits by default.
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with (given.out / f"server-{'overridden' if overrides else 'plain'}.log").open("w") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=os.environ | settings,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}/v1"
            wait_for(f"{url}/models", process)
            yield url
        finally:
            # Its engine and workers are in its own session.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=120)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return as soon as the server answers; it loads the weights first."""
    for _ in range(1800):
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}; its log is in the --out folder")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    sys.exit("the server did not start within half an hour")


def verb(out: Path, words: list[str], url: str) -> None:
    """One command of lengthwise, its numbers in `out`."""
    words = [word.format(url=url) for word in words]
    print("$ lengthwise", *words, "--out", out, flush=True)
    subprocess.run([sys.executable, "-m", "lengthwise", *words, "--out", str(out)], check=True)


def headline(run: Path) -> dict[str, float]:
    """METRIC@LENGTH -> value of a run, and what it took in seconds."""
    results = json.loads((run / "results.json").read_text())
    rows = [row for row in results["rows"] if "position" not in row and "context_other" not in row]
    found = {f"{row['metric']}@{row['length']}": row["value"] for row in rows}
    return found | {"seconds": results["provenance"]["seconds"]}


if __name__ == "__main__":
    main()
