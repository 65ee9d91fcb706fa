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
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from lengthwise.errors import UsageError
from lengthwise.report.drawing import Curve, Picture, curve_picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies.claims import Decision, judge, ruled, verdict_table
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity import coupling_study, parity
from lengthwise_studies.sparsity.coupling_study import TOKENS, CoupledCell, CouplingScale
from lengthwise_studies.sparsity.grid import Outcome, Share, share
from lengthwise_studies.sparsity.parity import Accuracies, Outcomes, ParityCell, ParityScale
from lengthwise_studies.sparsity.planted import Within

GUESSING = 0.5
"""The error of guessing a bit."""
THEOREM, IMPROVED = "theorem 4.3", "improved (rebuttal)"
Etas = tuple[float, float]
"""eta_L and eta_M; 1 under the conditions of Remark C.1."""


def theorem_factor(train_length: int, test_length: int, etas: Etas = (1.0, 1.0)) -> float:
    """Theorem 4.3: eta_L * eta_M * L * M^2 (* delta)."""
    return math.prod(etas) * train_length * test_length**2


def improved_factor(train_length: int, test_length: int, local: float, etas: Etas = (1.0, 1.0)) -> float:
    """The rebuttal's: eta_L * eta_M * (M / L_local)^2 (* delta); at L_local = L/4 it is O((M/L)^2 delta).

    It is for a hypothesis trained on the worst length; one trained on the average of lengths costs a factor L more.
    L_local is the width of the chunks of the proof.

    Raises:
        UsageError: L_local is above L/4.
    """
    if not 0 < local <= train_length / 4:
        raise UsageError(
            f"L_local is {local:g} at a training length of {train_length}", expected="above 0, at most L/4"
        )
    return math.prod(etas) * (test_length / local) ** 2


def proof_etas(law: Within, *, train_length: int, test_length: int, local: int, k: int) -> Etas:
    """eta_L and eta_M of a law where the proof needs them: from L, and from M, to L - 2 L_local; each at least 1.

    Infinite where sets occur that do not fit into L - 2 L_local: without locality the theorem says nothing.

    Raises:
        UsageError: k positions do not fit.
    """
    core = train_length - 2 * local
    if core < k:
        raise UsageError(f"L - 2 L_local is {core}, and k is {k}", expected="room for k positions")
    return max(1.0, law.regularity(train_length, core, k)), max(1.0, law.regularity(test_length, core, k))


def needed_delta(factor: float) -> float:
    """The delta under which a bound says something; 0 if it never does."""
    return GUESSING / factor


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """What theory and models say of one cell at one test length. `factors` are of the bounds, by name."""

    cell: ParityCell
    length: int
    delta: float
    right: Share
    etas: Etas
    factors: dict[str, float]

    def bound(self, name: str) -> float:
        """On the error."""
        return self.factors[name] * self.delta


def bounded(scale: ParityScale, found: Outcomes) -> list[Bounded]:
    """Every cell at every length beyond training."""
    numbers: list[Bounded] = []
    longest, local, accuracies = scale.train_length, scale.local, Accuracies(scale, found)
    for cell in found:
        inside = [at for at in scale.test_lengths if at <= longest]
        delta = max(accuracies.at(cell, at, k=k).wrong for k in cell.tested(scale) for at in inside)
        for length in scale.test_lengths[len(inside) :]:
            # Sets of the largest k in training spread most, so its etas are the largest.
            etas = proof_etas(
                cell.law(scale), train_length=longest, test_length=length, local=local, k=cell.k
            )
            factors = {
                THEOREM: theorem_factor(longest, length, etas),
                IMPROVED: improved_factor(longest, length, local, etas),
            }
            right = accuracies.at(cell, length)
            numbers.append(
                Bounded(cell=cell, length=length, delta=delta, right=right, etas=etas, factors=factors)
            )
    return numbers


def _informative(bound: str, numbers: list[Bounded]) -> Decision:
    telling = sum(one.bound(bound) < GUESSING for one in numbers)
    ours = "; ".join(
        f"{one.cell.key}, length {one.length}: delta {one.delta:.2g}, bound {_text(one.bound(bound))}"
        for one in numbers
    )
    return ours, f"says something at {telling} of {len(numbers)}" if telling else "vacuous"


def _kept(bound: str, numbers: list[Bounded]) -> Decision:
    broken = sum(1 - one.right.high > one.bound(bound) for one in numbers)
    ratios = [(1 - one.right.value) / one.bound(bound) for one in numbers if one.bound(bound) < math.inf]
    ours = f"largest error / bound: {max(ratios):.2g}" if ratios else "no finite bound"
    return ours, f"needs a constant above 1 at {broken} of {len(numbers)}" if broken else "holds"


