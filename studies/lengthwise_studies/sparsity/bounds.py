"""The bounds of the sparsity paper, and the errors of trained models: when a bound says something, and when not.

Notation: trained on lengths L/2 .. L with risk delta of the best hypothesis at each of them, tested at length M. The
bounds are statements "up to a constant" that the paper does not give; here it is 1, which gives an order of
magnitude, no guarantee. A bound that is not below the error of guessing says nothing. All are linear in delta: a
function here gives the factor of delta, and `needed_delta` what it demands of delta.

delta is not known. In its place we put the largest error of the trained models at a training length and a tested k
within training, with the upper end of its binomial interval where no error was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lengthwise.errors import UsageError
from lengthwise.report.drawing import Curve, Picture, curve_picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies.claims import Claim, Decision, Rule, judge, verdict_table
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity import coupling_study, parity
from lengthwise_studies.sparsity.coupling_study import TOKENS, CoupledCell, CouplingScale
from lengthwise_studies.sparsity.parity import ParityCell, ParityScale, of_k, over
from lengthwise_studies.sparsity.planted import PositionLaw, regularity
from lengthwise_studies.sparsity.shares import Outcome, Share, share

GUESSING = 0.5
"""The error of guessing a bit."""


def theorem_factor(train_length: int, test_length: int, *, etas: tuple[float, float] = (1.0, 1.0)) -> float:
    """Theorem 4.3: eta_L * eta_M * L * M^2 (* delta)."""
    return math.prod(etas) * train_length * test_length**2


def improved_factor(
    train_length: int,
    test_length: int,
    *,
    local: float | None = None,
    etas: tuple[float, float] = (1.0, 1.0),
) -> float:
    """The rebuttal's: eta_L * eta_M * (M / L_local)^2 (* delta); at L_local = L/4 it is O((M/L)^2 delta).

    It is for a hypothesis trained on the worst length; one trained on the average of lengths costs a factor L more.

    Args:
        train_length: L.
        test_length: M.
        local: L_local, the width of the chunks of the proof, at most L/4; L/4 where it is None.
        etas: of L and M; 1 under the conditions of Remark C.1.

    Raises:
        UsageError: L_local is above L/4.
    """
    local = train_length / 4 if local is None else local
    if not 0 < local <= train_length / 4:
        raise UsageError(
            f"L_local is {local:g} at a training length of {train_length}", expected="above 0, at most L/4"
        )
    return math.prod(etas) * (test_length / local) ** 2


def proof_etas(
    law: PositionLaw, *, train_length: int, test_length: int, local: int, k: int
) -> tuple[float, float]:
    """eta_L and eta_M of a law where the proof needs them: from L, and from M, to L - 2 L_local; each at least 1.

    Infinite where sets occur that do not fit into L - 2 L_local: without locality the theorem says nothing.
    """
    core = train_length - 2 * local
    if core < k:
        raise UsageError(
            f"L - 2 L_local is {core} at a training length of {train_length} and k = {k}",
            expected="room for k positions",
        )
    eta_train, eta_test = (
        max(1.0, regularity(law, length, core, k)) for length in (train_length, test_length)
    )
    return eta_train, eta_test


def needed_delta(factor: float) -> float:
    """The delta under which a bound says something; 0 if it never does."""
    return GUESSING / factor


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What theory and models say of one cell at one test length."""

    cell: ParityCell
    length: int
    delta: float
    right: Share
    """Of labels; over tested k within training."""
    etas: tuple[float, float]
    factors: dict[str, float]
    """Of each bound, by name."""

    def bound(self, name: str) -> float:
        """On the error."""
        return self.factors[name] * self.delta


THEOREM, IMPROVED = "theorem 4.3", "improved (rebuttal)"


def judged(scale: ParityScale, found: Mapping[ParityCell, Outcome]) -> list[Judged]:
    """Every cell at every length beyond training."""
    numbers: list[Judged] = []
    longest = scale.train_length
    for cell, outcome in found.items():
        inside = [at for at in scale.test_lengths if at <= longest]
        delta = max(share(outcome, of_k(k), at).wrong for k in cell.tested(scale) for at in inside)
        for length in scale.test_lengths[len(inside) :]:
            # Sets of the largest k in training spread most, so its etas are the largest.
            etas = proof_etas(
                cell.law(scale), train_length=longest, test_length=length, local=scale.local, k=cell.k
            )
            factors = {
                THEOREM: theorem_factor(longest, length, etas=etas),
                IMPROVED: improved_factor(longest, length, local=scale.local, etas=etas),
            }
            right = over(cell, found, scale, length)
            numbers.append(
                Judged(cell=cell, length=length, delta=delta, right=right, etas=etas, factors=factors)
            )
    return numbers


