"""The output head inside the fused objective: its products, its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise.alignment.tile import wide_dtype

# Rows of the weight's gradient that are added at a time where its sum has another dtype than the products.
_VOCABULARY_BLOCK = 8192

# A 16-bit weight's gradient is summed in 16 bits over this many chunks at most: each sum rounds again.
_CHUNKS_IN_16_BITS = 3


class FusedHead:
    """Weight [V, d] and bias [V] in the `dtype` of the products, and their gradients where `needed`.

    The weight's gradient is summed in `accumulate_dtype`; None is fp32 for a 16-bit weight in more than a few
    `chunks` (how many times `add_gradient` will be called), else the weight's own.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        *,
        dtype: torch.dtype,
        accumulate_dtype: torch.dtype | None,
        needed: Sequence[bool],
        chunks: int,
    ) -> None:
        if accumulate_dtype is None:
            accumulate_dtype = weight.dtype if chunks <= _CHUNKS_IN_16_BITS else wide_dtype(weight.dtype)
        self._weight_dtype, self._bias_dtype = weight.dtype, None if bias is None else bias.dtype
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)
        self._weight_sum = torch.zeros_like(weight, dtype=accumulate_dtype) if needed[0] else None
        self._bias_sum = None
        if bias is not None and needed[1]:
            self._bias_sum = torch.zeros_like(bias, dtype=wide_dtype(bias.dtype))

    def linear(self, hidden: Tensor, *, out: Tensor) -> Tensor:
        """hidden W^T + bias: [n, d] -> [n, V]."""
        if self._bias is None:
            return torch.mm(hidden, self._weight.t(), out=out)
        return torch.addmm(self._bias, hidden, self._weight.t(), out=out)

    def hidden_gradient(self, logit_gradient: Tensor) -> Tensor:
        """[n, V] -> [n, d]."""
        return logit_gradient @ self._weight

    def add_gradient(self, logit_gradient: Tensor, hidden: Tensor) -> None:
        """Add the share of rows [n, V] with hidden states [n, d]."""
        if self._bias_sum is not None:
            self._bias_sum += logit_gradient.sum(dim=0, dtype=self._bias_sum.dtype)
        total = self._weight_sum
        if total is None:
            return
        if total.dtype == logit_gradient.dtype:
            total.addmm_(logit_gradient.t(), hidden)
            return
        for block, columns in zip(
            total.split(_VOCABULARY_BLOCK), logit_gradient.split(_VOCABULARY_BLOCK, dim=1), strict=True
        ):
            block += columns.t() @ hidden

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Of weight and bias, in their own dtypes."""
        weight = None if self._weight_sum is None else self._weight_sum.to(self._weight_dtype)
        bias = None if self._bias_sum is None else self._bias_sum.to(self._bias_dtype)
        return weight, bias
