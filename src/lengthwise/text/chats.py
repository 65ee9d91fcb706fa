"""Chats: the messages of a row as JSON, and as the text that a tokenizer's template makes of them."""

from __future__ import annotations

import json
import logging
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from lengthwise.errors import UsageError, reason

logger = logging.getLogger(__name__)

_DATE = datetime(2024, 7, 26)
"""What Llama 3's template writes where it cannot ask for the date."""
_DATED = (
    "{% macro strftime_now(format) %}{% set made = namespace(text=format) %}{% for code, value in ["
    + "".join(f"({code!r}, {_DATE.strftime(code)!r})," for code in map("%{}".format, "aAwdbBmyYHIMSpjUWcxX"))
    + "] %}{% set made.text = made.text.replace(code, value) %}{% endfor %}{{ made.text }}{% endmacro %}"
)
"""Before a chat template: gives it this date in place of today's."""


def has_content(message: dict[str, Any]) -> bool:
    """Whether a message has text, or what a template may make one of: parts, an object, calls of tools."""
    content = message.get("content")
    return isinstance(content, str) or bool(
        message.get("tool_calls") if content is None else content and isinstance(content, list | dict)
    )


def chat_json(messages: list[Any]) -> str:
    """The messages as JSON, which their template reads later."""
    return json.dumps(messages, default=_as_json)


def _as_json(value: Any) -> str:
    """What Parquet has and JSON has not, as a date in a message. What Python shows of others may be an address."""
    plain = isinstance(value, date | time | timedelta | Decimal | bytes)
    return str(value) if plain else type(value).__name__


def render_chat(tokenizer: Any, messages: Any, own: str, **options: Any) -> Any:
    """What the tokenizer's chat template makes of the messages of `own`; UsageError if there is none, or it refuses.

    A template that asks for the date gets `_DATE`: otherwise the tokens would be others every day.
    """
    try:
        if "strftime_now" in str(tokenizer.chat_template):
            _say_date()
            options["chat_template"] = _DATED + tokenizer.get_chat_template(tools=options.get("tools"))
        made = tokenizer.apply_chat_template(messages, **options)
        contents = [each["content"] for each in messages if isinstance(each.get("content"), list | dict)]
        if contents:
            plain = options | {"tokenize": False, "return_assistant_tokens_mask": False}
            written = tokenizer.apply_chat_template(messages, **plain)
            # What Python shows of a list or an object has quotes that JSON has not.
            shown = {
                str(part) for each in contents for part in (each, *each) if isinstance(part, list | dict)
            }
            if any("'" in part and part in written for part in shown):
                raise ValueError("the template takes text alone, and a message has parts")
        return made
    # The template is a program of the model's authors.
    except Exception as error:
        raise UsageError(
            f"the messages of {own} do not become a text: {reason(error)}",
            expected="a tokenizer with a chat template that takes these messages",
            fix="use the tokenizer of a chat model, or a column of plain text (--text-field)",
        ) from error


@cache
def _say_date() -> None:
    logger.warning("the chat template writes today's date: it is always %s here", f"{_DATE:%d %B %Y}")
