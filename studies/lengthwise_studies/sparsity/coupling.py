"""Position coupling, given and predicted: training, joint greedy decoding, exact match on tokens and ids.

A model reads tokens and, beside them, position ids from a table. Four arms differ in the ids:

    none        no ids
    random      distinct ids in rising order, drawn for each sample
    coupled     coupled ids, given for the whole sample also at test (position coupling, Cho et al. 2024)
    predicted   coupled ids, given at test for the prompt alone; the model predicts each next token and its id, and
                reads both (predictive position coupling)
    pointed     the same with a head that points at earlier tokens (ours)

Loss: cross entropy of the tokens of the response, plus that of their ids where they are predicted. In training the
ids of a sample begin at a random start, so that all ids up to the last of the table are trained; at test at 0.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise_studies.sparsity.coupled_tasks import END, CoupledTask
from lengthwise_studies.synthetic.transformer import StackedTransformer

IGNORED = -100
"""Label of a token outside of the response; torch's cross entropy skips it."""

Ids = Literal["none", "random", "coupled", "predicted", "pointed"]
PREDICTED: tuple[Ids, ...] = ("predicted", "pointed")


class CoupledBatch(NamedTuple):
    """Samples [S, B, T], padded with end markers; None without ids, or where no id is predicted.

    Labels are the next token, and its id, where it belongs to the response, else `IGNORED`.
    """

    tokens: Tensor
    ids: Tensor | None
    labels: Tensor
    id_labels: Tensor | None


def coupled_batch(
    task: CoupledTask,
    arm: Ids,
    lengths: Sequence[int],
    sources: Iterable[random.Random],
    *,
    table: int,
    start: bool = False,
) -> CoupledBatch:
    """Samples [S, B, T] of these lengths, a model's drawn from its source; the table must hold their ids.

    With `start`, the coupled ids of a sample begin at a random one.
    """
    known = {symbol: index for index, symbol in enumerate(task.vocabulary)}
    # Ids have a source of their own, so that all arms see the same samples.
    id_sources = [(random.Random(source.random()), source) for source in sources]
    drawn = [(id_rng, [task.draw(length, source) for length in lengths]) for id_rng, source in id_sources]
    width = max(len(sample.ids) for _, samples in drawn for sample in samples)
    tokens = torch.full((len(drawn), len(lengths), width), known[END])
    ids, labels, id_labels = torch.zeros_like(tokens), *(torch.full_like(tokens, IGNORED) for _ in range(2))
    for model, (id_rng, samples) in enumerate(drawn):
        for row, sample in enumerate(samples):
            at, count, asked = (model, row), len(sample.ids), len(sample.prompt)
            tokens[at][:count] = torch.tensor([known[symbol] for symbol in sample.prompt + sample.response])
            labels[at][asked - 1 : count - 1] = tokens[at][asked:count]
            if arm == "random":
                ids[at] = torch.tensor(sorted(id_rng.sample(range(table), width)))
            else:
                first = id_rng.randint(0, table - sample.ids_used) if start and arm != "none" else 0
                ids[at][:count] = torch.tensor(sample.ids) + first
            id_labels[at][asked - 1 : count - 1] = ids[at][asked:count]
    return CoupledBatch(
        tokens, None if arm == "none" else ids, labels, id_labels if arm in PREDICTED else None
    )


def coupled_batches(
    task: CoupledTask, arm: Ids, *, longest: int, size: int, steps: int, seeds: Sequence[int], table: int
) -> Iterator[CoupledBatch]:
    """Fresh samples [S, B, T] for each step, a model's drawn from its seed.

    Lengths are uniform on 1 .. longest, drawn from the first seed for all models, so that little is padded.
    """
    sources = [random.Random(seed) for seed in seeds]
    for _ in range(steps):
        lengths = [sources[0].randint(1, longest) for _ in range(size)]
        yield coupled_batch(task, arm, lengths, sources, table=table, start=True)


def coupled_losses(model: StackedTransformer, batch: CoupledBatch) -> Tensor:
    """Cross entropy of every model [S] over the tokens of the responses, plus that of their ids, in nats."""
    logits, id_logits = model.heads(batch.tokens, ids=batch.ids)
    losses = _mean_losses(logits, batch.labels)
    if batch.id_labels is None:
        return losses
    assert id_logits is not None
    return losses + _mean_losses(id_logits, batch.id_labels)


def _mean_losses(logits: Tensor, labels: Tensor) -> Tensor:
    losses = F.cross_entropy(
        logits.flatten(0, 2), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).unflatten(0, labels.shape)
    return losses.flatten(1).sum(1) / (labels != IGNORED).flatten(1).sum(1)


@torch.no_grad()
def exact_responses(model: StackedTransformer, batch: CoupledBatch) -> tuple[list[int], list[int]]:
    """How many greedy responses to samples [S, B, T] of one length have no wrong token, and no wrong id either.

    The model reads what it predicts, tokens and ids. Where ids are not predicted, they are given.
    """
    tokens, ids = batch.tokens.clone(), None if batch.ids is None else batch.ids.clone()
    begin = int((batch.labels.flatten(0, -2)[0] != IGNORED).nonzero()[0]) + 1
    for at in range(begin, tokens.shape[-1]):
        logits, id_logits = model.heads(tokens[..., :at], ids=None if ids is None else ids[..., :at])
        tokens[..., at] = logits[..., -1, :].argmax(-1)
        if batch.id_labels is not None:
            assert ids is not None
            assert id_logits is not None
            ids[..., at] = id_logits[..., -1, :].argmax(-1)
    right = (tokens == batch.tokens).all(-1)
    same = right if ids is None else right & (ids == batch.ids).all(-1)
    return right.sum(-1).tolist(), same.sum(-1).tolist()


def held_out_batch(
    task: CoupledTask, arm: Ids, *, length: int, models: int, samples: int, seed: int, table: int
) -> CoupledBatch:
    """`samples` of one length for each model [S, B, T], each its own, the same for all arms."""
    rng = random.Random(seed)
    sources = [random.Random(rng.random()) for _ in range(models)]
    return coupled_batch(task, arm, [length] * samples, sources, table=table)
