"""From the name of a model to its location, configuration and tokenizer, before any weight is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.errors import StrictDataclassError

from lengthwise.errors import LengthwiseError, MissingError, UsageError, nearest, reason
from lengthwise.files import is_url, named_path, read_json
from lengthwise.models.embedded import EMBEDDED, build_embedded
from lengthwise.models.gguf import convert_gguf_file
from lengthwise.models.quiet import quiet_transformers
from lengthwise.settings import Subject

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_HUB_TIMEOUT_SECONDS = 15.0

IMPOSSIBLE_CONFIG = (
    StrictDataclassError,
    ArithmeticError,
    AttributeError,
    TypeError,
    IndexError,
    AssertionError,
    RecursionError,
)
"""What transformers raises, besides ValueError and KeyError, of a config.json with impossible values."""


@dataclass(frozen=True)
class ResolvedModel:
    """The arguments of `from_pretrained`.

    `location` is a folder or a hub id; `revision` the commit of a hub model, if it is known.
    """

    name: str
    kind: Literal["embedded", "folder", "gguf", "hub"]
    location: str
    revision: str | None = None
    local_files_only: bool = True

    @property
    def source(self) -> str:
        """The location, with the commit of a hub model, for provenance."""
        return f"{self.location}@{self.revision}" if self.kind == "hub" else self.location

    @property
    def where(self) -> dict[str, Any]:
        """Which files of the location are meant."""
        return {"revision": self.revision or "main", "local_files_only": self.local_files_only}

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `from_pretrained` beside the location."""
        # Left out, transformers asks on standard input whether to run code that the model brings.
        return {**self.where, "trust_remote_code": False}


def resolve(name: str, *, revision: str | None = None, weights: bool = True) -> ResolvedModel:
    """Find what `name` means: an embedded model, a .gguf file, a folder, or a hub id.

    Without `weights` a folder needs to hold no more than config.json.

    Raises:
        UsageError: a mistyped embedded name, a file that is no model, a revision where there is none.
        MissingError: no such folder or model, files of it missing, or the hub cannot be reached.
    """
    if is_url(name):
        raise UsageError(
            f"{name} is an endpoint, whose weights cannot be loaded",
            expected="a folder, a .gguf file, a hub id, or an embedded name",
            fix="verbs that measure take endpoints, and lengthwise.models.Endpoint opens one",
        )
    path = named_path(name, what="the model")
    if name not in EMBEDDED and not path.exists() and not looks_like_path(name):
        return _resolve_hub(name, revision, weights=weights)
    if revision is not None:
        raise UsageError(f"revision {revision!r} is given, but {name} is not a hub model", fix="leave it out")
    if name in EMBEDDED:
        return ResolvedModel(name, "embedded", str(build_embedded(name)))
    if not path.exists():
        raise MissingError(f"there is no model folder {name}", fix="check the path")
    if path.is_dir():
        check_folder(path, weights=weights)
        return ResolvedModel(name, "folder", str(path))
    if path.suffix.lower() == ".gguf":
        return ResolvedModel(name, "gguf", str(convert_gguf_file(path)))
    raise UsageError(f"{name} is a file, not a model", expected="a model folder or a .gguf file")


def check_served(subject: Subject) -> None:
    """Raise UsageError for a setting that only weights have and an endpoint is given, or the other way round."""
    served = is_url(subject.model)
    what = "is an endpoint, whose server decides" if served else "is no endpoint"
    names = ("adapter", "dtype", "device", "device_map", "tp_plan", "quantize")
    for name in names if served else ("served_model", "tokenizer"):
        if getattr(subject, name) != Subject.model_fields[name].default:
            raise UsageError(f"{name} is given, and {subject.model} {what}", fix=f"leave {name} out")


def read_config(model: str | ResolvedModel) -> Any:
    """The configuration of a causal LM, without its weights.

    Raises:
        UsageError: it is not that of a causal LM.
        MissingError: it is not there.
    """
    from transformers import AutoConfig

    resolved = resolve(model) if isinstance(model, str) else model
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(resolved.location, **resolved.arguments)
        check_architecture(config, resolved.name)
    except LengthwiseError:
        raise
    # The parsers of libraries raise whatever a damaged file leads them to.
    except Exception as error:
        raise unloadable(resolved, error) from error
    return config


