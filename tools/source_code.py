"""Write the list of the text `code` from the installed packages, after a change of versions in constraints.txt.

python tools/source_code.py
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from lengthwise.text.embedded_texts import LISTED, installed_version, package_folder

PACKAGES = ("torch", "transformers", "sympy", "python")
SIZES = range(72 * 1024, 256 * 1024)
"""Bytes of a listed file: 16k tokens of SmolLM2 or more, and none that outweighs a subpackage."""
# Tests, generated, vendored and tabular files; the models of transformers, which copy each other. _dynamo and
# _inductor would be most of torch.
NOT_LISTED = re.compile(
    r"/tests?/|/testing/|/testing_utils|/benchmarks/|/generated/|_antlr|vendor|hipify|_triton_ops_meta"
    r"|^torch/_(dynamo|inductor)/|^transformers/models/|^sympy/matrices/common|polyquinticconst"
    r"|^python/(site-packages|idlelib|lib2to3|pydoc_data|html/entities|locale|config-)"
)


def main() -> None:
    """Write `source_code.json`: version, and SHA-256 of each file, by package."""
    listed: dict[str, Any] = {}
    for package in PACKAGES:
        folder = package_folder(package)
        assert folder is not None, package
        names = {f"{package}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
        files = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in sorted(names.items())
            if path.stat().st_size in SIZES and not NOT_LISTED.search(name)
        }
        listed[package] = {"version": installed_version(package), "files": files}
    LISTED.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
