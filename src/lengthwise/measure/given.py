"""What a caller gives to `run`: named for the run folder, and refused where nothing would read it.

`About.second` is the field that says what a second model is (an evaluator, the other side of a
comparison): the name of a model, which is loaded as the first one is, or a side of its own, with the fields of a
`Subject`.
"""

from __future__ import annotations

import contextlib
import glob
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError, require, require_kind
from lengthwise.files import named_path, sampled_hash
from lengthwise.measure.measurement import Item, Measurement, WindowMeasurement
from lengthwise.settings import TAKEN_BY, Subject, TextOptions, checked, kind_of
from lengthwise.text import Corpus, MoreText, TokenDocuments, as_corpus, token_parts

_READ = ("*.safetensors", "*model*.bin", "*.model", "*config.json", "*token*", "vocab*", "merges*", "chat_*")
"""The files of a model folder that decide what it predicts."""

if TYPE_CHECKING:
    from lengthwise.subjects import ModelLike, Predictor
    from lengthwise.text import TextLike


def check_place(out: object, *, resume: bool, overwrite: bool, log: object) -> None:
    """Raise UsageError unless finished items have one place: a run folder, a log or none."""
    given = [name for name, value in (("resume", resume), ("overwrite", overwrite)) if value]
    if log is not None and (given or out is not None):
        named = " and ".join([*(["out"] if out is not None else []), *given])
        raise UsageError(
            f"log is given, and {named}",
            expected="a log, or a run folder, which has its own",
            fix="leave out log",
        )
    if out is None and given:
        raise UsageError("--resume and --overwrite need the folder of an earlier run", fix="add --out")


def named_subject(
    measurement: Measurement, model: Subject | ModelLike, text: TextLike | TokenDocuments | None
) -> Subject:
    """The subject as the run folder records it: the names of a model and a text that are given as objects.

    UsageError if the text, or its split, is given twice, or the measurement reads no text, or not its tokens alone.
    """
    require_kind("measurement", measurement, Measurement, "a Measurement, as Perplexity(lengths=(1024,))")
    if not isinstance(model, Subject):
        from lengthwise.subjects import as_model

        model = Subject(model=str(model) if isinstance(model, str | Path) else as_model(model).name)
    subject = model
    options = ("text", *TextOptions.model_fields)
    given = [name for name in options if name in subject.model_fields_set or text is not None]
    if measurement.reads is None and given:
        raise UsageError(
            f"a {given[0]} is given, and {measurement.about.kind} reads no text with these settings",
            fix="leave it out",
        )
    if text is None:
        return subject
    if isinstance(text, TokenDocuments) and measurement.reads not in ("tokens", "either"):
        raise UsageError(
            f"the text is given in tokens, and {measurement.about.kind} reads its characters",
            expected="a name or path, a Corpus, or a list of strings",
        )
    by_name = isinstance(text, str | Path)
    # What is given whole is read already.
    for name in ("text",) if by_name else options:
        if name in subject.model_fields_set:
            raise UsageError(
                f"the subject has {name} = {getattr(subject, name)!r}, and run has a text of its own",
                expected="one of them",
                fix=f"leave {name} out of the Subject, or give run no text",
            )
    # Of token documents, a corpus, or a list of strings; a path has a `name` too.
    found = str(text) if by_name else getattr(text, "corpus", getattr(text, "name", "texts"))
    split = {"split": text.split} if isinstance(text, Corpus) else {}
    return subject.model_copy(update={"text": found, **split})


def text_of(
    measurement: Measurement, subject: Subject, text: TextLike | TokenDocuments | None
) -> Corpus | TokenDocuments | None:
    """The text as a corpus, or in the model's tokens where it is given so; None if none is read."""
    if measurement.reads is None:
        return None
    if text is None:
        text = subject.text
    return text if isinstance(text, TokenDocuments) else as_corpus(text, **subject.of_text())


def rendered(measurement: Measurement, text: Corpus, model: Predictor, other: Predictor) -> Corpus:
    """The text as both models read it; UsageError where the templates of two sides make other texts of chats."""
    found, second = text.rendered(other.tokenizer), measurement.about.second
    of_two = second is not None and isinstance(getattr(measurement, second), Mapping) and other is not model
    if text.chat and of_two and text.rendered(model.tokenizer).fingerprint != found.fingerprint:
        raise UsageError(
            "the chat templates of the two sides make other texts of the same chats",
            expected="one text, which both sides read",
            fix="give both sides one chat template, or a column of plain text (--text-field)",
        )
    return found