def bad_config(name: str, error: Exception) -> UsageError:
    """The error for a config.json that no model can be built from."""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UsageError(
        f"{name} cannot be loaded as a causal language model, by its config.json: {why}",
        fix="correct config.json, or download it again",
    )


def read_tokenizer(model: str | ResolvedModel) -> Any:
    """The tokenizer of a model, without its weights.

    Raises:
        MissingError: it is not there or cannot be loaded.
    """
    from transformers import AutoTokenizer

    resolved = resolve(model) if isinstance(model, str) else model
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(resolved.location, **resolved.arguments)
    # tokenizers raises bare Exception for a damaged file.
    except Exception as error:
        if (own := _own_code(resolved, error)) is not None:
            raise own from error
        damaged = damaged_json(Path(resolved.location))
        raise MissingError(
            f"{damaged} is damaged"
            if damaged
            else f"{resolved.name} has no tokenizer that can be loaded: {reason(error)}",
            expected="tokenizer.json (or the files of a slow tokenizer) beside the weights",
            fix="save the model's tokenizer into the same folder",
        ) from error


def unloadable(resolved: ResolvedModel, error: Exception) -> LengthwiseError:
    """The error for a model that a library could not load, with the damaged file if one can be told."""
    folder = Path(resolved.location)
    if (damaged := damaged_json(folder)) is not None:
        return MissingError(f"{damaged} is damaged: it is no JSON object", fix="copy or download it again")
    if (own := _own_code(resolved, error)) is not None:
        return own
    if is_damage(error):
        names = ", ".join(str(file) for file in _weight_files(folder)) or resolved.location
        return MissingError(
            f"{names} cannot be read: damaged, or it holds other objects than tensors",
            expected="weights as safetensors, or a pickle of tensors alone",
            fix="download it again",
        )
    if isinstance(error, ImportError):
        return MissingError(f"{resolved.name} needs a package that is missing: {error}")
    if isinstance(error, OSError):
        return MissingError(f"{resolved.name} cannot be loaded: {reason(error)}")
    return UsageError(f"{resolved.name} cannot be loaded as a causal language model: {reason(error)}")


def _own_code(resolved: ResolvedModel, error: Exception) -> UsageError | None:
    if "trust_remote_code" not in str(error):
        return None
    return UsageError(
        f"{resolved.name} brings code of its own, which lengthwise does not run",
        expected="a model and a tokenizer of types that transformers has",
    )


def damaged_json(folder: Path) -> Path | None:
    """A JSON file in `folder` that holds no JSON object; None if there is none."""
    for file in sorted(folder.glob("*.json")):
        try:
            read_json(file, expected="a JSON object")
        except UsageError:
            return file
    return None


def is_damage(error: Exception) -> bool:
    """Whether a library says that a file of weights is damaged, or holds more than tensors."""
    return (
        type(error).__name__ in ("UnpicklingError", "SafetensorError", "EOFError", "BadZipFile")
        or "PytorchStreamReader" in str(error)
        or "weights_only" in str(error)
    )


