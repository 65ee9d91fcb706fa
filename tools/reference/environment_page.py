"""Exit codes, from the errors that carry them, and the environment variables that the code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lengthwise import errors
from lengthwise.cli.main import TERMINATED
from lengthwise.cli.output import THRESHOLD_CROSSED
from tools.reference.declared import SOURCE
from tools.reference.words import code, plain, table

_INTRODUCTION = """\
# Exit codes and environment variables

## Exit codes

A bug keeps its traceback and exits with 1. In Python the same errors are exceptions; `lengthwise.errors` has them.
"""
VARIABLES = {
    "LENGTHWISE_CACHE": "Folder for converted models and tokens. Default: `$XDG_CACHE_HOME/lengthwise`, else "
    "`~/.cache/lengthwise`.",
    "XDG_CACHE_HOME": "The folder above `lengthwise` where `LENGTHWISE_CACHE` is not set.",
    "LENGTHWISE_API_KEY": "Key for an endpoint. It is sent as the bearer token and never recorded.",
    "OPENAI_API_KEY": "The same, where `LENGTHWISE_API_KEY` is not set.",
    "WORLD_SIZE": "Set by torchrun: the number of processes.",
    "RANK": "Set by torchrun: the number of this process, from 0. Process 0 writes the run folder and reports.",
    "LOCAL_RANK": "Set by torchrun: the number of this process on its machine, which is that of its device.",
}
"""What lengthwise itself reads. `page` fails where the code reads others."""


def page() -> str:
    """The page, in Markdown."""
    read = set(_read())
    assert read == set(VARIABLES), (
        f"variables that the page and the code do not share: {read ^ set(VARIABLES)}"
    )
    codes = [("0", "Done.", "")]
    codes += [(str(kind.exit_code), _meaning(kind), code(kind.__name__)) for kind in _kinds()]
    crossed = "A measured value crossed the threshold given with `--fail-above`."
    codes.insert(-1, (str(THRESHOLD_CROSSED), crossed, ""))
    codes.append((str(TERMINATED), "Stopped with SIGTERM; finished samples are kept.", code("Interrupted")))
    return "\n".join(
        [
            _INTRODUCTION,
            table(["code", "meaning", "error"], codes),
            "## Environment variables\n",
            "lengthwise reads these. The libraries under it read their own, such as `HF_HOME` and "
            "`CUDA_VISIBLE_DEVICES`.\n",
            table(["variable", "meaning"], ((code(name), what) for name, what in VARIABLES.items())),
        ]
    )


def _kinds() -> list[type[errors.LengthwiseError]]:
    kinds = [errors.LengthwiseError, *errors.LengthwiseError.__subclasses__()]
    return sorted(
        (kind for kind in kinds if kind.__module__ == errors.__name__), key=lambda kind: kind.exit_code
    )


def _meaning(kind: type[errors.LengthwiseError]) -> str:
    first = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
    return plain(
        re.sub(r" \(exit code \d+\)", "", first)
        .replace(" or SIGTERM (143)", "")
        .replace("(exit code 130)", "")
    )


def _read() -> Iterator[str]:
    """Names of the variables that a module gets, written in the call or in a tuple of the module."""
    for path in (SOURCE / "lengthwise").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "os.environ" not in text:
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
                yield from _strings(node.args[0])
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                yield from _strings(*node.value.elts)


def _strings(*nodes: ast.expr) -> Iterator[str]:
    """The texts in capitals among them."""
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return (value for value in values if isinstance(value, str) and value.isupper())
