"""Stack manipulation: what does a stack (bottom first) hold after pushes A and B and pops P? Top first.

A question is the stack and then the operations; a pop of an empty stack does nothing.
Deletang et al. pad the answer; here it ends where the stack does.

>>> STACK_MANIPULATION.answer("abb" + "PAB")
'baba'
>>> STACK_MANIPULATION.answer("a" + "PP")
''
"""

from __future__ import annotations

import random

from lengthwise_studies.synthetic.tasks.symbols import SymbolTask


def stack_manipulation(question: str) -> str:
    """The symbols of the final stack from its top."""
    stack: list[str] = []
    for symbol in question:
        if symbol == "P":
            stack = stack[:-1]
        else:
            stack.append(symbol.lower())
    return "".join(reversed(stack))


def _draw(length: int, rng: random.Random) -> str:
    filled = rng.randint(1, length)
    stack = (rng.choice("ab") for _ in range(filled))
    operations = (rng.choice("ABP") for _ in range(length - filled))
    return "".join(stack) + "".join(operations)


STACK_MANIPULATION = SymbolTask(
    "stack-manipulation",
    "a stack after pushes and pops",
    "abABP",
    _draw,
    stack_manipulation,
    "context-free",
    "growing",
)
