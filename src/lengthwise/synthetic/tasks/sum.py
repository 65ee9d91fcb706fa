"""The sum of a string of bits: its outcomes 0 .. l grow with the length l (Fig. 3 and 4).

>>> import torch
>>> bits = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]])
>>> SUM.outcome(bits, torch.tensor([4, 2])).tolist()
[3.0, 1.0]
>>> UNIFORM_COUNT_SUM.outcomes(3).probabilities.tolist()
[0.25, 0.25, 0.25, 0.25]
"""

from __future__ import annotations

from torch import Tensor

from lengthwise.synthetic.tasks.bits import BitTask, count_law, fair_bits, uniform_count_bits


def total(bits: Tensor, lengths: Tensor) -> Tensor:
    """Ones [N]."""
    return bits.sum(-1).float()


SUM = BitTask("sum", "sum of fair bits", fair_bits, total, lambda length: count_law(length, uniform=False))
UNIFORM_COUNT_SUM = BitTask(
    "uniform-count-sum",
    "sum of bits whose number of ones is uniform",
    uniform_count_bits,
    total,
    lambda length: count_law(length, uniform=True),
)