def is_spread(model: object) -> bool:
    """Whether processes hold parts of the weights of a model that is given as an object."""
    from torch import nn

    from lengthwise.machine import over_processes

    module = model[0] if isinstance(model, tuple) and model else getattr(model, "model", None)
    return isinstance(module, nn.Module) and over_processes(module)


def fingerprints_of(
    measurement: Measurement,
    spec: Subject,
    model: object,
    other: object,
    text: TextLike | TokenDocuments | None,
) -> dict[str, dict[str, Any]]:
    """What tells without reading anything whether a finished run is of these models and this text.

    The fingerprints of what is given as objects; of what is named, those of its files, if they are here.
    """
    from lengthwise.subjects import as_model

    found = files_of(measurement, spec, model, other)
    for name, one in (("model", model), ("second model", None if other is model else other)):
        if one is not None and not isinstance(one, Subject | str | Path) and not is_spread(one):
            given: Any = one
            found[name] = as_model(given).fingerprint()
    if isinstance(text, TokenDocuments):
        found["text"] = {"corpus": text.corpus_fingerprint}
    elif text is not None and not isinstance(text, str | Path):
        found["text"] = {"corpus": as_corpus(text).fingerprint}
    elif measurement.reads is not None and local_place(spec.text) is not None:
        found["text"] = {"corpus": as_corpus(spec.text, **spec.of_text()).fingerprint}
    return found


def files_of(
    measurement: Measurement, spec: Subject, model: object, other: object
) -> dict[str, dict[str, Any]]:
    """The hash of the files of each model that is named, and is here."""
    named: dict[str, Subject | None] = {}
    if isinstance(model, Subject | str | Path):
        named["model"] = spec
    named["second model"] = second_subject(measurement, spec)
    if isinstance(other, str | Path):
        named["second model"] = Subject(model=str(other))
    files = {name: _files_of(one) for name, one in named.items() if one is not None}
    return {name: {"files": sampled_hash(some)} for name, some in files.items() if some}


def _files_of(subject: Subject) -> list[Path]:
    """The local files that a model, its adapter and its tokenizer are read from."""
    found: list[Path] = []
    for name in (subject.model, subject.adapter, subject.tokenizer):
        if name is None or (place := local_place(name)) is None:
            continue
        # Of a file in parts all of them.
        parts = re.sub(r"-\d{5}-of-", "-*-of-", glob.escape(place.name))
        folder, patterns = (place, _READ) if place.is_dir() else (place.parent, (parts,))
        found += sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})
    return found


def config_of(measurement: Measurement, subject: Subject) -> dict[str, Any]:
    """The config of a run: running it again repeats the run."""
    return subject.model_dump(mode="json") | measurement.model_dump(mode="json")


def second_subject(measurement: Measurement, subject: Subject) -> Subject | None:
    """How the second model is loaded, beside the first as `subject` says; None where the settings name none.

    UsageError for a setting of the second side that no model of its kind takes.
    """
    name = measurement.about.second
    named: Any = None if name is None else getattr(measurement, name)
    if not named:
        return None
    if isinstance(named, str):
        return subject.beside(named)
    given = {"text": subject.text, **subject.of_text(), **named}
    return checked(Subject, given, source="the second side")


def open_second(measurement: Measurement, model: Predictor, subject: Subject | None) -> Predictor:
    """The second model, loaded beside the first (`subject`, None of one in memory); the first where both are one.

    An endpoint and llama.cpp take the first one's tokenizer unless they name one.
    """
    from lengthwise.subjects import open_model

    second = second_subject(measurement, subject or Subject(model=model.name))
    return model if second in (None, subject) else open_model(second, tokenizer=model.tokenizer)


