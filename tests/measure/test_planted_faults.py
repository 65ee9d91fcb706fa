"""Faults that serving really has, planted on purpose: each is found, and sound pairs are equal."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checks.lab import __main__ as lab
from checks.lab import nulls, table
from checks.lab.bases import base_of, text_of
from checks.lab.judged import judged
from checks.lab.sides import Base, Pair, Says
from checks.lab.table import PAIRS
from lengthwise.report.comparison_evidence import evidence
from lengthwise.results import Results, Row

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


WORDS = ("--model", "tiny-books", "--scale", "1", "--no-nulls", "--only", "noise of 30 %")


@pytest.mark.real
def test_what_is_finished_is_read(tmp_path, monkeypatch, capsys):
    words = ["--out", str(tmp_path), *WORDS]
    assert lab.main(words) == 0
    monkeypatch.delattr(lab, "compared")
    assert lab.main(words) == 0
    assert capsys.readouterr().out.count("weights: noise of 30 %: B differs from A") == 2
    wanted = [replace(pair, says=Says(("equal",))) for pair in table.PAIRS["weights"]]
    monkeypatch.setitem(table.PAIRS, "weights", tuple(wanted))
    assert lab.main(words) == 1
    assert "'all positions' in place of equal" in capsys.readouterr().out


def test_made_up_sides_have_the_benefit_and_the_shift_that_they_say() -> None:
    found = [row for seed in range(12) for row in nulls.compared(8, seed).rows if row.is_whole]
    values = {
        metric: [row.value for row in found if row.metric == metric]
        for metric in ("benefit_a", "benefit_change", "shift")
    }
    # Of the 8 tokens of a passage the last 6 count, and of these the last 4 follow repeated ones alone.
    assert np.mean(values["benefit_a"]) == pytest.approx(nulls.BENEFIT * 4 / 6, abs=0.06)
    assert np.mean(values["benefit_change"]) == pytest.approx(0, abs=0.1)
    assert np.mean(values["shift"]) == pytest.approx(nulls.TRUE_SHIFT, abs=0.1)


def test_rows_keep_the_least_and_the_most_of_a_kind() -> None:
    pair = table.PAIRS["weights"][0]
    refused = Results(kind="refused", model_name="", config={}, rows=[])
    found = lab.rows_of("lab", "weights", [(pair, refused, ["wrong"])], "m")
    counts = {"pairs": 1, "planted": len(table.PAIRS["weights"]), "right": 0}
    apart = dict.fromkeys(("least", "most", "tolerance"))
    assert {row.metric: row.value for row in found if row.task == "lab"} == counts | apart
    assert {row.metric: row.value for row in found if row.task == "called"} == {"refused": 1}
    assert {row.arm for row in found} == {"weights"}


ABOUT: Any = {"model": "m", "task": "compare", "length": 512}


def compared_rows(means: list[float], **numbers: float) -> list[Row]:
    """A comparison of 512 tokens, in bins of 64, and its numbers."""
    rows = [Row(**ABOUT, metric=name, value=value, n=2048) for name, value in numbers.items()]
    return rows + [
        Row(**ABOUT, metric="difference", position=64 * bin, position_end=64 * bin + 64, value=mean, n=256)
        for bin, mean in enumerate(means)
    ]


@pytest.mark.parametrize(("after", "pattern"), [(0.31, "from a place"), (0.15, "some tokens")])
def test_a_place_among_the_last_tokens_is_found_though_its_bin_is_within_the_tolerance(after, pattern):
    """The numbers of SmolLM2-135M in bfloat16, with noise in the last 16 of 512 tokens; and with half of it."""
    rows = compared_rows(
        [0.04] * 7 + [0.074], difference=0.0485, shift=0.0, tolerance=0.0975, floor_a=0.065, floor_b=0.064,
        most_a=0.25, most_b=0.25, largest=1.74, largest_rounding=1.53, before=0.04, after=after, top_share=0.15,
        tenth_share=0.44, alone_share=0.36, one_sided=0.0,
    )  # fmt: skip
    found = evidence([*rows, Row(**ABOUT, metric="begins", value=496.0, ci_low=496.0, ci_high=504.0)])
    assert found is not None
    assert found.pattern == pattern
    assert found.place == ((496, 504) if pattern == "from a place" else None)


@pytest.mark.parametrize(("shift", "pattern"), [(8.2e-6, "equal"), (8.2e-5, "all positions")])
def test_what_float32_rounds_in_the_sum_over_a_vocabulary_is_no_difference(shift, pattern):
    """SmolLM2-135M in float64 beside float32: the sum over its 49,152 rows is a little too small in float32."""
    rows = compared_rows(
        [shift] * 8, difference=shift, shift=shift, tolerance=1e-4, floor_a=2e-6, floor_b=1e-14, most_a=2e-3,
        most_b=1e-9, largest=3.7e-5, largest_rounding=1e-2, one_sided=0.99,
    )  # fmt: skip
    assert (found := evidence(rows)) is not None
    assert found.pattern == pattern
