"""The literal table of verbs, and `run`, the entry point."""

from __future__ import annotations

import importlib
import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import lengthwise
from lengthwise.cli.exit_codes import reported, treat_sigterm_as_interrupt
from lengthwise.cli.options import examples
from lengthwise.cli.verbs import command, epilog
from lengthwise.files import is_url
from lengthwise.measure.table import MEASUREMENTS

# Verbs that measure (`served` is `compare` with an endpoint), and those with a module of their own
# (lengthwise.cli.NAME, with a function NAME).
VERBS = (
    *(name for name in MEASUREMENTS if name != "served"), "extend", "longrope-search", "train", "merge", "compare",
    "report", "reproduce", "ls", "cp", "doctor",
)  # fmt: skip
# The name of earlier versions for the synthetic studies: not listed.
ALIASES = {"synth": "reproduce"}


class _Verbs(TyperGroup):
    """Verbs in the table's order, made when they are used, whose errors are reported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The names alone, which Typer compares a mistyped verb with.
        self.commands = dict.fromkeys(VERBS)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = ALIASES.get(cmd_name, cmd_name)
        return _verb(name) if name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, _summary(name)) for name in VERBS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # `compare` with an endpoint measures; with run folders it reads them. Each has its own options.
        if args[0] == "compare" and any(is_url(word) for word in args[1:]):
            return "compare", _verb("served"), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with reported(ctx):
            return super().invoke(ctx)


def _verb(name: str) -> Any:
    """The click command of a verb."""
    own = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=_CONTEXT)
    if name in MEASUREMENTS:
        entry = MEASUREMENTS[name]
        own.command(name, epilog=epilog(entry), short_help=entry.summary)(command(entry))
    else:
        module = _module(name)
        own.command(name, epilog=module.EXAMPLES)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(own)


def _summary(name: str) -> str:
    if name in MEASUREMENTS:
        return MEASUREMENTS[name].summary
    doc = getattr(_module(name), name.replace("-", "_")).__doc__
    return doc.strip().partition("\n")[0]


def _module(name: str) -> Any:
    return importlib.import_module(f"lengthwise.cli.{name.replace('-', '_')}")


_CONTEXT = {
    "help_option_names": ["-h", "--help"],
    # The ecosystem writes --batch_size as often as --batch-size.
    "token_normalize_func": lambda token: token.replace("_", "-"),
}
app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
    epilog=examples(
        "lengthwise measure smollm2-135m --out runs/before",
        "lengthwise train smollm2-lora --out runs/lora",
        "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
        "lengthwise report runs/before runs/after runs/lora --out compare.html",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lengthwise {lengthwise.__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Do a language model's predictions hold as its context grows? Measure it, train for it."""


def run() -> None:
    """The `lengthwise` command."""
    # It remarks on a kernel for 4-bit weights whenever it is imported, also where there are none.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    treat_sigterm_as_interrupt()
    app()