def _needs_locality(numbers: list[Bounded]) -> Decision:
    ours, better = [], 0
    for length in sorted({one.length for one in numbers}):
        near, far = (
            next(one.right for one in numbers if (one.length, one.cell.local) == (length, local))
            for local in (True, False)
        )
        ours.append(f"length {length}: error {1 - near.value:.2f} local, {1 - far.value:.2f} anywhere")
        better += near.low > far.high
    return "; ".join(ours), f"locality lowers the error at {better} of {len(ours)} lengths"


_BELOW = "with a constant of 1 it lies below the error of guessing, 1/2"
_MOST = "with a constant of 1 the lower end of the error's interval is at most the bound"
_FIFTH_POWER, _NO_DECAY = "informative for delta in o(L^-5)", "O((M/L)^2 delta) does not decay with L"
_PROVED, _OUTLINED = "proved, up to a constant", "in outline, up to a constant"
_IN_PROOF = "locality is needed in the proof; the text says it can break without"
_APART = "the binomial intervals of local and anywhere do not overlap"
_SAYS, _LIES = "{} says something about these models", "the error lies below {}"
_BETTER = "without locality, where the bound is infinite, models err more"
CLAIMS = ruled(
    ("Theorem 4.3", _SAYS.format("the bound"), _FIFTH_POWER, _BELOW, partial(_informative, THEOREM)),
    ("rebuttal", _SAYS.format("the improved bound"), _NO_DECAY, _BELOW, partial(_informative, IMPROVED)),
    ("Theorem 4.3", _LIES.format("the bound"), _PROVED, _MOST, partial(_kept, THEOREM)),
    ("rebuttal", _LIES.format("the improved bound"), _OUTLINED, _MOST, partial(_kept, IMPROVED)),
    ("Theorem 4.3, locality", _BETTER, _IN_PROOF, _APART, _needs_locality),
)


def page(scale: ParityScale, found: Outcomes) -> list[Section]:
    """Claims, the numbers, and the picture."""
    numbers = bounded(scale, found)
    columns = ["law", "test length", "error", "delta (ours)", "eta_L", "eta_M", "theorem 4.3", "improved"]
    table = Table(
        columns=[*columns, "delta that theorem 4.3 needs", "delta that the improved one needs"],
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
    drawn = bounds_picture(numbers)
    return [
        Section(
            title="The bounds against sparse parity",
            paragraphs=["What theorem 4.3 and the bound of the rebuttal allow, and what trained models do."],
            tables=[verdict_table(judge(CLAIMS, numbers)), table],
            figures=[drawn] if drawn else [],
        )
    ]


def bounds_picture(numbers: list[Bounded]) -> Picture | None:
    """Error and finite bounds by length, a panel for each law."""
    panels: dict[str, list[Curve]] = {}
    for where in ("anywhere", "local"):
        ours = [one for one in numbers if one.cell.where == where]
        curve = partial(Curve, x=[one.length for one in ours])
        errors = curve(
            label="error",
            y=[max(one.right.wrong, 1e-9) for one in ours],
            low=[max(1 - one.right.high, 1e-9) for one in ours],
            high=[1 - one.right.low for one in ours],
        )
        bounds = (
            curve(label=name, y=[one.bound(name) for one in ours], style=style)
            for style, name in enumerate((THEOREM, IMPROVED), start=1)
        )
        panels[where] = [errors, *(one for one in bounds if all(map(math.isfinite, one.y)))]
    return curve_picture(
        panels,
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
    delta = share(outcome, (TOKENS, lengths[0])).wrong
    ids = [cell.of.draw(length, random.Random(0)).ids_used for length in lengths]
    table = Table(
        columns=["length", "ids", "error of a response", "delta (ours)", "bound in ids"],
        rows=[
            [
                length,
                many,
                f"{1 - share(outcome, (TOKENS, length)).value:.3f}",
                f"{delta:.2g}",
                f"{theorem_factor(ids[0], many) * delta:.2g}",
            ]
            for length, many in zip(lengths, ids, strict=True)
        ],
        caption="Parity with coupled ids; a bound below 1 says something",
    )
    return [
        Section(
            title="Proposition 4.4 against parity with scratchpad",
            paragraphs=[
                "In the order of tokens what decides a token of the response lies ever further back; in coupled ids "
                "it is next to it. The theorem then applies to ids. The proposition's own text was not found; this "
                "reading is ours, with etas of 1."
            ],
            tables=[table],
        )
    ]


SCALES = {
    # L_local = L/4, the largest that the theorem allows. Up to four planted tokens are learned in 800 steps.
    name: replace(
        scale, train_ks=(4,), test_ks=(2, 4), local=scale.train_length // 4, steps=min(scale.steps, 800)
    )
    for name, scale in parity.SCALES.items()
}
PARITY = replace(parity.GRID, kind="sparsity-bounds", page=page, claims=lambda scale: CLAIMS)
COUPLED = replace(
    coupling_study.GRID,
    kind="sparsity-bounds-coupled",
    cells=lambda scale: [CoupledCell("parity", "coupled")],
    page=coupled_page,
    claims=lambda scale: (),
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
