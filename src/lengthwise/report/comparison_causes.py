"""What makes the patterns that `compare` shows, in order of preference, and which side may be at fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lengthwise.report.comparison_curve import APART
from lengthwise.report.comparison_evidence import ALL_ONE_SIDED, NEARLY_ALL, Evidence

LARGE = 0.5
"""Nats a token from which on a difference is more than precision."""
FEW_BITS = 0.5
"""Nats a token up to which keys and values in few bits are a likely cause of what a cache does."""
SEEN = 0.2
"""Nats by which the loss of B must fall, and the share of A's loss, to suspect that B sees what it predicts."""

Applies = Callable[[Evidence, Mapping[str, float]], bool]
"""From the evidence, and the numbers that are asked for."""
CAUSES: tuple[tuple[str, Applies, str], ...] = (
    (
        "equal in 16 bits",
        lambda seen, at: (
            seen.pattern == "equal" and _not_exact(at) and max(at["most_a"], at["most_b"]) > 0.01
        ),
        "A difference smaller than that could not have been seen in 16 bits; in float32 it could.",
    ),
    (
        "equal, not exactly",
        lambda seen, at: seen.pattern == "equal" and _not_exact(at),
        "A difference smaller than that could not have been seen; in float64 it could.",
    ),
    ("equal", lambda seen, at: seen.pattern in ("equal", "undecided"), ""),
    (
        "unstable",
        lambda seen, at: seen.pattern == "unstable",
        "A server that answers by batch or by what it holds in its cache does this, several servers behind one "
        "address, a state that stays between texts, kernels that add in any order, and dropout.",
    ),
    (
        "the future is seen",
        lambda seen, at: _everywhere(seen) and _much_better(seen, at),
        "A loss that is so much lower means that A is the side with the fault, that B sees what it predicts (a mask "
        "that leaks, or the text in its training), or that its numbers are no log-probabilities (a temperature, a "
        "cut-off).",
    ),
    (
        "more rows",
        lambda seen, at: bool(at["more_rows"]) and seen.pattern == "all positions",
        "The vocabularies have other sizes ({more_rows:+,.0f} rows in B), and every row takes a share of the "
        "probability.",
    ),
    (
        "one-sided, better",
        lambda seen, at: _everywhere(seen) and _one_sided_better(seen, at),
        "Nearly every token that differs is likelier in B, which no precision does: A gives a share of the "
        "probability away (a bias of the output head, rows that were added, a filter), B sees what it predicts (a "
        "mask that leaks), or its numbers are no log-probabilities (a temperature, a cut-off).",
    ),
    (
        "some windows",
        lambda seen, at: seen.pattern == "some windows",
        "Requests that are mixed up do this (a batch, a prefix cache, padding), another model that answers some of "
        "them, and texts of which something is cut off or replaced.",
    ),
    (
        "some tokens",
        lambda seen, at: seen.pattern == "some tokens",
        "Rows of the vocabulary that are others do this (an embedding, the output head), tokens of the text that are "
        "replaced or swapped, a filter of the output, "
        "values beyond a number format, and single errors of memory.",
    ),
    (
        "one-sided, a share",
        lambda seen, at: _everywhere(seen) and not seen.cached and seen.one_sided and seen.size < LARGE,
        "Nearly every token is {likelier} in B, and single ones are up to {largest:.2g} nats apart, which no "
        "precision does: another share of the probability goes to some rows of the output head (a bias, rows that "
        "were added, a filter), or {likelier_side} sees what it predicts (a mask that leaks).",
    ),
    (
        "by length",
        lambda seen, at: bool(at["by_length_a"]) != bool(at["by_length_b"]),
        "Side {by_length} predicts the same tokens otherwise where more text follows them: {otherwise:.2g} nats per "
        "token apart, and the same again when it reads the same. A rope scaling that depends on the length of the "
        "input does this, and a mask that lets a token see what follows.",
    ),
    (
        "moves",
        lambda seen, at: seen.moves is not None,
        "The place moves with the length of the window, as with a rope scaling that depends on it, or a kernel that "
        "fails in the last tokens.",
    ),
    (
        "another beginning",
        lambda seen, at: bool(at["other_ids"]),
        "The sides begin a text otherwise (see the note on BOS), which alone can do this: --bos never and --bos "
        "always read both alike.",
    ),
    (
        "at both ends",
        lambda seen, at: seen.pattern in ("first tokens", "growing") and seen.again is not None,
        "What differs at both ends and not between is no growth: tokens that are replaced (late ones may look back "
        "at the first), a mask or positions of some places, a cache that is read or written wrongly at its ends.",
    ),
    (
        "first tokens, cached",
        lambda seen, at: seen.pattern == "first tokens" and seen.cached,
        "What is near the place from where the cache is read differs most: the first passes through the cache, "
        "their positions or their mask.",
    ),
    (
        "first tokens, and beyond",
        lambda seen, at: seen.pattern == "first tokens" and seen.size < APART * APART * seen.before,
        "The beginning of the input does this (another BOS, a template, tokens before the text, a part that is cut "
        "off), or a difference of all positions that early tokens show more: a mask of near tokens, other weights.",
    ),
    (
        "first tokens",
        lambda seen, at: seen.pattern == "first tokens",
        "The beginning of the input does this: another BOS, a template, tokens before the text, or a beginning that "
        "is cut off or seen otherwise.",
    ),
    (
        "other dtypes",
        lambda seen, at: (
            seen.pattern in ("from a place", "growing", "first tokens") and _other_dtypes(seen, at)
        ),
        "The sides have other dtypes, whose rounding shows more where the model is less sure; or that is a fault of "
        "long context. Compare both in one dtype.",
    ),
    (
        "from a place, cached",
        lambda seen, at: seen.pattern == "from a place" and seen.cached,
        "That is a fault of the cache or of long context: a window or a budget beyond which it forgets, an offset of "
        "positions, values or keys, or a sliding window.",
    ),
    (
        "from a place",
        lambda seen, at: seen.pattern == "from a place",
        "That is a fault of long context, or of what is read there: another rope scaling, a sliding window or "
        "another mask, a cut context, a kernel that fails from there on, tokens that are dropped or replaced.",
    ),
    (
        "cache, few bits",
        lambda seen, at: seen.cached and bool(at["exact"]) and seen.size < FEW_BITS and seen.use != "less",
        "Without the cache both sides are equal. The precision of the cache does this (quantized keys and values), "
        "and so do tokens that it drops or moves.",
    ),
    (
        "cache, more",
        lambda seen, at: seen.cached and bool(at["exact"]),
        "Without the cache both sides are equal, and this is more than its precision: tokens that it forgets, "
        "overwrites or moves, or very few bits.",
    ),
    (
        "decode path",
        lambda seen, at: seen.cached and bool(at["decoded"]),
        "The decode path does this (its cache, its positions, its kernel), or whatever else differs between the "
        "sides: precision, weights, an adapter, a rope scaling.",
    ),
    (
        "growing",
        lambda seen, at: seen.pattern == "growing",
        "That is long context (another rope base or scaling, positions that drift, errors that add up), or a "
        "difference of all positions (weights, a mask, tokens before the text, the output or a filter of it) in a "
        "model that is less sure of late tokens.",
    ),
    (
        "far",
        lambda seen, at: seen.size >= LARGE,
        "That is more than precision: other weights, an adapter that was not loaded, another rope base or scaling, a "
        "mask, a filter of the output, or log-probabilities of other tokens or of another base.",
    ),
    (
        "flat",
        lambda seen, at: True,
        "Precision does this (another dtype, quantized weights), other weights or an adapter, a rope scaling of all "
        "positions (YaRN), other positions, a mask of near tokens, tokens before the text, a temperature, and rows "
        "added to the vocabulary.",
    ),
)
"""(name, whether it applies, what does this); the first that applies is said."""
SIDES: tuple[tuple[str, Applies, str], ...] = (
    ("no numbers", lambda seen, at: seen.pattern in ("equal", "undecided", "unstable"), ""),
    (
        "better",
        lambda seen, at: not _everywhere(seen) and (_much_better(seen, at) or _one_sided_better(seen, at)),
        "What is so clearly better means that the fault is in A, or that B sees what it predicts.",
    ),
    (
        "worse, one-sided",
        lambda seen, at: (
            seen.sign == "worse" and _one_sided(seen, at) and not (_everywhere(seen) and seen.size < LARGE)
        ),
        "Nearly every token that differs is less likely in B: the fault is in B, or A sees what it predicts.",
    ),
)
"""(name, whether it applies, which side may be at fault), said after the causes; the first that applies."""


