"""Every verb that measures, in small: its options besides the model and the text. And what a refusal looks like."""

from typing import Any

SIZES = ("--lengths", 16, "--lengths", 32, "--windows", 4)
VERBS: dict[str, tuple[Any, ...]] = {
    "measure": SIZES,
    "ppl": SIZES,
    "limit": ("--max-length", 256, "--reference", 32, "--windows", 4),
    "longppl": ("--max-length", 96, "--short", 32, "--stride", 32, "--windows", 4),
}


def refused(outcome: Any, code: int = 2, *expected: str) -> str:
    """The message of an error: in a few lines on standard error, nothing on standard output, no traceback."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    message = "\n".join(line for line in outcome.err.splitlines() if "%|" not in line)
    assert "Traceback" not in message
    assert "weights_only" not in message
    for part in expected:
        assert part in message
    return message