def check_second(
    measurement: Measurement, subject: Subject, other: object = None, *, in_memory: bool = False
) -> None:
    """Raise UsageError unless a measurement that has a second model has it once, and another has none.

    `other` is the second model, where it is given as an object. A first model that was given so (`in_memory`) may
    differ from the model of that name.
    """
    kind, name = measurement.about.kind, measurement.about.second
    named = None if name is None else getattr(measurement, name)
    if name is None and other is not None:
        raise UsageError(f"a second model is given, and {kind} has none", fix="leave out other")
    if named and other is not None:
        raise UsageError(
            f"a second model is given, and the settings of {kind} name one",
            expected="one of them",
            fix=f"leave out other, or {name}",
        )
    if isinstance(named, Mapping) and other is None:
        if not named:
            raise UsageError(
                f"{kind} is of two sides, and one is given", fix=f"give run other=..., or {name}"
            )
        second = second_subject(measurement, subject)
        if not in_memory and second is not None and _by_place(second) == _by_place(subject):
            raise UsageError(
                "both sides are the same in everything",
                expected="another model, or a setting of one side, as in --b dtype=float32",
            )


def _by_place(subject: Subject) -> Subject:
    """The subject with its files by their places: one folder may be written in several ways."""
    found = {}
    for name in ("model", "adapter", "tokenizer"):
        value = getattr(subject, name)
        if value is not None and (path := local_place(value)) is not None:
            found[name] = f"{kind_of(value)} {path}"
    return subject.model_copy(update=found)


def local_place(name: str) -> Path | None:
    """The resolved file or folder that a model, adapter or tokenizer is read from; None of any other."""
    from lengthwise.checkpoints.embedded_models import EMBEDDED

    path = named_path(name.removeprefix("llama.cpp:"), what="the model")
    return path.resolve() if name not in EMBEDDED and path.exists() else None


def name_of(measurement: Measurement, subject: Subject) -> str:
    """What results call the measured model: of two sides both, each with what the other lacks."""
    second = second_subject(measurement, subject)
    if second is None or not isinstance(getattr(measurement, measurement.about.second or ""), Mapping):
        return subject.model
    names = []
    for side, other in ((subject, second), (second, subject)):
        own = [key for key in TAKEN_BY if getattr(side, key) not in (getattr(other, key), None, "auto")]
        shown = ", ".join(f"{key}={getattr(side, key)}" for key in own)
        names.append(f"{side.model} ({shown})" if shown else side.model)
    return " against ".join(names)


def items_of(
    measurement: Measurement, text: Corpus | TokenDocuments, model: Any, other: Any, *, cache: bool
) -> tuple[list[Item], TokenDocuments]:
    """The items of a text, of which no more is tokenized than its windows need; and that part."""
    whole = not isinstance(measurement, WindowMeasurement)
    for tokens in token_parts(text, other.tokenizer, cache=cache, whole=whole):
        read = tokens if measurement.reads == "tokens" else (text, tokens)
        with contextlib.suppress(MoreText):
            return measurement.items(model, read, other), tokens
    raise AssertionError("the whole text has no more")


def text_facts(text: Any, documents: TokenDocuments | None, items: Sequence[Item]) -> dict[str, Any]:
    """What a result records of its text, whose `documents` are the part that the items were made from."""
    facts: dict[str, Any] = {}
    left_out: dict[str, int] = {}
    if isinstance(text, Corpus):
        facts |= text.facts
        left_out |= text.left_out
    if documents is not None:
        facts |= {
            "corpus": documents.corpus,
            "corpus_fingerprint": documents.corpus_fingerprint,
            "tokenizer_fingerprint": documents.tokenizer_fingerprint,
            "documents": len(documents),
            "tokens": documents.total_tokens,
        }
        left_out |= documents.left_out({item.stretch for item in items})
    return facts | {"left_out": left_out} if facts else {}


def check_items(measurement: Measurement, items: Sequence[Item]) -> None:
    """Raise UsageError for no item, and for two of one name: the log has one record of each, and drops the second."""
    require(bool(items), f"{measurement.about.kind} has nothing to read", "at least one item")
    name, count = Counter(item.key for item in items).most_common(1)[0]
    require(count == 1, f"{count} items are named {name}", "a name for each, unique in its run")


def inputs_of(model: Any, other: Any, text: Any, files: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What `inputs.json` holds: fingerprints of the models and the text, and of the models' `files`."""
    prints = {"model": model.fingerprint()}
    if text is not None:
        # Of chats as they are given: what is given again is compared before any model renders it.
        corpus = text.fingerprint if isinstance(text, Corpus) else text.corpus_fingerprint
        prints["text"] = {"corpus": corpus}
    if other is not model:
        prints["second model"] = other.fingerprint()
    return {name: {**own, **files.get(name, {})} for name, own in prints.items()}
