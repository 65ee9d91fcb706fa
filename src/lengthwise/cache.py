"""The cache folder, and folders built in it once, atomically, by one process at a time."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from lengthwise.errors import LengthwiseError
from lengthwise.files import first_damaged, seal, share, write_failure

logger = logging.getLogger(__name__)

_VERIFIED: set[Path] = set()


def cache_dir() -> Path:
    """Where converted models and tokens are kept.

    `$LENGTHWISE_CACHE`, else `$XDG_CACHE_HOME/lengthwise`, else `~/.cache/lengthwise`.
    """
    if explicit := os.environ.get("LENGTHWISE_CACHE"):
        return Path(explicit).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "lengthwise"
    return Path.home() / ".cache" / "lengthwise"


def build_once(
    path: Path, build: Callable[[Path], None], *, what: str, wait_seconds: float = 4 * 3600
) -> Path:
    """Return `path`, built by `build` if it does not exist yet.

    `build` gets a temporary folder beside `path`, which is renamed to `path` when it returns. So `path`
    never holds a half-made thing: after an error or a kill the next call removes what was left and builds
    again. Other processes that want the same `path` wait for the one that builds. The SHA-256 of every file is
    kept in `complete.json`, and compared at the first use in each process: what was damaged is built again, with
    a warning.

    Args:
        path: the folder to return.
        build: fills the folder it is given.
        what: named in the error message, e.g. "the converted model smollm2-135m".
        wait_seconds: how long to wait for another process that builds the same thing.

    Raises:
        LengthwiseError: the cache cannot be written, or another process holds it for too long.
    """
    if path.exists() and (path in _VERIFIED or first_damaged(path) is None):
        # Without a lock: a shared cache may be read-only.
        _VERIFIED.add(path)
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.parent / f".{path.name}.lock")
        with lock.acquire(timeout=wait_seconds):
            if path.exists() and (damaged := first_damaged(path)) is not None:
                logger.warning("%s: %s in the cache is damaged; it is made again", what, path / damaged)
                shutil.rmtree(path)
            if not path.exists():
                _build_locked(path, build)
            _VERIFIED.add(path)
    except Timeout as error:
        raise LengthwiseError(
            f"another process has been making {what} in {path.parent} for over {wait_seconds:.0f} s",
            fix=f"wait for it, or end it and remove {path.parent / f'.{path.name}.lock'}",
        ) from error
    except LengthwiseError:
        raise
    except Exception as error:
        failure = write_failure(error)
        if failure is None:
            raise
        raise LengthwiseError(
            f"cannot make {what} in {path.parent}: {failure.strerror or failure}",
            expected="a cache folder that can be written, on a disk with room",
            fix="free space, or set LENGTHWISE_CACHE to another folder",
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
        share(temporary)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