def _informative(bound: str, numbers: list[Judged]) -> Decision:
    telling = sum(one.bound(bound) < GUESSING for one in numbers)
    ours = "; ".join(
        f"{one.cell.key}, length {one.length}: delta {one.delta:.2g}, bound {_text(one.bound(bound))}"
        for one in numbers
    )
    return ours, f"says something at {telling} of {len(numbers)}" if telling else "vacuous"


def _kept(bound: str, numbers: list[Judged]) -> Decision:
    broken = sum(1 - one.right.high > one.bound(bound) for one in numbers)
    ratios = [(1 - one.right.value) / one.bound(bound) for one in numbers if one.bound(bound) < math.inf]
    ours = f"largest error / bound: {max(ratios):.2g}" if ratios else "no finite bound"
    return ours, f"needs a constant above 1 at {broken} of {len(numbers)}" if broken else "holds"


def _needs_locality(numbers: list[Judged]) -> Decision:
    ours, better = [], 0
    for length in sorted({one.length for one in numbers}):
        by_law = {one.cell.local: one.right for one in numbers if one.length == length}
        if set(by_law) == {False, True}:
            near, far = by_law[True], by_law[False]
            ours.append(f"length {length}: error {1 - near.value:.2f} local, {1 - far.value:.2f} anywhere")
            better += near.low > far.high
    return "; ".join(ours), f"locality lowers the error at {better} of {len(ours)} lengths"


def _claim(
    place: str, claim: str, paper: str, decide: Callable[[list[Judged]], Decision], rule: str
) -> Claim:
    return Claim(place=place, says=claim, paper=paper, test=Rule(rule, decide))


_BELOW = "with a constant of 1 it lies below the error of guessing, 1/2"
_MOST = "with a constant of 1 the lower end of the error's interval is at most the bound"
CLAIMS = (
    _claim(
        "Theorem 4.3",
        "the bound says something about these models",
        "informative for delta in o(L^-5)",
        partial(_informative, THEOREM),
        _BELOW,
    ),
    _claim(
        "rebuttal",
        "the improved bound says something about these models",
        "O((M/L)^2 delta) does not decay with L",
        partial(_informative, IMPROVED),
        _BELOW,
    ),
    _claim(
        "Theorem 4.3",
        "the error lies below the bound",
        "proved, up to a constant",
        partial(_kept, THEOREM),
        _MOST,
    ),
    _claim(
        "rebuttal",
        "the error lies below the improved bound",
        "in outline, up to a constant",
        partial(_kept, IMPROVED),
        _MOST,
    ),
    _claim(
        "Theorem 4.3, locality",
        "without locality, where the bound is infinite, models err more",
        "locality is needed in the proof; the text says it can break without",
        _needs_locality,
        "the binomial intervals of local and anywhere do not overlap",
    ),
)


def page(scale: ParityScale, found: Mapping[ParityCell, Outcome]) -> list[Section]:
    """Claims, the numbers, and the picture."""
    numbers = judged(scale, found)
    verdicts = judge(CLAIMS, numbers)
    drawn = bounds_picture(numbers)
    return [
        Section(
            title="The bounds against sparse parity",
            paragraphs=[
                "What theorem 4.3 and the bound of the rebuttal allow, and what trained models do. "
                + " ".join(f"{one.claim.place}: {one.claim.says}: {one.verdict}." for one in verdicts)
            ],
            tables=[verdict_table(verdicts), bounds_table(numbers)],
            figures=[drawn] if drawn else [],
        )
    ]


