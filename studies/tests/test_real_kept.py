"""The kept run of the real model: its reader, its differences, and the numbers that its page says in sentences."""

import json
import lzma
from functools import cache
from math import log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest

from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.claims import NOT_DECIDED, OPPOSITE, OUTSIDE
from lengthwise_studies.over_seeds import OverSeeds, over_seeds
from lengthwise_studies.paper.methods import ENTROPY, JEFFREYS, PLAIN, SCE
from lengthwise_studies.real.kept import kept_files, read_kept
from lengthwise_studies.real.study import REAL

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "studies" / "results" / "real"
PAGE = " ".join((ROOT / "docs" / "evidence" / "real-model.md").read_text().split())
YARN, CLEX = "YaRN x4", "CLEX x4"


@cache
def _kept() -> Results:
    return read_kept(kept_files(FOLDER))


def _rows(
    setting: str, arm: str, metric: str, times: float, to: str | None = None, **more: object
) -> list[Row]:
    """A row for each seed."""
    wanted = {"arm": f"{setting}: {arm}", "reference": to and f"{setting}: {to}", "depth": None}
    wanted |= {"metric": metric, "length": round(8192 * times), "context_other": None, **more}
    return rows_with(_kept().rows, **wanted)


def _values(
    setting: str, arm: str, metric: str, times: float, to: str | None = None, **more: object
) -> list[float]:
    return [row.value or 0.0 for row in _rows(setting, arm, metric, times, to, **more)]


def _loss(setting: str, arm: str, times: float, to: str = PLAIN, metric: str = "loss") -> OverSeeds:
    return over_seeds(_rows(setting, arm, metric, times, to))


def _over_seeds_alone(arm: str, task: str) -> list[float]:
    """An arm's accuracy minus that of plain: the mean with Student's interval of two degrees of freedom."""
    values = _values(YARN, arm, "accuracy", 1, PLAIN, task=task)
    mean, half = fmean(values), 4.302653 * stdev(values) / sqrt(3)
    return [mean, mean - half, mean + half]


def test_the_rows_name_their_code_and_no_folder() -> None:
    texts = [lzma.decompress(path.read_bytes()).decode() for path in kept_files(FOLDER)]
    assert len(texts) == 3
    for text in texts:
        heads = [json.loads(line)["head"] for line in text.splitlines() if line.startswith('{"head"')]
        # The second run did what the first had no time for, on another card.
        assert [(head["code"], head["device"]) for head in heads] == [
            ("91c2b453", "NVIDIA H100 80GB HBM3"),
            ("71d85bd1", "NVIDIA H200"),
        ]
        assert '"/' not in text


@pytest.mark.parametrize("times", [0.25, 0.5, 1, 2, 4])
def test_a_difference_to_another_arm_is_the_difference_of_both_to_plain(times: float) -> None:
    apart = _loss(YARN, SCE, times).mean - _loss(YARN, ENTROPY, times).mean
    assert _loss(YARN, SCE, times, to=ENTROPY).mean == pytest.approx(apart, abs=1e-12)


def _said(mean: float, low: float, high: float, digits: int = 3) -> str:
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def test_the_sentences_of_the_page_say_what_the_rows_say() -> None:
    at = {times: _loss(YARN, SCE, times) for times in (0.25, 0.5, 1, 2, 4)}
    assert "All p values are below 0.001." in PAGE
    assert all(one.p_value() < 0.001 for one in at.values())
    # "YaRN excludes both at every length": each interval lies above 0.
    assert all(one.interval[0] > 0.05 for one in at.values())

    taken = [1 - _loss(YARN, SCE, t, metric="loss_best_temperature").mean / at[t].mean for t in (1, 2)]
    assert [f"{one:.0%}" for one in taken] == ["84%", "91%"]
    assert "84 % of the cost at T and 91 % at 2T" in PAGE

    beyond = [_loss(YARN, SCE, times, to=ENTROPY) for times in (1, 2, 4)]
    cooled = [_loss(YARN, SCE, t, to=ENTROPY, metric="loss_best_temperature") for t in (1, 2)]
    assert [f"{-one.mean:.3f}" for one in (*beyond, cooled[1])] == ["0.001", "0.016", "0.043", "0.011"]
    assert "costs the same as SCE up to T, to 0.001 nats" in PAGE
    assert "most of it remains at 2T" in PAGE
    every = [_loss(YARN, SCE, times, to=ENTROPY) for times in (0.25, 0.5)] + beyond + cooled
    ordered = sorted(one.p_value() for one in every)
    holm = [p * (len(ordered) - place) for place, p in enumerate(ordered)]
    assert max(holm[:3]) < 0.02
    assert "stays below 0.02 after Holm's correction" in PAGE

    low, high = _loss(CLEX, SCE, 2).interval
    assert low < log(6.24 / 6.56) < log(5.88 / 6.12) < log(5.77 / 5.82) < high
    assert [f"{log(one):.3f}" for one in (5.88 / 6.12, 5.77 / 5.82)] == ["-0.040", "-0.009"]
    assert "with CLEX at 2T: 0.040 nats. With LongQLoRA (Table 3) it is 0.009." in PAGE

    assert f"+{_said(*_over_seeds_alone(SCE, 'needle_multi_key'))}" in PAGE
    assert _said(*_over_seeds_alone(SCE, "chains_0")) in PAGE
    # "The entropy penalty changes neither beyond noise."
    penalties = [_over_seeds_alone(ENTROPY, task) for task in ("needle_multi_key", "chains_0")]
    assert all(low < 0 < high for _, low, high in penalties)


