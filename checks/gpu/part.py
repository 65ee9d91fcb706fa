"""What every part has: its options, and a result that is kept after each thing it finds."""

from __future__ import annotations

import argparse
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def options() -> argparse.Namespace:
    """As `checks/gpu` calls a part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="a folder that the parts share")
    parser.add_argument("rest", nargs="*")
    return parser.parse_args()


class Result(dict[str, Any]):
    """A part's findings; `keep` writes them, so that a part that is killed has given what it found so far."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def keep(self, **found: Any) -> None:
        """Add and write."""
        self.update(found)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self, indent=1, default=str))
        os.replace(fresh, self._path)


def attempt(work: Callable[[], Any]) -> dict[str, Any]:
    """What `work` returns, or its error with the traceback."""
    try:
        found = work()
        return found if isinstance(found, dict) else {"value": found}
    except Exception as error:
        print(traceback.format_exc()[-3000:])
        return {
            "error": f"{type(error).__name__}: {error}"[:2000],
            "traceback": traceback.format_exc()[-8000:],
        }
