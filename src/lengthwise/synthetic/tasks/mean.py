"""The mean of a string of bits: its outcomes lie in [0, 1] at every length (Fig. 1a).

>>> import torch
>>> bits = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]])
>>> MEAN.outcome(bits, torch.tensor([4, 2])).tolist()
[0.75, 0.5]
>>> [round(p, 4) for p in MEAN.outcomes(2).probabilities.tolist()]
[0.25, 0.5, 0.25]
"""

from __future__ import annotations

from torch import Tensor

from lengthwise.synthetic.tasks.bits import BitTask, Outcomes, count_law, fair_bits, uniform_count_bits


def mean(bits: Tensor, lengths: Tensor) -> Tensor:
    """Ones over length [N]."""
    return bits.sum(-1) / lengths


def _law(length: int, *, uniform: bool) -> Outcomes:
    counts, probabilities = count_law(length, uniform=uniform)
    return Outcomes(counts / length, probabilities)


MEAN = BitTask("mean", "mean of fair bits", fair_bits, mean, lambda length: _law(length, uniform=False))
UNIFORM_COUNT_MEAN = BitTask(
    "uniform-count-mean",
    "mean of bits whose number of ones is uniform (Fig. 5)",
    uniform_count_bits,
    mean,
    lambda length: _law(length, uniform=True),
)
