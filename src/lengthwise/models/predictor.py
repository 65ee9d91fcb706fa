"""What every measurement asks of a model, wherever it runs: the log-probabilities of given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class Reader(Protocol):
    """What deciding on the items of a measurement needs of a model; a dry run knows it without the weights."""

    name: str
    """As the user wrote it."""
    tokenizer: Any

    @property
    def max_positions(self) -> int | None:
        """Tokens of the longest view; None without a limit."""
        ...

    @property
    def trained_length(self) -> int | None:
        """Context in tokens that the model was trained for, before any extension; None if not known."""
        ...


class Predictor(Reader, Protocol):
    """A model that predicts tokens: a `LoadedModel`, or an `Endpoint` that serves one.

    A `LoadedModel` also gives hidden states, so the whole distribution at every position. What needs these asks
    for a `LoadedModel`.
    """

    def check_ready(self, tokens: int) -> None:
        """Raise UsageError if views of `tokens` tokens cannot be read."""
        ...

    def token_losses(self, views: Sequence[NDArray[Any]], labels: Sequence[NDArray[Any]]) -> list[Tensor]:
        """-log p(label) after the last N tokens of each view: fp64 [N] each, nats, on the CPU.

        Args:
            views: ids [T], the token at each position; T may differ.
            labels: the token after each of the last N tokens of its view, [N]. All but the last are in the view too.

        Raises:
            NonFiniteLogits: with the index of the view (`view`) and the position in it.
        """
        ...

    def next_logits(self, view: NDArray[Any]) -> Tensor:
        """Logits (up to a constant) of the token after a view: [1, V]."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """What a resumed run must find unchanged."""
        ...

    def describe(self) -> dict[str, Any]:
        """What a result records about its model; JSON values only."""
        ...
