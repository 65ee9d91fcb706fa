"""The tasks, files by subject, and the two literal tables of them."""

from __future__ import annotations

from lengthwise.errors import UsageError, nearest
from lengthwise_studies.synthetic.tasks.addition import ADDITION, HINTED_ADDITION
from lengthwise_studies.synthetic.tasks.binary import BINARY_ADDITION, BINARY_MULTIPLICATION, COMPUTE_SQRT
from lengthwise_studies.synthetic.tasks.bits import (
    LENGTH,
    MEAN,
    SUM,
    UNIFORM_COUNT_MEAN,
    UNIFORM_COUNT_SUM,
    BitTask,
)
from lengthwise_studies.synthetic.tasks.modular_arithmetic import (
    BRACKETED_ARITHMETIC,
    MODULAR_ARITHMETIC,
    SOLVE_EQUATION,
)
from lengthwise_studies.synthetic.tasks.rearranging import (
    BUCKET_SORT,
    COPY,
    DUPLICATE,
    MISSING_DUPLICATE,
    ODDS_FIRST,
    REVERSE,
    SORT,
)
from lengthwise_studies.synthetic.tasks.regular import CYCLE_NAVIGATION, EVEN_PAIRS, PARITY
from lengthwise_studies.synthetic.tasks.stack_manipulation import STACK_MANIPULATION
from lengthwise_studies.synthetic.tasks.symbols import SymbolTask

BIT_TASKS: dict[str, BitTask] = {
    task.name: task for task in (MEAN, LENGTH, SUM, UNIFORM_COUNT_MEAN, UNIFORM_COUNT_SUM)
}
SYMBOL_TASKS: dict[str, SymbolTask] = {
    task.name: task
    for task in (
        PARITY,
        EVEN_PAIRS,
        CYCLE_NAVIGATION,
        MODULAR_ARITHMETIC,
        REVERSE,
        STACK_MANIPULATION,
        BRACKETED_ARITHMETIC,
        SOLVE_EQUATION,
        DUPLICATE,
        ODDS_FIRST,
        BUCKET_SORT,
        MISSING_DUPLICATE,
        BINARY_ADDITION,
        BINARY_MULTIPLICATION,
        COMPUTE_SQRT,
        COPY,
        SORT,
        ADDITION,
        HINTED_ADDITION,
    )
}


def bit_task(name: str) -> BitTask:
    """The task of that name with one number as outcome.

    Raises:
        UsageError: there is none.
    """
    if name not in BIT_TASKS:
        raise UsageError(f"there is no task {name!r}", expected=nearest(name, BIT_TASKS))
    return BIT_TASKS[name]
