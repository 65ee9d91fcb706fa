"""From the name of a model to its location, configuration and tokenizer, before any weight is loaded."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.checkpoints.position_limits import RECORD, check_rope_values
from lengthwise.errors import MissingError, UsageError, nearest, reason
from lengthwise.files import named_path, say_embedded
from lengthwise.settings import KINDS, kind_of, path_text

_HUB_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class ResolvedModel:
    """The arguments of `from_pretrained`: a folder, or a hub id with the commit."""

    name: str
    location: str
    revision: str | None = None
    local_files_only: bool = True

    @property
    def source(self) -> str:
        """The location, with the commit of a hub model, for provenance."""
        return f"{self.location}@{self.revision}" if self.revision else self.location

    @property
    def _where(self) -> dict[str, Any]:
        return {"revision": self.revision or "main", "local_files_only": self.local_files_only}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `from_pretrained` besides the location."""
        # Without the last, transformers asks on standard input whether to run code that the model brings.
        return {**self._where, "trust_remote_code": False}

    def file(self, name: str) -> Path | None:
        """One of its files; None if it has none of this name."""
        return checkpoint_file(self.location, name, **self._where)


def resolve(name: str | Path, *, revision: str | None = None) -> ResolvedModel:
    """Find what `name` means: an embedded model, a .gguf file, a folder, or a hub id.

    Raises:
        UsageError: a mistyped embedded name, a file that is no model, a revision where there is none.
        MissingError: no such folder or model, or the hub cannot be reached.
    """
    name = path_text(name)
    if (kind := kind_of(name)) != "weights":
        raise UsageError(
            f"{name} is {KINDS[kind]}, whose weights cannot be loaded",
            fix="use a verb that measures, or lengthwise.subjects.open_model",
        )
    path = named_path(name, what="the model")
    if not looks_like_path(name):
        from lengthwise.checkpoints.embedded_models import EMBEDDED, build_embedded

        if name not in EMBEDDED and not path.exists():
            return resolve_hub(name, revision)
        if name in EMBEDDED and revision is None:
            if path.exists():
                say_embedded(path.absolute())
            with quiet_transformers():
                return ResolvedModel(name, str(build_embedded(name)))
    if revision is not None:
        raise UsageError(f"revision {revision!r} is given, but {name} is not a hub model", fix="leave it out")
    if not path.exists():
        raise MissingError(f"there is no model folder {name}", fix="check the path")
    if path.is_dir():
        return ResolvedModel(name, str(path))
    if path.suffix.lower() == ".gguf":
        from lengthwise.checkpoints.embedded_models import convert_gguf_file

        with quiet_transformers():
            return ResolvedModel(name, str(convert_gguf_file(path)))
    raise UsageError(f"{name} is a file, not a model", expected="a model folder or a .gguf file")


def resolve_hub(
    name: str, revision: str | None, *, what: str = "model", file: str = "config.json"
) -> ResolvedModel:
    """A model of the hub or its local cache, or an adapter (`what`), which has this `file`; raises as `resolve`."""
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    from lengthwise.checkpoints.embedded_models import EMBEDDED

    expected = "a folder, or a hub id"
    if what == "model":
        if "/" not in name and (near := nearest(name, EMBEDDED)).startswith("did you mean"):
            raise UsageError(f"unknown model {name!r}", expected=near)
        expected = f"a folder, a .gguf file, a hub id, or one of: {', '.join(sorted(EMBEDDED))}"
    at = f" --revision {revision}" if revision else ""
    # One request first: without a connection the hub's library retries every file for most of a minute.
    try:
        info: Any = HfApi().model_info(name, revision=revision, timeout=_HUB_TIMEOUT_SECONDS)
        return ResolvedModel(name, name, info.sha, local_files_only=False)
    except HFValidationError as error:
        raise UsageError(f"{name!r} is no {what} name: {reason(error)}", expected=expected) from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise MissingError(
            f"there is no hub {what} {name!r}{at}",
            expected=expected,
            fix="check the name; for a private or gated one accept its terms on the hub, then `hf auth login`",
        ) from error
    except Exception as error:
        # The hub cannot be reached or fails. The hub library has changed its HTTP library more than once, so none
        # of its error classes are named; the local cache may still have the model.
        problem = reason(error)
    cached = try_to_load_from_cache(name, file, revision=revision)
    if isinstance(cached, str):
        # The cache keeps the files of a commit in a folder of that name.
        return ResolvedModel(name, name, Path(cached).parent.name)
    raise MissingError(
        f"the {what} {name!r} is not in the local hub cache ({constants.HF_HUB_CACHE}), "
        f"and the hub cannot be reached: {problem}",
        expected=expected,
        fix=f"on a machine with the hub: hf download {name}{at}, then copy the cache; "
        "or give a local folder" + " (config.json and tokenizer alone for --dry-run)" * (what == "model"),
    )


def looks_like_path(name: str) -> bool:
    """Whether `name` can only be a path, not a hub id."""
    return (
        name.startswith((".", "/", "~", os.sep))
        or name.endswith(("/", os.sep))
        or name.count("/") > 1
        or name.lower().endswith(".gguf")
    )


