"""A needle as a sparse task: one sentence at distance D decides the next token of a long text.

In the data k = 1: the answer is in one place. What a model needs of it is measured as `influence` does it: loss and
Jeffreys with and without the distant tokens, the rank of the answer's token among them, and what few kept tokens
recover.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import UsageError
from lengthwise.measure.kept_context import by_gradient, distant_positions, examine, greedy, losses_keeping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel

SENTENCE = " The secret word is"
ANSWERS = (" silver", " garden", " winter", " orange", " castle", " bottle", " purple", " summer")


@dataclass(frozen=True)
class Needle:
    """A text that ends with the answer.

    Args:
        ids: tokens [T]; the last is the first token of the answer.
        answer: index of the answer's first token in the needle.
        sentence: indices of the needle up to there, in order.
    """

    ids: NDArray[np.int64]
    answer: int
    sentence: tuple[int, ...]


def planted(
    background: NDArray[np.integer], sentence: NDArray[np.int64], answer: int, distance: int
) -> Needle:
    """Put a sentence and its answer in a text so that the answer is `distance` tokens before its second place.

    Args:
        background: tokens [T]; the sentence at the end and the needle replace some.
        sentence: tokens of what comes before the answer.
        answer: the token asked for.
        distance: D; more than the sentence's length, and the needle must fit after the first token.

    Raises:
        UsageError: a distance at which the needle does not fit.
    """
    ids, last, size = background.astype(np.int64), len(background) - 1, len(sentence)
    at = last - distance
    if distance <= size or at - size < 1:
        raise UsageError(
            f"a needle of {size + 1} tokens at distance {distance} in {len(ids)} tokens",
            expected=f"a distance of {size + 1} to {last - size - 1}",
        )
    for end in (at, last):
        ids[end - size : end], ids[end] = sentence, answer
    return Needle(ids, at, tuple(range(at - size, at + 1)))


def examine_needle(
    model: LoadedModel, needle: Needle, *, short: int, kept: tuple[int, ...], candidates: int, batch_size: int
) -> dict[str, Any]:
    """What the needle is worth, and which distant tokens carry it.

    Returns:
        `long`, `short`, `jeffreys` in nats. Where the needle is out of the near context also `rank`, of the answer's
        token by gradient times embedding (1 is the first); `chosen`, how many of the first k greedy tokens are in the
        needle, `greedy`, the loss with them, both by k; `alone` and `sentence`, the loss with the answer's token
        alone and with the whole needle.
    """
    target = len(needle.ids) - 1
    [[all_context], [near], [jeffreys]] = examine(
        model, needle.ids, np.array([target]), short=short, batch_size=batch_size
    ).tolist()
    record: dict[str, Any] = {"long": all_context, "short": near, "jeffreys": jeffreys}
    distant = set(distant_positions(target, short).tolist())
    if needle.answer not in distant:
        return record
    [ranked] = by_gradient(model, [needle.ids], [target], short=short)
    keeping = partial(losses_keeping, model, [needle.ids], [target], short=short, batch_size=batch_size)
    [picks] = greedy(keeping, [ranked[:candidates]], max(kept))
    sets = [picks[:k] for k in kept]
    told = [[needle.answer], [one for one in needle.sentence if one in distant]]
    [losses] = keeping([[*sets, *told]])
    return record | {
        "rank": ranked.index(needle.answer) + 1,
        "chosen": [len(set(some) & set(needle.sentence)) for some in sets],
        "greedy": losses[: len(kept)].tolist(),
        "alone": float(losses[-2]),
        "sentence": float(losses[-1]),
    }
