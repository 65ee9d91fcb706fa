"""Files and folders that are whole or not there: made beside the target, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lengthwise.errors import LengthwiseError, UsageError, reason, require_kind, shown

logger = logging.getLogger(__name__)


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never a part.

    LengthwiseError if the folder cannot be written or the disk is full; the old file is left as it was.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private; results get the permissions of the user's other files.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise cannot_write(path, error) from error


def atomic_write_text(path: Path, text: str) -> None:
    """`atomic_write_bytes` of the UTF-8 text."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path, value: Any) -> None:
    """`atomic_write_text` of indented JSON; NaN and infinity are refused (they are not JSON)."""
    atomic_write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, *, expected: str, finite: bool = False) -> dict[str, Any]:
    """The JSON object in a file; UsageError, with what was `expected`, if it is missing, damaged or no object.

    With `finite`, NaN and Infinity are damage too. Python reads them, and configurations of models have them.
    """

    def refuse(word: str) -> None:
        raise ValueError(f"it holds {word}, which is no number in JSON")

    try:
        value = json.loads(path.read_bytes(), parse_constant=refuse if finite else None)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {path}: {str(error)[:200]}", expected=expected) from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds a {type(value).__name__}", expected=expected)
    return value


def named_path(name: str | Path, *, what: str) -> Path:
    """The path that a user named as `what`, with `~` expanded. It may not exist, but the system can look it up.

    UsageError if the name is blank (an unset shell variable), too long, or of a user or folder that is closed; or if
    it is an address where `what` is an option: results would lie in a folder `s3:` here.
    """
    require_kind(what, name, (str, os.PathLike), "a name or path")
    if not str(name).strip():
        raise UsageError(f"{what} is empty", expected="a name or path")
    if what.startswith("--") and "://" in str(name):
        raise UsageError(f"{what} {shown(str(name))} is an address", expected="a path on this machine")
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UsageError(f"{what} {shown(str(name))} cannot be looked up: {cause}") from error
    return path


@cache
def say_embedded(path: Path) -> None:
    """Say, once, that a name means what is embedded, where this path has that name too."""
    logger.warning("%s is the embedded one; for the one in this folder give ./%s", path.name, path.name)


def named_run(name: str | Path) -> tuple[str, Path]:
    """The label and the folder of a run that is named FOLDER, label "", or LABEL=FOLDER; raises as `named_path`."""
    path = named_path(name, what="the run")
    label, equals, folder = str(name).partition("=")
    if not equals or path.exists():
        return "", path
    return label.strip(), named_path(folder, what="the run")


def file_to_write(name: str | Path, *, what: str, begins: str) -> Path:
    """The path of a file that is written later, which `begins` so.

    UsageError, before the work for it, if it could not be written, or would replace a file that begins otherwise.
    """
    path = named_path(name, what=what)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if path.is_dir() or not (there == path or there.is_dir()) or not os.access(there, os.W_OK):
        kind = "a folder" if there.is_dir() else "a file"
        closed = "" if os.access(there, os.W_OK) else " that cannot be written"
        raise UsageError(
            f"{what} {path} cannot be written: {there} is {kind}{closed}",
            expected="a file, in a folder that can be written",
        )
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as file:
            ours = file.read(len(begins.encode())) == begins.encode()
        if not ours:
            raise UsageError(
                f"{what} {path} exists, and is another kind of file",
                expected=f"a new file, or one that begins with {begins}",
                fix=f"another {what}, or remove it",
            )
    return path


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content: about a second for a gigabyte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_BLOCKS, _BLOCK = 1024, 4096
"""Blocks of a file that `sampled_hash` reads, and the bytes of each."""


