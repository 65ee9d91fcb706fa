"""Mutated recipes: each is read, or refused with an explanation; none ends in a traceback or hangs."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

from mutate import mutated
from stage import Stage
from trial import Trial

PROMISE = "every recipe is read or refused with an explanation"
SECONDS = 10


def trials(stage: Stage, rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` mutations of the stage's recipe and of those that ship, read in this process."""
    from lengthwise.training import shipped_recipes

    texts = [stage.recipe.read_text(), *(path.read_text() for path in shipped_recipes().values())]
    file = stage.folder / "mutated.yaml"
    for index in range(count):
        text = mutated(rng.choice(texts), rng)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        fault = _read(file)
        if fault:
            kept = stage.folder / f"recipe-{index}.yaml"
            kept.write_bytes(file.read_bytes())
            fault += f" ({kept})"
        yield Trial(f"recipe {index}", fault)


def _read(file) -> str | None:
    from lengthwise.errors import LengthwiseError
    from lengthwise.training import read_recipe

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        read_recipe(str(file))
    except LengthwiseError as error:
        return f"an explanation of {len(str(error))} characters" if len(str(error)) > 10_000 else None
    except TimeoutError:
        return f"hangs for {SECONDS} s"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {str(error)[:120]}"
    finally:
        signal.alarm(0)
    return None
