"""The program of the lab: it resumes, says what is wrong, and its made-up sides are what they say."""

from dataclasses import replace

import numpy as np
import pytest

from checks.lab import __main__ as lab
from checks.lab import nulls, table
from checks.lab.sides import Says
from lengthwise.results import Results

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
