"""What a shortcut may raise: what the model's own code raises, and what this package says in words."""

import itertools
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lengthwise.checkpoints.head import NonFiniteLogits
from lengthwise.checkpoints.probe import TOLERANCE, differs
from lengthwise.errors import UsageError
from lengthwise.subjects.proof import Proofs

HERE = torch.zeros(2, 3)
"""What every reading gives that does not fail."""


class Narrow(nn.Module):
    """Its code is none of this package: as transformers' is, and that of a cache."""

    def forward(self, states: Tensor) -> Tensor:
        if states.dim() > 2:
            raise RuntimeError("it takes no batch")
        return states @ torch.zeros(3, 3)


def raising(error: BaseException) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> Any:
        raise error

    return fails


REFUSED = {
    "the model": (lambda: Narrow()(torch.zeros(1, 2, 3)), "it takes no batch"),
    "torch, in the model": (lambda: Narrow()(torch.zeros(2, 4)), "mat1 and mat2 shapes cannot be multiplied"),
    "an argument that it does not take": (lambda: Narrow()(HERE, mask=HERE), "unexpected keyword argument 'mask'"),
    "a refusal in words": (raising(UsageError("its cache drops tokens")), "its cache drops tokens"),
    "logits that are no numbers": (raising(NonFiniteLogits(3)), "position 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_shortcut_that_the_model_does_not_take_is_given_up(case, caplog):
    fast, why = REFUSED[case]
    proofs = Proofs()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not proofs.take("tree", 8, fast, lambda: HERE, name="m")
    assert proofs.failed("tree")
    [record] = caplog.records
    assert record.getMessage().startswith("m: slower, without tree: ")
    assert why in record.getMessage()


RAISED: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor], type[BaseException]]] = {
    "memory of a GPU": (raising(torch.OutOfMemoryError()), lambda: HERE, torch.OutOfMemoryError),
    "memory": (raising(RuntimeError("DefaultCPUAllocator: can't allocate memory")), lambda: HERE, RuntimeError),
    "a bug of this package": (lambda: differs(None, HERE), lambda: HERE, AttributeError),  # pyright: ignore
    "another shape": (lambda: HERE[:1], lambda: HERE, AssertionError),
    "the plain reading": (lambda: HERE, raising(RuntimeError("it takes no batch")), RuntimeError),
    "a plain reading that is refused": (lambda: HERE, raising(UsageError("too long")), UsageError),
    "Ctrl-C": (raising(KeyboardInterrupt()), lambda: HERE, KeyboardInterrupt),
}  # fmt: skip


@pytest.mark.parametrize("case", RAISED)
def test_what_says_nothing_about_the_shortcut_propagates(case: str) -> None:
    fast, plain, kind = RAISED[case]
    proofs = Proofs()
    with pytest.raises(kind):
        proofs.take("tree", 8, fast, plain, name="m")
    assert not proofs.up_to, "it is tried again, with a smaller batch or after the bug is mended"


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_one_large_dimension_hides_no_difference(dtype: torch.dtype) -> None:
    """As in SmolLM2, where one of 576 dimensions reaches 53, and the others are near 0.6."""
    generator = torch.Generator().manual_seed(0)
    rows, others = torch.randn(2, 100, 576, generator=generator, dtype=torch.float64)
    rows[40, 7] = others[40, 7] = 50
    eps = torch.finfo(dtype).eps
    rounded = rows * (1 + eps * torch.randn(rows.shape, generator=generator))
    assert not any(differs(rounded.to(dtype), rows.to(dtype), product=product) for product in (False, True))
    one, alone = rows.clone(), rows.clone()
    one[90], alone[:, :7] = others[90], others[:, :7] * 10
    for found, product in itertools.product(
        (others, one, alone, torch.full_like(rows, torch.nan)), (False, True)
    ):
        assert differs(found.to(dtype), rows.to(dtype), product=product) is not None


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("banned", [-1e5, -1e9, -3e38, 1e9, -math.inf])
def test_a_token_that_is_banned_hides_no_difference(banned: float, dtype: torch.dtype) -> None:
    """By a number or by minus infinity, in one row or in all: the other logits are compared as without it."""
    generator = torch.Generator().manual_seed(0)
    # float16 ends at 65504.
    value = banned if math.isinf(banned) else max(min(banned, torch.finfo(dtype).max), torch.finfo(dtype).min)
    for where in (slice(None), slice(7, 8)):
        rows, others = torch.randn(2, 40, 64, generator=generator, dtype=torch.float64)
        rounded = rows * (1 + torch.finfo(dtype).eps * torch.randn(rows.shape, generator=generator))
        other = rows.clone()
        rows[where, 3] = rounded[where, 3] = others[where, 3] = value
        other[where, 3] = 0.0 if math.isinf(value) else value / 2
        for product in (False, True):
            equal, *unlike = (
                differs(each.to(dtype), rows.to(dtype), product=product) for each in (rounded, others, other)
            )
            assert equal is None
            assert None not in unlike