def checkpoint_file(location: str, name: str, **where: Any) -> Path | None:
    """The file of a folder or a hub repository; None if it has none."""
    from transformers.utils.hub import cached_file

    folder = Path(location).expanduser()
    if folder.exists() or looks_like_path(location):
        return folder / name if (folder / name).is_file() else None
    found = cached_file(
        location,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return None if found is None else Path(found)


def read_config(model: str | Path | ResolvedModel) -> Any:
    """The configuration of a causal LM, without its weights.

    Raises:
        UsageError: it is not that of a causal LM.
        MissingError: it is not there.
    """
    from transformers import AutoConfig

    resolved = model if isinstance(model, ResolvedModel) else resolve(model)
    folder = Path(resolved.location)
    if folder.is_dir() and not (folder / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        fix = "check the path"
        if adapter:
            fix = f"name its base model; {folder} is the adapter of it that a verb that measures takes as --adapter"
        if (folder / "config.yaml").is_file():
            fix = "it is the folder of a run, which `lengthwise difference` and `lengthwise report` read"
        raise MissingError(
            f"{folder} has no config.json", expected="a folder saved by save_pretrained", fix=fix
        )
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(resolved.location, **resolved.arguments)
        if getattr(config.get_text_config(), RECORD, None) is not None:
            # Its import gives transformers the rope types that are ours.
            importlib.import_module("lengthwise.checkpoints.extension")
        if getattr(config, "quantization_config", None) == {}:
            # None, which transformers takes for a method without a name.
            delattr(config, "quantization_config")
        saved_as = next(iter(config.architectures or ()), "")
    # The parsers of libraries raise whatever a damaged file leads them to.
    except Exception as error:
        if isinstance(error, KeyError) and "longrope" in str(error):
            raise UsageError(
                f"{resolved.name} has a LongRoPE that transformers does not load: {reason(error)}",
                expected="the type longrope: the first files of Phi-3 call it su",
                fix="write longrope for su in config.json, or take newer files of the model",
            ) from error
        from lengthwise.checkpoints.damage import unloadable

        raise unloadable(resolved.name, resolved.location, error) from error
    _check_causal(config, str(saved_as), resolved.name)
    check_rope_values(config.get_text_config(), resolved.name)
    return config


def _check_causal(config: Any, saved_as: str, name: str) -> None:
    """Raise UsageError unless AutoModelForCausalLM loads such a model, with the head that it was saved with."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    inner = config.get_text_config().model_type
    # A head of another kind, as that of a masked language model or of a classifier.
    other = "For" in saved_as and saved_as not in CAUSAL.values()
    other = other and not saved_as.endswith(("ForCausalLM", "ForConditionalGeneration"))
    if config.model_type in CAUSAL and not other:
        return
    way_out = "use a decoder-only model"
    if inner != config.model_type and inner in CAUSAL:
        way_out = f"save its language model (config.text_config, {CAUSAL[inner]}) as a model of its own"
    raise UsageError(
        f"{name} is not a causal language model: it was saved as {saved_as or config.model_type}",
        expected="a model that transformers' AutoModelForCausalLM loads",
        fix=f"{way_out}, or serve this one and measure its URL",
    )


def read_tokenizer(model: str | Path | ResolvedModel, **more: Any) -> Any:
    """The tokenizer of a model, without its weights; the folder may hold nothing else. `more` goes to transformers.

    Raises:
        MissingError: it is not there or cannot be loaded.
    """
    from transformers import AutoTokenizer

    resolved = model if isinstance(model, ResolvedModel) else resolve(model)
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(resolved.location, **resolved.arguments, **more)
        # transformers 5.0 makes one of special tokens alone where there are no files.
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise ValueError("its files hold no vocabulary")
        return tokenizer
    # tokenizers raises bare Exception for a damaged file.
    except Exception as error:
        from lengthwise.checkpoints.damage import unloadable

        raise unloadable(
            f"the tokenizer of {resolved.name}",
            resolved.location,
            error,
            otherwise=MissingError,
            expected="all files of the tokenizer, as save_pretrained writes them",
        ) from error


@contextlib.contextmanager
def quiet_transformers(*, bars: bool = False) -> Iterator[None]:
    """Silence transformers, PEFT and bitsandbytes inside, errors excepted; `bars` shows progress bars."""
    from transformers.utils import logging as transformers_logging

    # PEFT imports it, which then remarks on a kernel for 4-bit weights, also where there are none.
    bitsandbytes = logging.getLogger("bitsandbytes")
    before = bitsandbytes.level, transformers_logging.get_verbosity()
    hide_bars = not bars and transformers_logging.is_progress_bar_enabled()
    bitsandbytes.setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    if hide_bars:
        transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # PEFT reads a property by the name that it had before transformers renamed it.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            # Notes say so (`lengthwise.checkpoints.written_settings`).
            warnings.filterwarnings("ignore", "Unexpected keyword arguments", UserWarning)
            # `lengthwise.checkpoints.variants` refuses other settings.
            warnings.filterwarnings("ignore", "You passed `quantization_config`", UserWarning)
            warnings.filterwarnings("ignore", "`rope_scaling` is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", "The following .*_pattern keys did not match")
            yield
    finally:
        bitsandbytes.setLevel(before[0])
        transformers_logging.set_verbosity(before[1])
        if hide_bars:
            transformers_logging.enable_progress_bar()
