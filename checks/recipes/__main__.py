"""Two steps of every 7B and 8B recipe on a tiny model, sharded over two processes (a minute).

    python checks/recipes [OUT [NAME...]]

`tests/training/sharded_recipes.py` is what the processes run, and says what comes into OUT (runs/sharded-recipes).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "tests" / "training" / "sharded_recipes.py"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")

if __name__ == "__main__":
    words = sys.argv[1:] or ["runs/sharded-recipes"]
    sys.exit(subprocess.run([sys.executable, "-m", *TORCHRUN, str(PROGRAM), *words]).returncode)
