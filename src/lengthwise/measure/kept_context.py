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
so they fit noise too: one model makes them and another judges, or the same choice from a foreign text is the control.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.measurement import in_groups
from lengthwise.models.head import hidden_states_for
from lengthwise.models.hidden import unwrap
from lengthwise.models.loaded_model import target_losses
from lengthwise.models.position_limits import rope_by_input_length

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import LoadedModel

    Positions = NDArray[np.int64]
    Kept = Sequence[int] | Positions

_PROBE = 24
# Largest difference allowed, as a share of the largest hidden value.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


def distant_positions(target: int, short: int) -> Positions:
    """The tokens that can be removed before the target: all but the first token and the last `short` ones."""
    return np.arange(1, target - short)


def context(target: int, short: int, kept: Sequence[int] | Positions = ()) -> Positions:
    """Positions of the first token, the `kept` distant ones and the last `short` before the target, in order."""
    near = np.arange(target - short, target)
    return np.concatenate([[0], np.sort(np.asarray(kept, dtype=np.int64)), near])


@torch.no_grad()
def read_contexts(
    model: LoadedModel, ids: NDArray[np.int64], contexts: Sequence[Positions], *, batch_size: int
) -> Tensor:
    """The last row of every context, read on its own: [N, ...], what `model.head.logits` takes.

    Contexts of equal length go together, `batch_size` at a time.

    Args:
        model: reads them.
        ids: the window of all contexts, [T], or one for each, [N, T].
        contexts: positions that are kept, see `context`.
        batch_size: contexts at a time.
    """
    windows = np.broadcast_to(ids, (len(contexts), ids.shape[-1]))
    rows: dict[int, Tensor] = {}
    by_length = sorted(range(len(contexts)), key=lambda index: len(contexts[index]))
    for _, alike in groupby(by_length, key=lambda index: len(contexts[index])):
        for group in in_groups(alike, batch_size):
            positions = np.stack([contexts[index] for index in group])
            hidden = model.hidden_states(
                torch.from_numpy(np.take_along_axis(windows[group], positions, axis=1)),
                position_ids=torch.from_numpy(positions),
            )
            rows |= zip(group, hidden[:, -1], strict=True)
    return torch.stack([rows[index] for index in range(len(contexts))])


def losses_from(
    model: LoadedModel,
    ids: NDArray[np.int64],
    contexts: Sequence[Positions],
    labels: Sequence[int] | NDArray[np.int64],
    *,
    batch_size: int,
) -> NDArray[np.float64]:
    """-log p(label | context) of every context, each with its label: [N], nats. `ids` as in `read_contexts`.

    Raises:
        NonFiniteLogits: a loss is NaN or infinite.
    """
    rows = read_contexts(model, ids, contexts, batch_size=batch_size)
    return target_losses(model, rows, np.asarray(labels)).numpy()


def examine(
    model: LoadedModel, ids: NDArray[np.int64], places: NDArray[np.int64], *, short: int, batch_size: int
) -> NDArray[np.float64]:
    """Of the tokens at `places` [N] of a window [T]: loss with all context, with the last `short` tokens, Jeffreys.

    Returns:
        nats, [3, N].
    """
    whole = model.hidden_states(torch.from_numpy(ids)[None])[0, torch.from_numpy(places - 1)]
    contexts = [context(int(place), short) for place in places]
    near = read_contexts(model, ids, contexts, batch_size=batch_size)
    return compare_contexts(model, whole, near, ids[places], first=0).numpy().T


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
            loss = torch.nn.functional.cross_entropy(logits.float(), label)
            [gradient] = torch.autograd.grad(loss, found)
    finally:
        handle.remove()
    return -(gradient.double() * found[0].detach().double())[0].cpu().numpy()


@dataclass(frozen=True)
class Situation:
    """One target token in its window, as the model sees it that chooses."""

    model: LoadedModel
    ids: NDArray[np.int64]
    """The window."""
    target: int
    short: int
    candidates: int
    """How many distant tokens are tried one by one: the first by gradient."""
    batch_size: int

    @property
    def distant(self) -> NDArray[np.int64]:
        """The tokens to choose from."""
        return distant_positions(self.target, self.short)

    @cached_property
    def by_gradient(self) -> list[int]:
        """All distant tokens, first the one with the largest |d loss / d e_s * e_s|, a norm over the embedding.

        The signed sum over the embedding does not rank: it put the answer of a needle last more often than first.
        """
        products = embedding_attributions(self.model, self.ids, self.target)[self.distant]
        return self.distant[np.argsort(-np.linalg.norm(products, axis=-1), kind="stable")].tolist()

    @property
    def tried(self) -> list[int]:
        """The candidates."""
        return self.by_gradient[: self.candidates]


def losses_keeping(
    situations: Sequence[Situation], kept: Sequence[Sequence[Kept]]
) -> list[NDArray[np.float64]]:
    """For every situation, its target's loss with each of its sets of distant tokens, nats.

    All situations are of one model and windows of one length; contexts of all of them go together.
    """
    every = [(one, some) for one, sets in zip(situations, kept, strict=True) for some in sets]
    if not every:
        return [np.empty(0) for _ in situations]
    found = losses_from(
        situations[0].model,
        np.stack([one.ids for one, _ in every]),
        [context(one.target, one.short, some) for one, some in every],
        [int(one.ids[one.target]) for one, _ in every],
        batch_size=situations[0].batch_size,
    )
    return np.split(found, np.cumsum([len(sets) for sets in kept])[:-1])


