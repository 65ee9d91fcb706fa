"""Every verb of the command line, as cyclopts describes it, with its examples."""

from __future__ import annotations

from lengthwise.cli.main import VERBS, command_line, summary
from tools.reference.words import plain, table

_INTRODUCTION = """\
# Command line

One section for each verb, with what `lengthwise VERB --help` shows. Results go to standard output, progress and
errors to standard error. Options can be written with `-` or `_`. Exit codes and environment variables have
[their own page](environment.md).
"""


def page() -> str:
    """The page, in Markdown."""
    summaries = ((f"[`{name}`](#lengthwise-{name})", plain(summary(name))) for name in VERBS)
    parts = [_INTRODUCTION, table(["verb", "what it does"], summaries)]
    for name in VERBS:
        parts.append(_section(name))
    return "\n".join(parts)


def _section(name: str) -> str:
    app = command_line([name])
    text = app.generate_docs().partition(f"\n## lengthwise {name}\n")[2].partition("\n## ")[0]
    examples = "\n".join(line.strip() for line in app[name].help_epilogue.splitlines()[1:])
    return f"## `lengthwise {name}`\n{text}\n```bash\n{examples}\n```\n"
