"""The embedded corpus `code`: long files of installed Python packages, in a list with hashes (`source_code.json`).

The list fixes the text: a file whose content is not the listed one is left out and counted. So equal versions of the
packages read equal text. `write_list` makes the list anew from the installed versions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError
from lengthwise.text.corpus import Corpus, Document, Split

INSTALL = "pip install torch==2.13.0 transformers==5.23.0 sympy==1.14.0"

STANDARD_LIBRARY = "python"
"""The one source that may be missing: its files change with each patch version. It is in no test split."""

HELD_OUT = (
    "torch/ao/",
    "torch/distributed/",
    "torch/onnx/",
    "transformers/generation/",
    "sympy/physics/",
    "sympy/polys/",
    "sympy/stats/",
)
"""Subpackages that are held out whole. Files of one subpackage share names and idioms."""

_LIST = Path(__file__).with_name("source_code.json")
_PACKAGES = ("torch", "transformers", "sympy", STANDARD_LIBRARY)
_SIZES = range(72 * 1024, 256 * 1024)
"""Bytes of a listed file: 16k tokens of SmolLM2 or more, and none that outweighs a subpackage."""
# Tests, generated, vendored and tabular files; the models of transformers, which copy each other. _dynamo and
# _inductor would be most of torch.
_NOT_LISTED = re.compile(
    r"/tests?/|/testing/|/testing_utils|/benchmarks/|/generated/|_antlr|vendor|hipify|_triton_ops_meta"
    r"|^torch/_(dynamo|inductor)/|^transformers/models/|^sympy/matrices/common|polyquinticconst"
    r"|^python/(site-packages|idlelib|lib2to3|pydoc_data|html/entities|locale|config-)"
)


def load_code(split: Split) -> Corpus:
    """Long files of torch, transformers, sympy and the standard library, one document each.

    The subpackages of `HELD_OUT` are the test split. `left_out` counts the listed files whose content differs.

    Raises:
        MissingError: a package is not installed, or holds none of its listed files.
    """
    documents: list[Document] = []
    left_out: Counter[str] = Counter()
    for package, listed in json.loads(_LIST.read_text(encoding="utf-8")).items():
        wanted = {
            name: digest
            for name, digest in listed["files"].items()
            if split == "all" or name.startswith(HELD_OUT) == (split == "test")
        }
        found = _read(package, wanted)
        here = _version(package)
        if wanted and not found and package != STANDARD_LIBRARY:
            raise MissingError(
                f"the corpus 'code' is made from {package} {listed['version']}; "
                + (f"of {package} {here} no file is the same" if here else "it is not installed"),
                fix=INSTALL,
            )
        documents += [Document(name, text) for name, text in found.items()]
        if differ := len(wanted) - len(found):
            left_out[f"that differ in {package} {here} from {listed['version']}"] = differ
    rule = "all documents" if split == "all" else "fixed: whole subpackages are held out as test"
    return replace(Corpus.of("code", documents, split=split, split_rule=rule), left_out=dict(left_out))


def _read(package: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """The texts of the files that are here and have the listed SHA-256."""
    folder = _folder(package)
    found: dict[str, str] = {}
    for name, digest in wanted.items():
        try:
            content = (folder / name.partition("/")[2]).read_bytes() if folder else b""
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            found[name] = content.decode("utf-8")
    return found


def _folder(package: str) -> Path | None:
    # Packages are not imported: only their files are needed.
    if package == STANDARD_LIBRARY:
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _version(package: str) -> str | None:
    """The installed version, without a build's own suffix (`+cpu`), which changes no listed file."""
    if package == STANDARD_LIBRARY:
        return platform.python_version()
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def write_list() -> None:
    """Write the list from the installed packages: after a change of versions in constraints.txt."""
    listed: dict[str, Any] = {}
    for package in _PACKAGES:
        folder = _folder(package)
        assert folder is not None, package
        names = {f"{package}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
        files = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in sorted(names.items())
            if path.stat().st_size in _SIZES and not _NOT_LISTED.search(name)
        }
        listed[package] = {"version": _version(package), "files": files}
    _LIST.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
