"""Long-short alignment of models that predict one number: two readings of the paper's objective (Eq. 4).

The objective adds alpha times the symmetric cross entropy (SCE) of the predictions from a string and from the
same string without its first e symbols. A prediction here is one number g, so it must become a distribution.

**By string.** Take g as the mean of a Gaussian of fixed variance s^2. For p = N(g, s^2), q = N(g', s^2), d = g - g':

    H(p, q) = E_p[-log q] = log(2 pi s^2) / 2 + (s^2 + d^2) / (2 s^2)
    SCE(p, q) = H(p, q) + H(q, p) = log(2 pi s^2) + 1 + d^2 / s^2.

The cross entropy of a label y is (g - y)^2 / (2 s^2) and a constant, so

    CE + alpha SCE = [(g - y)^2 + 2 alpha d^2] / (2 s^2) + constant.

The entropy is constant: there is nothing to sharpen, and SCE and the Jeffreys divergence d^2 / s^2 train the same.

**By distribution.** Predictions from many strings of a length are a sample; the samples at two lengths are to
agree. Their distance is the squared 2-Wasserstein distance, in one dimension the mean squared difference of the
sorted values: it is differentiable, keeps its gradient where supports do not meet (a divergence is infinite for
{l} and {l'}), has the units of the error, and on the same strings is at most the mean of d^2, as sorting is the
pairing of least cost.

**Both assume** that a cut leaves the right answer unchanged. It changes length and sum, and the means of a string
and of its end differ by chance: E d^2 = 1/(4(l - e)) - 1/(4l). `right_disagreements` is
what the right answers themselves would pay.

Shapes: S models, B samples, N strings, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from lengthwise_studies.synthetic.encodings import Encoding
from lengthwise_studies.synthetic.reparameterization import Reparameterization
from lengthwise_studies.synthetic.tasks import BitTask, encode
from lengthwise_studies.synthetic.training import Batch, stack
from lengthwise_studies.synthetic.transformer import StackedTransformer


def by_string(long: Tensor, short: Tensor, paired: Tensor) -> Tensor:
    """Mean of (g - g')^2 over the pairs [S]; 0 where there is none."""
    return ((long - short).square() * paired).sum(1) / paired.sum(1).clamp(min=1)


def by_distribution(long: Tensor, short: Tensor, paired: Tensor) -> Tensor:
    """Squared 2-Wasserstein distance of the two samples [S]: every pair counts, as their order is free."""
    assert bool(paired.all())
    return (long.sort(dim=1).values - short.sort(dim=1).values).square().mean(1)


ALIGNMENTS = {"string": by_string, "distribution": by_distribution}
"""The readings: distances [S] of predictions [S, B] from whole and from cut strings, where a pair counts [S, B]."""


def aligned_batches(
    drawn: Iterable[Batch],
    alignment: str,
    task: BitTask,
    positions: Encoding,
    *,
    longest: int,
    seeds: Sequence[int],
) -> Iterator[tuple[Batch, Tensor]]:
    """The samples of each batch as they are, behind them the strings that alignment compares, and whether it does.

    By string those are the samples without their first bits, each cut by its own e; a string of one bit cannot be
    cut. By distribution they are fresh strings, all of one length, whole and cut by the same e. The strings of a
    model depend on its seed alone.
    """
    distinct = list(dict.fromkeys(seeds))
    column = [distinct.index(seed) for seed in seeds]
    # Streams of their own, so that the batches are those of the baseline.
    generators = [torch.Generator().manual_seed(seed + 2**21) for seed in distinct]
    for own in drawn:
        joined, paired = [], []
        for seed, generator in zip(distinct, generators, strict=True):
            one = own.of([list(seeds).index(seed)])
            parts = [(one.tokens[0], one.last[0])]
            if alignment == "distribution":
                lengths = torch.randint(2, longest + 1, (1,), generator=generator).expand(one.last.shape[1])
                bits = task.draw(lengths, longest, generator)
                cut = _cuts(lengths[:1], generator).expand_as(lengths)
                parts.append(encode(bits, lengths))
            else:
                lengths, bits = one.last[0] - 1, one.tokens[0, :, 1:-1]
                cut = _cuts(lengths, generator)
            parts.append(encode(*without_first(bits, lengths, cut)))
            tokens, last = (torch.cat(part) for part in zip(*parts, strict=True))
            ids = positions.draw(len(tokens) - len(cut), tokens.shape[1], generator)
            if ids is not None and one.positions is not None:
                ids = torch.cat([one.positions[0], ids])
            joined.append(Batch(tokens, last, one.target[0], ids))
            paired.append(cut > 0)
        yield stack(joined).of(column), torch.stack(paired)[column]


def without_first(bits: Tensor, lengths: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    """Strings [N, longest] without their first `cut` bits, zeros behind their ends; and their lengths [N].

    Example:
        >>> bits, lengths = without_first(torch.tensor([[1, 0, 1, 1]]), torch.tensor([4]), torch.tensor([1]))
        >>> bits.tolist(), lengths.tolist()
        ([[0, 1, 1, 0]], [3])
    """
    longest = bits.shape[1]
    at = torch.arange(longest) + cut.unsqueeze(1)
    moved = bits.gather(1, at.clamp(max=longest - 1))
    return moved * (at < lengths.unsqueeze(1)), lengths - cut


def aligned_losses(
    model: StackedTransformer,
    aligned: tuple[Batch, Tensor],
    apart: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The squared error of every model [S] on its own samples, and the distance of its predictions [S]."""
    batch, paired = aligned
    size = batch.target.shape[1]
    values = model.value(batch.tokens, batch.last, batch.positions)
    long, short = values[:, -2 * size :].chunk(2, dim=1)
    return (values[:, :size] - batch.target).square().mean(1), apart(long, short, paired)


def disagreements(
    predict: Callable[[Tensor, int, torch.Generator], Tensor], task: BitTask, *, longest: int
) -> dict[str, Tensor]:
    """The distance of each reading [S], the mean over lengths 2 .. longest, by name.

    At each length, 128 strings (the same for all models) lose the middle one of the cuts 1 .. l // 2. `predict`
    gives [S, N] from strings [N, length] of a length.
    """
    by_length = []
    for length in range(2, longest + 1):
        generator = torch.Generator().manual_seed(length)
        bits = task.draw(torch.full((128,), length), length, generator)
        cut = (length // 2 + 1) // 2
        long, short = predict(bits, length, generator), predict(bits[:, cut:], length - cut, generator)
        every = torch.ones_like(long, dtype=torch.bool)
        by_length.append(torch.stack([apart(long, short, every) for apart in ALIGNMENTS.values()]))
    return dict(zip(ALIGNMENTS, torch.stack(by_length).mean(0), strict=True))


def right_disagreements(task: BitTask, function: Reparameterization, *, longest: int) -> dict[str, float]:
    """What the right answers would pay: 0 only where the answer stays as it is when a string is cut."""

    def right(bits: Tensor, length: int, _: torch.Generator) -> Tensor:
        return function.apply(task.outcome(bits, torch.full((len(bits),), length))).unsqueeze(0)

    return {name: found.item() for name, found in disagreements(right, task, longest=longest).items()}


def aligned_length_error(weight: float, *, longest: int) -> float:
    """The squared error on lengths 1 .. longest of the best prediction of the *length* under alignment by string.

    The prediction is a free number g_l for each length. The minimum of
    mean_l (g_l - l)^2 + 2 alpha mean_{l >= 2} mean_{e <= l // 2} (g_l - g_(l-e))^2 is a linear system; its
    error is what alignment costs a model that could do anything.
    """
    lengths = torch.arange(1, longest + 1, dtype=torch.float64)
    matrix = torch.eye(longest, dtype=torch.float64) / longest
    for length in range(2, longest + 1):
        for cut in range(1, length // 2 + 1):
            pair = torch.zeros(longest, dtype=torch.float64)
            pair[length - 1], pair[length - cut - 1] = 1, -1
            matrix += 2 * weight / ((longest - 1) * (length // 2)) * torch.outer(pair, pair)
    best = torch.linalg.solve(matrix, lengths / longest)
    return (best - lengths).square().mean().item()


def _cuts(lengths: Tensor, generator: torch.Generator) -> Tensor:
    """e uniform on 1 .. l // 2 for each length [N]; 0 for strings of one bit."""
    most = lengths // 2
    return torch.minimum((torch.rand(len(lengths), generator=generator) * most).long() + 1, most)
