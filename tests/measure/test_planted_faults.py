"""Faults that serving really has, planted on purpose: each is found, and sound pairs are equal."""

import pytest

from checks.lab.bases import base_of, text_of
from checks.lab.judged import judged
from checks.lab.sides import Base, Pair
from checks.lab.table import PAIRS

ALL = [pytest.param(pair, id=f"{kind}: {pair.what}") for kind, pairs in PAIRS.items() for pair in pairs]


@pytest.fixture(scope="module")
def bases() -> dict[tuple[str, str], Base]:
    """The models by name and dtype, whose passes are kept."""
    return {}


@pytest.mark.real
@pytest.mark.parametrize("pair", ALL)
def test_what_is_said(pair: Pair, bases: dict[tuple[str, str], Base]) -> None:
    key = (pair.base, pair.dtype)
    if key not in bases:
        bases[key] = base_of(pair.base).cast(pair.dtype)
    found = judged(pair, bases[key], text_of(pair.base, pair.raw))
    assert not found.wrong, f"{'; '.join(found.wrong)}\n{found.said}"


def test_no_two_pairs_have_one_name() -> None:
    names = [f"{kind}: {pair.what}" for kind, pairs in PAIRS.items() for pair in pairs]
    assert len(set(names)) == len(names)
