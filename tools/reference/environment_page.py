"""Exit codes, with the errors that carry them, and the environment variables that the code reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lengthwise import errors
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
    "MASTER_ADDR": "Set by torchrun: the machine that the processes meet at.",
    "MASTER_PORT": "Set by torchrun: its port. A part of these four, without the others, is refused.",
    "LOCAL_RANK": "Set by torchrun: the number of this process on its machine, which is that of its device.",
}
"""What lengthwise itself reads. `page` fails where the code reads others."""


def page() -> str:
    """The page, in Markdown."""
    read = set(_read())
    assert read == set(VARIABLES), (
        f"variables that the page and the code do not share: {read ^ set(VARIABLES)}"
    )
    codes = [(str(each), plain(meaning), _errors(each)) for each, meaning in errors.EXIT_CODES.items()]
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


def _errors(exit_code: int) -> str:
    """The errors with which the command ends so."""
    if exit_code == errors.TERMINATED:
        return code(errors.Interrupted.__name__)
    kinds = [errors.LengthwiseError, *errors.LengthwiseError.__subclasses__()]
    own = (kind for kind in kinds if kind.__module__ == errors.__name__ and kind.exit_code == exit_code)
    return ", ".join(code(kind.__name__) for kind in own)


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