def sampled_hash(files: Iterable[Path]) -> str:
    """A hash of the size of each file, and of evenly spaced blocks: milliseconds for a file of any size."""
    made = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        made.update(f"{size}\n".encode())
        with file.open("rb") as stream:
            for index in range(_BLOCKS):
                stream.seek(max(0, size - _BLOCK) * index // (_BLOCKS - 1))
                made.update(stream.read(_BLOCK))
    return made.hexdigest()[:32]


SEAL = "complete.json"
"""The file that marks a folder as whole: the SHA-256 or the size of every other file in it."""


def seal(folder: Path, *, hashes: bool = True) -> None:
    """Write the SHA-256 of every file in `folder` to `complete.json`, which marks it as whole, and `share` it.

    Without `hashes` it is the sizes, once all files are on the disk. They take no time and show what a kill, a full
    disk or a power loss leaves, but no flipped bit.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    for path in () if hashes else files:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    found = {str(path.relative_to(folder)): sha256(path) if hashes else path.stat().st_size for path in files}
    atomic_write_json(folder / SEAL, found)
    share(folder)


def first_damaged(folder: Path) -> str | None:
    """The name of a file in `folder` that is not what was sealed; None if there is none.

    The seal itself counts as damaged if it is missing.
    """
    try:
        sealed = read_json(folder / SEAL, expected="the SHA-256 or size of every file")
    except UsageError:
        return SEAL
    for name, saved in sealed.items():
        file = folder / name
        if not file.is_file() or saved != (file.stat().st_size if isinstance(saved, int) else sha256(file)):
            return name
    return None


def share(folder: Path) -> None:
    """Give `folder` and all below it the modes that the umask allows: safetensors writes private files."""
    mask = _umask()
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def cache_dir() -> Path:
    """Where converted models and tokens are kept.

    `$LENGTHWISE_CACHE`, else `$XDG_CACHE_HOME/lengthwise`, else `~/.cache/lengthwise`. UsageError if there is no such
    user, or if this one has no home (a container's user without a name and without HOME).
    """
    explicit = os.environ.get("LENGTHWISE_CACHE")
    folder = explicit or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lengthwise")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"the cache {folder} cannot be looked up: {error}", fix="set LENGTHWISE_CACHE to a folder"
        ) from error


_VERIFIED: set[Path] = set()
_STAMP = "verified.json"
"""Size and times of each file of a built folder when its SHA-256 was last compared."""


def _is_whole(path: Path) -> bool:
    """Whether every file of a built folder is what was sealed.

    Reading all of it takes minutes for a large model, so it is read again only where a size or a time has changed.
    """
    if path in _VERIFIED:
        return True
    with contextlib.suppress(UsageError):
        if read_json(path / _STAMP, expected="sizes and times") == _times(path):
            return True
    if first_damaged(path) is not None:
        return False
    _stamp(path)
    return True


def _times(path: Path) -> dict[str, list[int]]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.name != _STAMP)
    found = ((str(file.relative_to(path)), file.stat()) for file in files)
    return {name: [each.st_size, each.st_mtime_ns, each.st_ctime_ns] for name, each in found}


def _stamp(path: Path) -> None:
    # A shared cache may be read-only.
    with contextlib.suppress(LengthwiseError):
        atomic_write_json(path / _STAMP, _times(path))


def build_once(
    path: Path, build: Callable[[Path], None], *, what: str, wait_seconds: float = 4 * 3600
) -> Path:
    """Return `path`, a folder of the cache, made by `build` if it does not exist yet.

    `build` fills a temporary folder beside `path`, which is sealed and renamed to `path`. After an error or a kill
    the next call removes what was left and builds again. Other processes that want the same `path` wait for the one
    that builds, for `wait_seconds`. The first use, and one after a file has changed, compares the SHA-256 of every
    file: what was damaged is built again, with a warning. `what` names it in messages: "the model smollm2-135m".

    Raises:
        LengthwiseError: the cache cannot be written, or another process holds it for too long.
    """
    from filelock import FileLock, Timeout

    if path.exists() and _is_whole(path):
        # Without a lock: a shared cache may be read-only.
        _VERIFIED.add(path)
        return path
    lock = path.parent / f".{path.name}.lock"
    with writing(path, fix="free space, or set LENGTHWISE_CACHE to another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock, timeout=wait_seconds):
                if path.exists() and (damaged := first_damaged(path)) is not None:
                    logger.warning("%s: %s in the cache is damaged; it is made again", what, path / damaged)
                    shutil.rmtree(path)
                if not path.exists():
                    _build_locked(path, build)
                    _stamp(path)
                _VERIFIED.add(path)
        except Timeout as error:
            raise LengthwiseError(
                f"another process has been making {what} in {path.parent} for over {wait_seconds:.0f} s",
                fix=f"wait for it, or end it and remove {lock}",
            ) from error
    return path


def _build_locked(path: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{path.name}."
    # We hold the lock, so a folder of this name was left by a process that died.
    for stale in path.parent.glob(f"{prefix}*.part"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=prefix, suffix=".part"))
    try:
        build(temporary)
        seal(temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


_FREE_SPACE = "choose another --out, or free space (earlier files are kept)"
# What the errors of torch.save, safetensors and tokenizers say of a failed write; the second when the file is closed.
_FAILED_WRITE = re.compile(
    "PytorchStreamWriter|unexpected pos| serializing|No space left|File too large|os error 28"
)


@contextlib.contextmanager
def writing(path: Path, *, fix: str = _FREE_SPACE) -> Iterator[None]:
    """Turn a failed write inside the block, also one of a library, into the error of `cannot_write`.

    It names the file that the system names, or else `path`.
    """
    try:
        yield
    except LengthwiseError:
        raise
    except OSError as error:
        raise cannot_write(Path(error.filename or path), error, fix=fix) from error
    except Exception as error:
        if _FAILED_WRITE.search(str(error)) is None:
            raise
        raise cannot_write(path, OSError(reason(error)), fix=fix) from error


def cannot_write(path: Path, error: OSError, *, fix: str = _FREE_SPACE) -> LengthwiseError:
    """The error for a path that cannot be written, with the system's reason."""
    # Of a copied folder it is a list: source, target and reason of each file.
    cause = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or error
    return LengthwiseError(
        f"cannot write {path}: {cause}",
        expected="a folder that can be written, on a disk with room",
        fix=fix,
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
