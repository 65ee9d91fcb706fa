"""`python -m lengthwise` (and `torchrun -m lengthwise`) is the `lengthwise` command."""

import sys


def main() -> int:
    """`lengthwise.cli.main.run`, and Ctrl-C while that is imported."""
    try:
        from lengthwise.cli.main import run
    except KeyboardInterrupt:
        print("lengthwise: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