def test_the_agreement_alone_blinds_while_its_perplexity_falls() -> None:
    def answered(arm: str, depth: float) -> float:
        return fmean(_values(YARN, arm, "accuracy", 1, task="needle_multi_key", depth=depth))

    first = [answered(PLAIN, depth) for depth in (0.0, 25.0)]
    assert f"cross entropy finds {fmean(first):.0%}" in PAGE.replace(" %", "%")
    assert [answered(JEFFREYS, depth) for depth in (0.0, 25.0, 75.0)] == [0, 0, 1]
    assert "It finds no needle in the first half of its context" in PAGE
    curve = [fmean(_values(YARN, JEFFREYS, "perplexity", times)) for times in (0.25, 0.5, 1, 2, 4)]
    assert curve == sorted(curve, reverse=True)
    costs = {times: _loss(YARN, JEFFREYS, times) for times in (1, 4)}
    tempered = _loss(YARN, JEFFREYS, 1, metric="loss_best_temperature").mean
    assert [f"{one:.3f}" for one in (costs[1].mean, tempered)] == ["0.059", "0.059"]
    assert costs[4].interval[0] < 0


def test_what_clex_does_beyond_t() -> None:
    def read(arm: str) -> list[float]:
        return sorted(_values(CLEX, arm, "perplexity", 4))

    assert [f"{one:.0f}" for one in (*read("untrained"), read(PLAIN)[0], read(PLAIN)[-1])] == [
        "27",
        "35",
        "202",
    ]
    assert "perplexity rises from 27 to as much as 202" in PAGE
    lower = {arm: sum(value < 0 for value in _values(CLEX, arm, "loss", 4, PLAIN)) for arm in (SCE, ENTROPY)}
    assert lower == {SCE: 3, ENTROPY: 2}
    assert "lower in each seed, by very different amounts, with the penalty in two of three" in PAGE


def test_the_claims_compare_the_same_targets_at_two_lengths() -> None:
    """The difference of two lengths is that of the losses, seed by seed, and has an interval over documents."""
    judged = {one.claim.says: one for one in REAL.judged(_kept())}
    assert len(judged) == len(REAL.claims) == 17

    def mean(arm: str, times: int) -> float:
        return fmean(_values(YARN, arm, "loss", times))

    found = judged[f"{YARN}: reading 4T with the term has a lower loss than cross entropy reading the last T"]
    assert found.found.ours.value == pytest.approx(mean(SCE, 4) - mean(PLAIN, 1), abs=1e-9)
    assert found.verdict == OPPOSITE
    said = _said(found.found.ours.value, found.found.ours.low, found.found.ours.high)
    assert f"by {said[:5]} nats {said[6:]}" in PAGE
    cut = judged[f"{YARN}: cross entropy reading the last T has a lower loss than reading 4T"]
    assert cut.found.ours.value == pytest.approx(mean(PLAIN, 1) - mean(PLAIN, 4), abs=1e-9)
    # At one length it is the difference of the tables.
    within = judged[f"{YARN}: the term does not degrade the perplexity at 1T"]
    assert within.found.ours.value == pytest.approx(_loss(YARN, SCE, 1).mean, abs=1e-12)
    assert within.verdict == OUTSIDE
    inside = [one for says, one in judged.items() if "does not degrade" in says]
    assert ({one.verdict for one in inside}, len(inside)) == ({OUTSIDE}, 6)
    # CLEX at 2T: the paper's gain is within the interval, so nothing is said of it.
    open_at_2t = judged[f"{CLEX}: {SCE} lowers the loss at 2T"]
    assert (open_at_2t.verdict, open_at_2t.excluded) == (NOT_DECIDED, False)
    # By depth: the difference of the tables of answers.
    by_depth = [one for says, one in judged.items() if "needle_multi_key" in says]
    for one, depth in zip(by_depth, (0, 50, 75), strict=True):
        asked = {"task": "needle_multi_key", "depth": depth}
        right, plain = (fmean(_values(YARN, arm, "accuracy", 1, **asked)) for arm in (SCE, PLAIN))
        assert one.found.ours.value == pytest.approx(right - plain, abs=1e-9)
    assert {one.verdict for one in by_depth} == {NOT_DECIDED}
    least = min(one.detectable for one in by_depth if one.detectable)
    assert f"By depth nothing is decided: changes below {least:.2f} could not have been seen." in PAGE
