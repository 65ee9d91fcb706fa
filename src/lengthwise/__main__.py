"""`python -m lengthwise` (and `torchrun -m lengthwise`) is the `lengthwise` command."""

import sys

from lengthwise.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
