"""Values that break programs, and mutations of text that put them where they hurt."""

from __future__ import annotations

import random

VALUES = [
    "", "''", "null", "~", "true", "no", "yes", "-1", "0", "-0.0", "1e308", "1e-400", ".inf", "-.inf", ".nan",
    "nan", "inf", "1" + "0" * 30, "9" * 5000, "0x10", "1_000", "1e5", "3.5", "[]", "{}", "[1, 2]", "{a: b}",
    "[[[[[[1]]]]]]", "a b", "'a: b'", "\"\\u0000\"", "\"\\ud800\"", "\"\\U00110000\"", "é", "\u202e", "*x", "&x 1",
    "!!python/object:os.system ls", "!!int ''", "!!float x", "!!timestamp 2020-99-99", "2020-13-45",
    "0000-00-00", "!!binary x", "!!set {a}", "? a", "- -", "|", ">", "%", "@", "`", "#", ":", "../..", "/dev/null",
    "/dev/zero", "x" * 300, "[" * 20000, "{" * 500,
]  # fmt: skip
SECTIONS = ["extend", "positions", "quantize", "adapter", "shifted_sparse", "views", "unknown"]


def value(rng: random.Random) -> str:
    """One of the values, or a number of any size."""
    if rng.random() < 0.25:
        return repr(rng.choice([rng.randint(-10, 10), rng.uniform(-1e3, 1e3), 10 ** rng.randint(1, 20)]))
    return rng.choice(VALUES)


def mutated(text: str, rng: random.Random) -> str:
    """`text` (YAML) with one to three things wrong."""
    lines = text.splitlines()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0 | 1 | 2 if ":" in lines[at]:
                lines[at] = lines[at].partition(":")[0] + ": " + value(rng)
            case 3:
                lines.insert(at, lines[at])
            case 4:
                del lines[at]
                lines = lines or ["x: 1"]
            case 5:
                lines[at] = " " * rng.randrange(5) + lines[at]
            case 6 if lines[at]:
                place = rng.randrange(len(lines[at]))
                lines[at] = (
                    lines[at][:place]
                    + chr(rng.choice([0, 9, 34, 58, 91, 0xFEFF, 0x2028, 127, 955]))
                    + lines[at][place:]
                )
            case _:
                lines.append(f"{rng.choice(SECTIONS)}: {value(rng)}")
    return "\n".join(lines) + "\n"
