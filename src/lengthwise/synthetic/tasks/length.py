"""The length of a string of bits: at length l the only outcome is l (Fig. 1b).

>>> LENGTH.outcome(torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]]), torch.tensor([4, 2])).tolist()
[4.0, 2.0]
>>> LENGTH.outcomes(7).values.tolist()
[7.0]
"""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.synthetic.tasks.bits import BitTask, Outcomes, fair_bits


def length(bits: Tensor, lengths: Tensor) -> Tensor:
    """The length [N]."""
    return lengths.float()


def _law(of: int) -> Outcomes:
    return Outcomes(torch.tensor([float(of)], dtype=torch.float64), torch.ones(1, dtype=torch.float64))


LENGTH = BitTask("length", "length of a string of fair bits", fair_bits, length, _law)