def leave_one_out(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """By how much the loss rises when one candidate alone is removed from the whole context."""
    without = [[np.setdiff1d(one.distant, [token]) for token in one.tried] for one in situations]
    return [
        [one.tried[index] for index in np.argsort(-losses, kind="stable")[:most]]
        for one, losses in zip(situations, losses_keeping(situations, without), strict=True)
    ]


def greedy(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """One by one, each time the candidate that lowers the loss most together with those already kept."""
    kept: list[list[int]] = [[] for _ in situations]
    left = [list(one.tried) for one in situations]
    for _ in range(most):
        sets = [[[*ours, one] for one in others] for ours, others in zip(kept, left, strict=True)]
        for ours, others, losses in zip(kept, left, losses_keeping(situations, sets), strict=True):
            if others:
                ours.append(others.pop(int(np.argmin(losses))))
    return kept


def copies(situation: Situation) -> NDArray[np.int64]:
    """The distant tokens equal to the target, the last first; fewer where the context has fewer."""
    equal = situation.ids[situation.distant] == situation.ids[situation.target]
    return situation.distant[equal][::-1]


SELECTIONS: dict[str, Callable[[Sequence[Situation], int], list[list[int]]]] = {
    "greedy": greedy,
    "leave_one_out": leave_one_out,
    "gradient": lambda situations, most: [one.by_gradient[:most] for one in situations],
}
CONTROLS: dict[str, Callable[[Situation, np.random.Generator], NDArray[np.int64]]] = {
    "random": lambda situation, rng: rng.permutation(situation.distant),
    "recent": lambda situation, _: situation.distant[::-1],
    "copies": lambda situation, _: copies(situation),
}


def kept_losses(
    model: LoadedModel,
    choosing: Sequence[Situation],
    foreign: NDArray[np.int32] | None,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """For each target, the tokens that every choice and control keeps, and its loss with the first k of them.

    Args:
        model: judges.
        choosing: the targets of one window, with the model that chooses.
        foreign: a window of another text, whose distant tokens are the control `greedy_foreign`.
        sizes: every k, ascending.
        rng: of the random control.
    """
    most = sizes[-1]

    def losses(
        situations: Sequence[Situation], kept: dict[str, list[list[int]]]
    ) -> list[dict[str, list[float]]]:
        judged = [replace(one, model=model) for one in situations]
        sets = [[some[i][:k] for some in kept.values() for k in sizes] for i in range(len(judged))]
        return [
            dict(zip(kept, found.reshape(len(kept), len(sizes)).tolist(), strict=True))
            for found in losses_keeping(judged, sets)
        ]

    kept = {name: choose(choosing, most) for name, choose in SELECTIONS.items()}
    kept |= {name: [order(one, rng)[:most].tolist() for one in choosing] for name, order in CONTROLS.items()}
    found = losses(choosing, kept)
    if foreign is not None:
        others = []
        for one in choosing:
            ids = one.ids.copy()
            ids[one.distant] = foreign[one.distant]
            others.append(replace(one, ids=ids))
        control = losses(others, {"greedy_foreign": greedy(others, most)})
        found = [own | more for own, more in zip(found, control, strict=True)]
    return [
        {"position": one.target, "kept": {name: some[i] for name, some in kept.items()}, "losses": own}
        for i, (one, own) in enumerate(zip(choosing, found, strict=True))
    ]


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
            fix=f"--max-length {reach}",
        )
    problem = ""
    if (method := rope_by_input_length(model.config)) is not None:
        problem = f"{method} rope depends on how many tokens are read in one go"
    elif "position_ids" not in inspect.signature(unwrap(model.model).forward).parameters:
        problem = "the model takes no position ids"
    else:
        try:
            difference, rounding = _removal_difference(model)
        except LengthwiseError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            problem = f"it takes no mask of its attention ({str(error)[:120]})"
        else:
            if not difference <= rounding:
                problem = f"predictions differ by {difference:.3g} where {rounding:.1g} is rounding"
    if problem:
        raise UsageError(
            f"tokens cannot be removed from the context of {model.name} with their positions kept: {problem}",
            expected="a decoder with rope or learned positions, whose attention takes a mask",
        )


def _removal_difference(model: LoadedModel) -> tuple[float, float]:
    """How much a masked reading differs from that of the kept tokens alone, and how much rounding may."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(model.vocab_size, size=(1, _PROBE)))
    kept = np.array([0, 3, 4, 9, 13, *range(17, _PROBE)])
    allowed = torch.ones(_PROBE, _PROBE, dtype=torch.bool).tril()
    allowed[:, np.setdiff1d(np.arange(_PROBE), kept)] = False
    dtype = model.model.dtype
    mask = torch.zeros(_PROBE, _PROBE, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)
    positions = torch.arange(_PROBE)[None]
    masked = model.hidden_states(ids, position_ids=positions, attention_mask=mask[None, None])
    alone = model.hidden_states(ids[:, kept], position_ids=torch.from_numpy(kept)[None])
    rounding = _TOLERANCE.get(alone.dtype, 1e-3) * alone.abs().max().item()
    return (masked[:, kept] - alone).abs().max().item(), rounding
