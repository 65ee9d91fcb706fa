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
        parts.append(_section(f"lengthwise {name}", name))
        if name == "compare":
            parts.append(_section("lengthwise compare CHECKPOINT URL", name, "http://"))
    return "\n".join(parts)


def _section(heading: str, *words: str) -> str:
    app = command_line(words)
    text = app.generate_docs().partition(f"\n## lengthwise {words[0]}\n")[2].partition("\n## ")[0]
    examples = "\n".join(line.strip() for line in app[words[0]].help_epilogue.splitlines()[1:])
    return f"## `{heading}`\n{text}\n```bash\n{examples}\n```\n"
