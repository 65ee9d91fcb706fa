"""The tasks, one file each, and the two literal tables of them."""

from __future__ import annotations

from lengthwise.errors import UsageError, nearest
from lengthwise.synthetic.tasks.addition import ADDITION, HINTED_ADDITION
from lengthwise.synthetic.tasks.binary_addition import BINARY_ADDITION
from lengthwise.synthetic.tasks.binary_multiplication import BINARY_MULTIPLICATION
from lengthwise.synthetic.tasks.bits import BitTask
from lengthwise.synthetic.tasks.bracketed_arithmetic import BRACKETED_ARITHMETIC
from lengthwise.synthetic.tasks.compute_sqrt import COMPUTE_SQRT
from lengthwise.synthetic.tasks.copy import COPY
from lengthwise.synthetic.tasks.cycle_navigation import CYCLE_NAVIGATION
from lengthwise.synthetic.tasks.duplicate import DUPLICATE
from lengthwise.synthetic.tasks.even_pairs import EVEN_PAIRS
from lengthwise.synthetic.tasks.length import LENGTH
from lengthwise.synthetic.tasks.mean import MEAN, UNIFORM_COUNT_MEAN
from lengthwise.synthetic.tasks.missing_duplicate import MISSING_DUPLICATE
from lengthwise.synthetic.tasks.modular_arithmetic import MODULAR_ARITHMETIC
from lengthwise.synthetic.tasks.odds_first import ODDS_FIRST
from lengthwise.synthetic.tasks.parity import PARITY
from lengthwise.synthetic.tasks.reverse import REVERSE
from lengthwise.synthetic.tasks.solve_equation import SOLVE_EQUATION
from lengthwise.synthetic.tasks.sort import BUCKET_SORT, SORT
from lengthwise.synthetic.tasks.stack_manipulation import STACK_MANIPULATION
from lengthwise.synthetic.tasks.sum import SUM, UNIFORM_COUNT_SUM
from lengthwise.synthetic.tasks.symbols import SymbolTask

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