def _not_exact(at: Mapping[str, float]) -> bool:
    """Whether a side differs from itself by more than float32 mostly rounds."""
    return max(at["floor_a"], at["floor_b"]) > 1e-4


def _other_dtypes(seen: Evidence, at: Mapping[str, float]) -> bool:
    """Whether one side alone has 16 bits, and its weights, rounded too, may be what differs: up to 5 tolerances."""
    low, high = sorted((at["most_a"], at["most_b"]))
    return 0 < low <= 2e-3 < high and seen.size < 5 * at["tolerance"]


def _everywhere(seen: Evidence) -> bool:
    """Whether tokens of all positions differ."""
    return seen.pattern in ("all positions", "growing")


def _much_better(seen: Evidence, at: Mapping[str, float]) -> bool:
    """Whether the loss of B is lower by more than a better model explains."""
    return seen.sign == "better" and -seen.shift > max(SEEN, SEEN * at["loss_a"])


def _one_sided(seen: Evidence, at: Mapping[str, float]) -> bool:
    """Whether nearly all tokens that differ do so in the same direction; rounding has no share in the sums."""
    return abs(at["one_sided"]) >= ALL_ONE_SIDED or abs(seen.shift) >= NEARLY_ALL * at["difference"]


def _one_sided_better(seen: Evidence, at: Mapping[str, float]) -> bool:
    return seen.sign == "better" and _one_sided(seen, at)