def check_architecture(config: Any, name: str) -> None:
    """Raise UsageError unless `config` describes a decoder that predicts next tokens."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    )

    architectures: list[str] = list(config.architectures or [])
    kind = architectures[0] if architectures else config.model_type
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    if config.is_encoder_decoder:
        why = f"{kind} is an encoder-decoder"
    elif type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        why = f"transformers has no causal language model for {config.model_type!r}"
    elif architectures and not any(each in known or each.endswith("ForCausalLM") for each in architectures):
        why = f"it was saved as {kind}"
    else:
        return
    raise UsageError(
        f"{name} is not a causal language model: {why}",
        expected="a decoder saved as ...ForCausalLM or ...LMHeadModel",
    )


def check_folder(folder: Path, *, weights: bool = True) -> None:
    """Raise MissingError unless `folder` holds a whole model: config, and every file of the `weights`."""
    if not (folder / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        raise MissingError(
            f"{folder} has no config.json" + (", it holds an adapter" if adapter else ""),
            expected="a folder saved by save_pretrained",
            fix=f"load the base model with --adapter {folder}" if adapter else "check the path",
        )
    if not weights:
        return
    files = _weight_files(folder)
    if not files:
        raise MissingError(
            f"{folder} has a config.json but no weights",
            expected=" or ".join(_WEIGHTS),
            fix="download the rest of the model",
        )
    for file in files:
        if not file.is_file():
            raise MissingError(
                f"{folder} is incomplete: {file.name} is missing",
                expected=f"{len(files)} weight files",
                fix="download the rest of the model",
            )
        check_whole(file)


def _weight_files(folder: Path) -> list[Path]:
    # transformers' own order: safetensors before pickles, one file before shards.
    for single, index in zip(_WEIGHTS, _INDEXES, strict=True):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            try:
                weight_map = read_json(folder / index, expected="an index of weights")["weight_map"]
                return sorted({folder / name for name in weight_map.values()})
            except (UsageError, KeyError, TypeError, AttributeError) as error:
                raise MissingError(f"{folder / index} is damaged", fix="download it again") from error
    return []


def check_whole(file: Path) -> None:
    """Raise MissingError if a safetensors file is shorter than its header says."""
    if file.suffix != ".safetensors":
        return
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except SafetensorError as error:
        raise MissingError(f"{file} is damaged or cut short: {error}", fix="download it again") from error


def looks_like_path(name: str) -> bool:
    """Whether `name` can only be a path, not a hub id."""
    return (
        name.startswith((".", "/", "~", os.sep))
        or name.endswith(("/", os.sep))
        or name.count("/") > 1
        or name.lower().endswith(".gguf")
    )


def _resolve_hub(name: str, revision: str | None, *, weights: bool) -> ResolvedModel:
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if "/" not in name and (near := nearest(name, EMBEDDED)).startswith("did you mean"):
        raise UsageError(f"unknown model {name!r}", expected=near)
    fetch = f"hf download {name}" + ("" if weights else " config.json")
    fetch += f" --revision {revision}" if revision else ""
    embedded = ", ".join(sorted(EMBEDDED))
    # One request first: without a connection, from_pretrained retries every file for most of a minute and does
    # not say what is missing.
    problem: str
    try:
        info: Any = HfApi().model_info(name, revision=revision, timeout=_HUB_TIMEOUT_SECONDS)
        return ResolvedModel(name, "hub", name, revision=info.sha, local_files_only=False)
    except HFValidationError as error:
        raise UsageError(
            f"{name!r} is no model name: {str(error).splitlines()[0]}",
            expected=f"a folder, a .gguf file, a hub id, or one of: {embedded}",
        ) from error
    except RevisionNotFoundError as error:
        raise MissingError(f"the hub model {name} has no revision {revision!r}") from error
    except GatedRepoError as error:
        raise MissingError(
            f"the hub model {name} is gated", fix="accept its terms on the hub, then `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise MissingError(
            f"there is no hub model {name!r}, and no such folder",
            expected=f"a folder, a .gguf file, a hub id, or one of: {embedded}",
            fix="check the name; a private model needs `hf auth login`",
        ) from error
    except Exception as error:
        # The hub cannot be reached or fails. The hub library has changed its HTTP library more than once, so none
        # of its error classes are named; the local cache may still have the model.
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
    cached = try_to_load_from_cache(name, "config.json", revision=revision)
    if not isinstance(cached, str):
        raise MissingError(
            f"the model {name!r} is not in the local hub cache ({constants.HF_HUB_CACHE}), "
            f"and the hub cannot be reached: {problem}",
            expected=f"a folder, a .gguf file, a hub id, or one of: {embedded}",
            fix=f"on a machine with the hub: {fetch}, then copy the cache; or give a local folder"
            + ("" if weights else " with that file alone"),
        )
    # The cache keeps the files of a commit in a folder of that name.
    snapshot = Path(cached).parent
    check_folder(snapshot, weights=weights)
    return ResolvedModel(name, "hub", name, revision=snapshot.name, local_files_only=True)
