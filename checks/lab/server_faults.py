"""Faults of servers, behind the stub of the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from checks.lab.cache_faults import path
from checks.lab.sides import Base, Pair, Says, Side, loaded
from checks.lab.weight_faults import top
from lengthwise.models import Endpoint

# Another package of the environment may be called `tests`, too.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "served"))
import stub  # noqa: E402

Reads = Callable[[list[int]], list[int]]
"""The ids of a prompt -> what the server reads in their place, as many."""
Says_ = Callable[[torch.Tensor], torch.Tensor]


class Server(stub.Stub):
    """A server that reads other ids, or says other log-probabilities than those of its model.

    Args:
        read: ids of a prompt -> the ids that it reads.
        log_p: log p of all tokens [T, V] -> what it takes them from.
        said: log p of the tokens of the prompt -> what it says.
    """

    def __init__(self, model: Any, *, read: Any = None, log_p: Any = None, said: Any = None, **how: Any) -> None:
        super().__init__(model, **how)
        self.read, self.log_p, self.said = read, log_p, said
