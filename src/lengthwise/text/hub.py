"""Data sets of the hub, and local ones in its layout: streamed, a row is a document, up to a budget of tokens."""

from __future__ import annotations

import inspect
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, reason, require_known
from lengthwise.settings import TextOptions
from lengthwise.text.local_files import readable, text_of
from lengthwise.versions import need

CHARACTERS = 4
"""Characters that count as a token of the budget."""
_HUB = re.compile(r"(?P<path>[^:@]*[^:@/]/?)(?::(?P<config>[^@]+))?(?:@(?P<split>.+))?")


def split_in(spec: str) -> str | None:
    """The split that `owner/name@split` names."""
    parts = _HUB.fullmatch(spec)
    return None if parts is None else parts["split"]


def read_data_set(
    spec: str, wanted: str, how: TextOptions
) -> tuple[dict[str, Any], Counter[str], str | None]:
    """The documents of `owner/name[:config][@split]`, what is left out, and the rule of the split if it is its own.

    A split named in the spec is used as given. Otherwise the data set's own held-out split is "test" and its train
    split "train". Of a data set with one split all rows are read, and the rule is None. Reading ends
    after `text_tokens`.
    """
    need("datasets")
    from datasets.exceptions import DatasetGenerationError

    parts = _HUB.fullmatch(spec)
    if parts is None:
        raise UsageError(f"{spec!r} names no data set", expected="hf://owner/name[:config][@split]")
    splits, chosen, where = _opened(parts["path"], parts["config"]), parts["split"], f"hf://{spec}"
    rule = None if chosen is None else f"used as given: split {chosen!r}"
    held_out = next((known for known in ("test", "validation") if known in splits), None)
    if chosen is None and wanted != "all" and held_out is not None and "train" in splits:
        chosen = held_out if wanted == "test" else "train"
        rule = f"the data set's own split {chosen!r}"
    elif chosen is not None:
        require_known(chosen, splits, f"{parts['path']} has no split")
    named = [(each, splits[each]) for each in (splits if chosen is None else [chosen])]
    found: dict[str, Any] = {}
    left_out: Counter[str] = Counter()
    size = 0
    rows = itertools.chain.from_iterable(_rows(each, split, how, where) for each, split in named)
    try:
        for own, value in readable(rows, how, left_out):
            if size >= how.text_tokens * CHARACTERS:
                left_out[f"the rest of the data set, beyond {how.text_tokens:,} tokens (--text-tokens)"] = 1
                break
            found[own] = value
            size += len(str(value))
    except (ValueError, OSError, DatasetGenerationError) as error:
        if isinstance(error, UsageError):
            raise
        problem = f"the data set {spec!r} cannot be read: {reason(error.__cause__ or error)}"
        raise UsageError(problem) from error
    return found, left_out, rule


def _rows(name: str, rows: Iterable[Any], how: TextOptions, where: str) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(rows, start=1):
        value = text_of(row, how.text_field, where=f"{where}, row {number} of {name}")
        if how.text_field not in row:
            # Nor has any other row.
            raise UsageError(value.problem, expected=value.expected, fix="give --text-field")
        yield f"{name}:{number}", value


def _opened(name: str, config: str | None) -> Any:
    """The splits, to be streamed; without a connection those in the local cache, mapped."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    path = Path(name).expanduser()
    source = str(path) if path.is_dir() else name
    # Before datasets 4 it asks on standard input whether to run a data set's own code; later ones never run any.
    asks = "trust_remote_code" in inspect.signature(load_dataset).parameters
    how: dict[str, Any] = {"trust_remote_code": False} if asks else {}
    try:
        try:
            return load_dataset(source, config, streaming=True, **how)
        except (DatasetNotFoundError, ConnectionError):
            if path.is_dir():
                raise
            return load_dataset(source, config, **how)
    except (DatasetNotFoundError, ConnectionError, FileNotFoundError) as error:
        raise MissingError(
            f"the data set {name!r} cannot be loaded: {reason(error)}",
            expected="a data set on the hub, in the local hub cache, or a folder in the hub's layout",
            fix=f"check the name; to fetch it: hf download --repo-type dataset {name}",
        ) from error
    except (ValueError, RuntimeError, OSError, DatasetGenerationError) as error:
        if "trust_remote_code" in str(error) or "scripts are no longer supported" in str(error):
            raise UsageError(
                f"the data set {name!r} brings code of its own, which lengthwise does not run",
                expected="files of text, such as Parquet or JSON",
            ) from error
        # The message of `datasets` is "An error occurred"; the cause is the actual problem.
        problem = f"the data set {name!r} cannot be read: {reason(error.__cause__ or error)}"
        raise UsageError(problem) from error
