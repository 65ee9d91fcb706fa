"""The literal table of verbs, and `run`, the entry point."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import lengthwise
from lengthwise.cli import (
    compare,
    cp,
    doctor,
    extend,
    limit,
    longppl,
    longrope_search,
    ls,
    measure,
    merge,
    ppl,
    recall,
    report,
    reproduce,
    train,
)
from lengthwise.cli import eval as eval_verb
from lengthwise.cli.errors import reported
from lengthwise.cli.options import examples

VERBS = {
    "measure": measure,
    "ppl": ppl,
    "recall": recall,
    "limit": limit,
    "longppl": longppl,
    "eval": eval_verb,
    "extend": extend,
    "longrope-search": longrope_search,
    "train": train,
    "merge": merge,
    "compare": compare,
    "report": report,
    "reproduce": reproduce,
    "ls": ls,
    "cp": cp,
    "doctor": doctor,
}


class _Verbs(TyperGroup):
    """Verbs in the table's order, whose errors are reported."""

    def invoke(self, ctx: Any) -> Any:
        with reported(ctx):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        # The ecosystem writes --batch_size as often as --batch-size.
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
    epilog=examples(
        "lengthwise measure smollm2-135m --out runs/before",
        "lengthwise train smollm2-lora --out runs/lora",
        "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
        "lengthwise report runs/before runs/after runs/lora --out compare.html",
    ),
)
for _name, _module in VERBS.items():
    app.command(_name, epilog=_module.EXAMPLES)(getattr(_module, _name.replace("-", "_")))
# The name of earlier versions for the synthetic studies.
app.command("synth", hidden=True, epilog=reproduce.EXAMPLES)(reproduce.reproduce)


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
    app()
