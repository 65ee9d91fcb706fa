"""Token by token: does Jeffreys go with what a token gains from distant context, and with what it needs of it?"""

from __future__ import annotations

from collections.abc import Callable

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise_studies.sparsity.bridge import Token, rank_correlation_by_document


def rank_table(tokens: list[Token]) -> Table:
    """Spearman's rho of Jeffreys with what a token gains and needs."""
    tried = [token for token in tokens if token.needed is not None]
    keys = [float(token.is_key) for token in tokens]
    pairs: list[tuple[str, list[Token], Callable[[Token], float]]] = [
        ("gain from distant context", tokens, lambda token: token.gain),
        ("size of the gain, |gain|", tokens, lambda token: abs(token.gain)),
        ("loss with near context", tokens, lambda token: token.short),
        ("distant tokens needed (targets)", tried, lambda token: token.needed or 0.0),
        ("being a key token of LongPPL", tokens, lambda token: float(token.is_key)),
    ]
    rows: list[list[Cell]] = []
    for name, some, value in pairs:
        found = rank_correlation_by_document(
            [token.jeffreys for token in some], [value(token) for token in some], [t.document for t in some]
        )
        rows.append([name, Estimate(found.value, found.low, found.high, signed=True), found.n])
    return Table(
        columns=["Jeffreys against", "Spearman's rho [95 % interval]", "tokens"],
        rows=rows,
        caption="Rank correlation over tokens, documents resampled",
        notes=[f"{int(sum(keys))} of {len(keys)} examined tokens are key tokens."],
    )
