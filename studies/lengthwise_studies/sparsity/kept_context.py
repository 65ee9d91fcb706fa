"""Predictions from part of a context: some tokens are kept, the others removed, and all positions stay.

A removed token is masked for every query: no token attends to it, in no layer. So its content reaches neither the
prediction nor the hidden states of the tokens in between, and a kept token is read with the kept tokens before it
alone. In a causal decoder this equals reading the kept tokens as one sequence at their own positions,

    h_t(x, mask = {s kept}) = h(x[kept], positions = kept),

which costs as many tokens as are kept. `check_removal` proves the equality for a model before it is used.

The first token of the window is kept in every context. Models use it as an attention sink; without it the first kept
token would take that part and lose its content.

Which tokens are kept: three ways to choose k of them well, and three controls, all with the best first. A choice is
made for several targets at once, whose contexts then fill the batches. Choices look at the loss of the target itself,
so they fit noise too: the same choice from a foreign text is the control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.checkpoints.head import hidden_states_for
from lengthwise.checkpoints.hidden import additive_mask
from lengthwise.checkpoints.probe import differs
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure.distributions import in_step, jeffreys
from lengthwise.measure.measurement import in_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.subjects import LoadedModel

    Positions = NDArray[np.int64]
    Windows = Sequence[NDArray[np.int64]]
    Kept = Sequence[int] | Positions
    Sets = Sequence[Sequence[Kept]]
    """Of every target, sets of distant tokens."""
    Losses = Callable[[Sets], list[NDArray[np.float64]]]
    """The losses of every target with each of its sets (see `losses_keeping`)."""

_PROBE = 24


def distant_positions(target: int, short: int) -> Positions:
    """The tokens that can be removed before the target: all but the first token and the last `short` ones."""
    return np.arange(1, target - short)


def context(target: int, short: int, kept: Kept = ()) -> Positions:
    """Positions of the first token, the `kept` distant ones and the last `short` before the target, in order."""
    near = np.arange(target - short, target)
    return np.concatenate([[0], np.sort(np.asarray(kept, dtype=np.int64)), near])


@torch.no_grad()
def read_contexts(
    model: LoadedModel, windows: Windows, contexts: Sequence[Positions], *, batch_size: int
) -> Tensor:
    """The last row of every context (see `context`) of its window, read on its own: [N, ...], for the head.

    Contexts of equal length go together, `batch_size` at a time.
    """
    rows: dict[int, Tensor] = {}
    by_length = sorted(range(len(contexts)), key=lambda index: len(contexts[index]))
    for _, alike in groupby(by_length, key=lambda index: len(contexts[index])):
        for group in in_groups(alike, batch_size):
            tokens = np.stack([windows[index][contexts[index]] for index in group])
            positions = torch.from_numpy(np.stack([contexts[index] for index in group]))
            hidden = model.hidden_states(torch.from_numpy(tokens), position_ids=positions)
            rows |= zip(group, hidden[:, -1], strict=True)
    return torch.stack([rows[index] for index in range(len(contexts))])


def losses_keeping(
    model: LoadedModel, windows: Windows, targets: Sequence[int], kept: Sets, *, short: int, batch_size: int
) -> list[NDArray[np.float64]]:
    """The loss of every target, each in its window, with each of its sets of distant tokens: nats.

    The contexts of all targets go together. NonFiniteLogits is raised where a loss is NaN or infinite.
    """
    each = zip(windows, targets, kept, strict=True)
    every = [(ids, target, some) for ids, target, sets in each for some in sets]
    if not every:
        return [np.empty(0) for _ in kept]
    contexts = [context(target, short, some) for _, target, some in every]
    rows = read_contexts(model, [ids for ids, *_ in every], contexts, batch_size=batch_size)
    losses = model.rows(rows).losses(np.array([ids[target] for ids, target, _ in every])).numpy()
    return np.split(losses, np.cumsum([len(sets) for sets in kept])[:-1])


def examine(
    model: LoadedModel, ids: NDArray[np.int64], places: NDArray[np.int64], *, short: int, batch_size: int
) -> NDArray[np.float64]:
    """Of the tokens at `places` [N] of a window: loss with all context, with the last `short` tokens, and Jeffreys.

    Returns [3, N], nats.
    """
    whole = model.hidden_states(torch.from_numpy(ids)[None])[0, torch.from_numpy(places - 1)]
    contexts = [context(place, short) for place in places.tolist()]
    near = read_contexts(model, [ids] * len(places), contexts, batch_size=batch_size)
    rows = model.rows(whole), model.rows(near)
    return in_step(*rows, ids[places], jeffreys).numpy().T


def embedding_attributions(model: LoadedModel, ids: NDArray[np.int64], target: int) -> NDArray[np.float64]:
    """-(d loss / d e_s) * e_s of every token s before the target, with all context: [target, width], nats.

    To first order, the sum of a row is by how much the loss of the target rises when e_s is set to zero.
    """
    found: list[Tensor] = []
    # Its first use proves it by reading a few tokens, which the hook must not see.
    head = model.head

    def leaf(_module: object, _inputs: object, output: Tensor) -> Tensor:
        found.append(output.detach().requires_grad_())
        return found[-1]

    handle = model.model.get_input_embeddings().register_forward_hook(leaf)
    try:
        with torch.enable_grad():
            tokens = torch.from_numpy(ids[None, :target]).to(model.device)
            hidden = hidden_states_for(model.model, head, tokens)
            logits = head.logits(hidden[0, -1:])
            label = torch.tensor([int(ids[target])], device=logits.device)
            loss = torch.nn.functional.cross_entropy(logits, label)
            [gradient] = torch.autograd.grad(loss, found)
    finally:
        handle.remove()
    return -(gradient.double() * found[0].detach().double())[0].cpu().numpy()


def by_gradient(
    model: LoadedModel, windows: Windows, targets: Sequence[int], *, short: int, most: int | None = None
) -> list[list[int]]:
    """Distant tokens of each target, first the one with the largest |d loss / d e_s * e_s| (norm over the embedding).

    The signed sum over the embedding does not rank: it put the answer of a needle last more often than first.
    """
    found = []
    for ids, target in zip(windows, targets, strict=True):
        distant = distant_positions(target, short)
        norms = np.linalg.norm(embedding_attributions(model, ids, target)[distant], axis=-1)
        found.append(distant[np.argsort(-norms, kind="stable")][:most].tolist())
    return found


def leave_one_out(
    losses: Losses, distant: Sequence[Positions], tried: Sequence[list[int]], most: int
) -> list[list[int]]:
    """The `tried` tokens of each target, by how much its loss rises when one alone is removed from `distant`."""
    pairs = zip(distant, tried, strict=True)
    sets = [[np.setdiff1d(context, [one]) for one in some] for context, some in pairs]
    return [
        [some[index] for index in np.argsort(-found, kind="stable")[:most]]
        for some, found in zip(tried, losses(sets), strict=True)
    ]


def greedy(losses: Losses, tried: Sequence[list[int]], most: int) -> list[list[int]]:
    """One by one, each time the tried token that lowers the loss most together with those already kept."""
    kept: list[list[int]] = [[] for _ in tried]
    left = [list(some) for some in tried]
    for _ in range(most):
        sets = [[[*ours, one] for one in others] for ours, others in zip(kept, left, strict=True)]
        for ours, others, found in zip(kept, left, losses(sets), strict=True):
            if others:
                ours.append(others.pop(int(np.argmin(found))))
    return kept


def check_removal(model: LoadedModel, length: int) -> None:
    """Raise UsageError unless a masked token and an absent one give this model the same predictions.

    On a few tokens, reading all of them under a mask must equal reading the kept ones at their positions. Layers with
    local attention count tokens, not positions, so windows beyond their reach are refused.
    """
    reach = getattr(model.config, "sliding_window", None)
    kinds = getattr(model.config, "layer_types", None) or ["sliding_attention"]
    if reach is not None and "sliding_attention" in kinds and reach < length:
        raise UsageError(
            f"{model.name} has local attention of {reach} tokens, which counts a removed token as absent",
            expected=f"windows of at most {reach} tokens for this model",
            fix=f"length={reach}",
        )
    if not model.path.in_one_pass:
        raise _cannot_remove(model, "it is read in several passes")
    if (method := model.rope_by_length) is not None:
        raise _cannot_remove(model, f"{method} rope depends on how many tokens are read in one go")
    ids = torch.from_numpy(np.random.default_rng(0).integers(model.vocab_size, size=(1, _PROBE)))
    kept = np.array([0, 3, 4, 9, 13, *range(17, _PROBE)])
    allowed = torch.ones(_PROBE, _PROBE, dtype=torch.bool).tril()
    allowed[:, np.setdiff1d(np.arange(_PROBE), kept)] = False
    mask = additive_mask(allowed, model.model.dtype)
    positions = torch.arange(_PROBE)[None]
    try:
        masked = model.hidden_states(ids, position_ids=positions, attention_mask=mask)
        alone = model.hidden_states(ids[:, kept], position_ids=positions[:, kept])
    except LengthwiseError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise _cannot_remove(model, f"it takes no mask or no position ids ({str(error)[:120]})") from error
    if (why := differs(masked[:, kept], alone)) is not None:
        raise _cannot_remove(model, f"a masked token differs {why}")


def _cannot_remove(model: LoadedModel, problem: str) -> UsageError:
    return UsageError(
        f"tokens cannot be removed from the context of {model.name} with their positions kept: {problem}",
        expected="a decoder with rope or learned positions, whose attention takes a mask",
    )
