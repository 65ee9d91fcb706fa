"""Documents from a data set on the Hugging Face hub, or from a local folder in the hub's layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.text.corpus import Corpus, Document, Split, split_by_hash
from lengthwise.text.files import as_text, check_field

HUB_PREFIX = "hf://"

# A data set's own held-out split is called either way; "test" is preferred where both exist.
_HELD_OUT_NAMES = ("test", "validation")


@dataclass(frozen=True)
class HubDataset:
    """`hf://owner/name[:config][@split]`, taken apart."""

    path: str
    config: str | None
    split: str | None

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"@{self.split}" if self.split else ""
        return f"{HUB_PREFIX}{self.path}{config}{split}"


def parse_hub(spec: str) -> HubDataset:
    """Take a spec apart; UsageError if it names no data set."""
    rest, _, split = spec.removeprefix(HUB_PREFIX).partition("@")
    path, _, config = rest.partition(":")
    if not path.strip("/"):
        raise UsageError(f"{spec!r} names no data set", expected="hf://owner/name[:config][@split]")
    return HubDataset(path, config or None, split or None)


def load_hub(dataset: HubDataset, *, split: Split, text_field: str) -> Corpus:
    """One document for each row.

    A split named in the spec is used as given. Otherwise the data set's own held-out split is "test" and
    its train split "train"; a data set with one split is split by hash like a file.

    Raises:
        MissingError: the data set is not there, or the hub cannot be reached.
        UsageError: an unknown config, split or text field.
    """
    splits = _load_splits(dataset)
    name = str(dataset)
    if dataset.split is not None:
        if dataset.split not in splits:
            raise UsageError(
                f"{dataset.path} has no split {dataset.split!r}", expected=nearest(dataset.split, splits)
            )
        documents = _documents(splits[dataset.split], dataset.split, text_field, name)
        return Corpus.of(name, documents, split=split, split_rule=f"used as given: split {dataset.split!r}")
    held_out = next((known for known in _HELD_OUT_NAMES if known in splits), None)
    if len(splits) == 1 or split == "all" or held_out is None or "train" not in splits:
        documents = [
            document for each, rows in splits.items() for document in _documents(rows, each, text_field, name)
        ]
        return split_by_hash(name, documents, split)
    wanted = held_out if split == "test" else "train"
    documents = _documents(splits[wanted], wanted, text_field, name)
    return Corpus.of(name, documents, split=split, split_rule=f"the data set's own split {wanted!r}")


def _load_splits(dataset: HubDataset) -> dict[str, Any]:
    import datasets
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    folder = Path(dataset.path).expanduser()
    source = str(folder) if folder.is_dir() else dataset.path
    try:
        loaded = datasets.load_dataset(source, dataset.config)
    except (DatasetNotFoundError, ConnectionError, FileNotFoundError) as error:
        raise MissingError(
            f"the data set {dataset.path!r} cannot be loaded: {_first_line(error)}",
            expected="a data set on the hub, in the local hub cache, or a folder in the hub's layout",
            fix=f"check the name; to fetch it: hf download --repo-type dataset {dataset.path}",
        ) from error
    except (ValueError, DatasetGenerationError) as error:
        raise UsageError(f"the data set {dataset.path!r} cannot be read: {_first_line(error)}") from error
    assert isinstance(loaded, dict)
    return {str(name): rows for name, rows in loaded.items()}


def _documents(rows: Any, split_name: str, text_field: str, name: str) -> list[Document]:
    check_field(rows.column_names, text_field, where=name)
    return [
        Document(f"{split_name}:{number}", as_text(value, text_field, where=f"{name}, row {number}"))
        for number, value in enumerate(rows[text_field], start=1)
    ]


def _first_line(error: BaseException) -> str:
    # `datasets` hides what went wrong behind "An error occurred"; its cause says it.
    root = error.__cause__ or error
    return (str(root).strip() or type(root).__name__).splitlines()[0]
