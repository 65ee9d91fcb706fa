"""What torchrun starts: the worker of the first argument, as if bitsandbytes were not installed.

PEFT imports it, which takes longer than torch itself, and no worker has 4-bit weights.
"""

import runpy
import sys

if __name__ == "__main__":
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
