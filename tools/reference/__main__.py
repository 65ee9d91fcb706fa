"""Write the generated pages of the reference: `python -m tools.reference` (`make tables`).

Their text comes from the code: from declared options, fields, docstrings and literal tables. The pages are committed,
so that a change of the interface is seen in review and they can be read without building the site.
`tests/test_reference.py` fails when one of them is not what the code gives.
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.files import atomic_write_text
from tools.reference.generated import pages

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

if __name__ == "__main__":
    for name, text in pages().items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            atomic_write_text(path, text)
            print(f"written: {path}")