def bounds_table(numbers: list[Judged]) -> Table:
    """One line for each cell and length."""
    columns = ["law", "test length", "error", "delta (ours)", "eta_L", "eta_M", "theorem 4.3", "improved"]
    needed = ["delta that theorem 4.3 needs", "delta that the improved one needs"]
    return Table(
        columns=[*columns, *needed],
        rows=[
            [
                one.cell.key,
                one.length,
                f"{1 - one.right.value:.3f}",
                f"{one.delta:.2g}",
                *map(_text, (*one.etas, one.bound(THEOREM), one.bound(IMPROVED))),
                *(f"{needed_delta(factor):.2g}" for factor in one.factors.values()),
            ]
            for one in numbers
        ],
        caption="Errors and bounds with a constant of 1; a bound below 0.5 says something",
    )


def bounds_picture(numbers: list[Judged]) -> Picture | None:
    """Error and finite bounds by length, a panel for each law."""

    def curves(numbers: list[Judged]) -> list[Curve]:
        lengths = [one.length for one in numbers]
        errors = Curve(
            label="error",
            x=lengths,
            y=[max(one.right.wrong, 1e-9) for one in numbers],
            low=[max(1 - one.right.high, 1e-9) for one in numbers],
            high=[1 - one.right.low for one in numbers],
        )
        bounds = {name: [one.bound(name) for one in numbers] for name in (THEOREM, IMPROVED)}
        return [
            errors,
            *(
                Curve(label=name, x=lengths, y=values, style=style)
                for style, (name, values) in enumerate(bounds.items(), start=1)
                if all(map(math.isfinite, values))
            ),
        ]

    return curve_picture(
        {
            where: curves([one for one in numbers if one.cell.local == local])
            for where, local in (("anywhere", False), ("local", True))
        },
        name="sparsity-bounds",
        title="Sparse parity: error and bounds",
        across="test length (tokens)",
        up="error, or bound on it",
        words="Above 1/2 a bound says nothing.",
        caption="Constants of 1. Line: guessing. A bound that is infinite is not drawn.",
        levels=[GUESSING],
        dress=lambda axes, *_: axes.set_yscale("log"),
    )


def _text(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def coupled_page(scale: CouplingScale, found: Mapping[CoupledCell, Outcome]) -> list[Section]:
    """Proposition 4.4, as we read it: theorem 4.3 of the problem in ids, with as many ids in place of lengths.

    The proposition's own text was not found. What is known of it: ids turn a problem that is not local into one
    that is, and the theorem then applies.
    """
    [(cell, outcome)] = found.items()
    lengths = cell.lengths(scale)
    delta = share(outcome, TOKENS, lengths[0]).wrong
    ids = [cell.of.ids(length) for length in lengths]
    return [
        Section(
            title="Proposition 4.4 against parity with scratchpad",
            paragraphs=[
                "In the order of tokens what decides a token of the response lies ever further back; in coupled ids "
                "it is next to it. The theorem then applies to ids. The proposition's own text was not found; this "
                "reading is ours, with etas of 1."
            ],
            tables=[
                Table(
                    columns=["length", "ids", "error of a response", "delta (ours)", "bound in ids"],
                    rows=[
                        [
                            length,
                            many,
                            f"{1 - share(outcome, TOKENS, length).value:.3f}",
                            f"{delta:.2g}",
                            f"{theorem_factor(ids[0], many) * delta:.2g}",
                        ]
                        for length, many in zip(lengths, ids, strict=True)
                    ],
                    caption="Parity with coupled ids; a bound below 1 says something",
                )
            ],
        )
    ]


SCALES = {
    # L_local = L/4, the largest that the theorem allows. Up to four planted tokens are learned in 800 steps.
    name: replace(
        scale, train_ks=(4,), test_ks=(2, 4), local=scale.train_length // 4, steps=min(scale.steps, 800)
    )
    for name, scale in parity.SCALES.items()
}
PARITY = replace(parity.GRID, kind="sparsity-bounds", page=page)
COUPLED = replace(
    coupling_study.GRID,
    kind="sparsity-bounds-coupled",
    cells=lambda scale: [CoupledCell("parity", "coupled")],
    page=coupled_page,
)
SPARSITY_BOUNDS = Study(
    title="The bounds of the sparsity paper, and what models do",
    parts=(
        PARITY.part(SCALES, heading="Where sparse parity's numbers come from"),
        COUPLED.part(
            coupling_study.SCALES,
            folder="parts/coupling",
            heading="Where parity with scratchpad comes from",
        ),
    ),
    takes=("seeds", "steps"),
)
