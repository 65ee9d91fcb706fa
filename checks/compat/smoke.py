"""The import and every measuring verb once, on a tiny model and a text file: `python checks/compat/smoke.py`.

Modules that are named behind it cannot be imported: `smoke.py peft datasets`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

TEXT = "--text text.txt --split all --windows 2"
VERBS = (
    f"ppl model {TEXT} --lengths 64",
    f"limit model {TEXT} --max-length 256 --reference 32",
    f"measure model {TEXT} --lengths 64",
    f"longppl model {TEXT} --max-length 96 --short 32",
    f"compare model model {TEXT} --lengths 64 --b read=chunks=16",
    "eval model needle_single --text text.txt --split all --lengths 512 --samples 1",
    "doctor",
    "doctor model",
)


def main() -> None:
    for name in sys.argv[1:]:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    import lengthwise
    from lengthwise.cli.main import run
    from lengthwise.testing import save_tiny_model, tiny_text

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["LENGTHWISE_CACHE"] = str(Path(folder, "cache"))
        save_tiny_model(Path("model"))
        Path("text.txt").write_text(tiny_text(3000))
        for words in VERBS:
            if code := run(words.split()):
                sys.exit(f"lengthwise {words}: exit code {code}")
    print(f"import and {len(VERBS)} commands passed, lengthwise {lengthwise.__version__}")


if __name__ == "__main__":
    main()
