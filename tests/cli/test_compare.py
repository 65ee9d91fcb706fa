"""`compare A B`: sides and their keys, kept predictions, exit codes; `difference` of runs."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import gates
from lengthwise.errors import THRESHOLD_CROSSED, UNDECIDED
from lengthwise.report.comparison_verdict import verdict
from lengthwise.results import Results, Row, parse_results
from lengthwise.testing import save_tiny_model
from tests.cli.small_runs import refused
from tests.report import card_runs

SIZES = ("--lengths", 96, "--windows", 3)
EVICTS = ("cache=checks.lab.caches:forgets", "read=chunks=48")


@pytest.fixture
def other(tmp_path: Any) -> str:
    return str(save_tiny_model(tmp_path / "other", seed=1))


def test_thresholds(lengthwise: Callable[..., Any], model: str, text: list[str]) -> None:
    changes = [word for each in EVICTS for word in ("--b", each)]
    # One forgets what is more than 128 tokens back.
    words = ["compare", model, model, *text, "--lengths", 512, "--windows", 3, *changes]
    done = lengthwise(*words, "--fail-above", 0.01, "--json")
    assert done.code == 4
    assert "difference is above 0.01" in done.err
    assert "tokens 384 to 512" in done.err
    found = {row["metric"] for row in done.json["rows"]}
    assert {
        "difference",
        "shift",
        "kl",
        "same_top",
        "largest",
        "equal_up_to",
        "benefit_a",
        "benefit_b",
    } <= found
    assert lengthwise(*words, "--fail-above", 100).code == 0


def verdict_of(results: Any) -> list[str]:
    return verdict(parse_results(results).rows)


def results_of(*rows: Row) -> Results:
    return Results(kind="difference", model_name="m", config={}, rows=list(rows))


def test_a_lost_benefit(capsys: pytest.CaptureFixture[str]) -> None:
    about: Any = {"model": "m", "task": "difference", "distance": 100, "documents": 4}
    clear = Row(metric="benefit_a", value=2.0, ci_low=1.5, ci_high=2.5, **about)
    kept = Row(metric="benefit_kept", value=0.7, unit="ratio", **about)
    lost = Row(metric="benefit_change", value=-0.6, p_holm=0.01, **about)
    assert gates.exit_code([gates.use(results_of(clear, kept, lost), 0.2)]) == THRESHOLD_CROSSED
    assert gates.exit_code([gates.use(results_of(clear, kept, lost), 0.4)]) == 0
    capsys.readouterr()
    # A gate that cannot see a loss does not pass, and none fails for noise.
    for unclear, change, why in (
        (replace(clear, ci_low=-0.1), lost, "no clear benefit"),
        (replace(clear, ci_low=None, ci_high=None, documents=1), lost, "one document"),
        (clear, replace(lost, p_holm=0.3), "may be noise between documents (100 tokens back: 30 % (p 0.3))"),
    ):
        rows = (unclear, *(replace(row, documents=unclear.documents) for row in (change, kept)))
        assert gates.exit_code([gates.use(results_of(*rows), 0.2)]) == UNDECIDED
        err = capsys.readouterr().err
        assert "could not decide" in err
        assert why in err


def test_a_difference_within_rounding_is_not_decided(capsys: pytest.CaptureFixture[str]) -> None:
    about: Any = {"model": "m", "task": "difference", "length": 256}
    apart, tolerance = (
        Row(metric="difference", value=0.06, **about),
        Row(metric="tolerance", value=0.08, **about),
    )
    assert gates.exit_code([gates.above(results_of(apart, tolerance), "difference", 0.05)]) == UNDECIDED
    assert "below what rounding gives here" in capsys.readouterr().err
    assert gates.exit_code([gates.above(results_of(apart, tolerance), "difference", 0.1)]) == 0
    more = replace(apart, value=0.09)
    assert (
        gates.exit_code([gates.above(results_of(more, tolerance), "difference", 0.05)]) == THRESHOLD_CROSSED
    )
    # A threshold that is crossed counts more than one that is not decided.
    undecided, crossed = ({"passed": state, "words": ""} for state in (None, False))
    assert gates.exit_code([undecided, crossed]) == THRESHOLD_CROSSED


@pytest.mark.parametrize("floor", [0.3, 2.0])
@pytest.mark.parametrize("gate", [gates.use, partial(gates.above, metric="difference")])
@pytest.mark.parametrize("threshold", [0.01, 0.9])
def test_no_threshold_is_decided_where_a_side_differs_from_itself(floor, gate, threshold):
    assert gate(card_runs.compare(floor=floor), threshold=threshold)["passed"] is None
    assert gate(card_runs.compare(), threshold=0.9)["passed"] is True


@pytest.mark.parametrize(
    ("values", "passed"),
    [((9.0, None), None), ((None, 9.0), None), ((None, 11.0), False), ((9.0, 9.0), True)],
)
@pytest.mark.parametrize("metric", ["perplexity", "jeffreys", "difference"])
def test_a_length_without_a_value_does_not_pass(metric, values, passed):
    about: Any = {"model": "m", "task": metric, "metric": metric}
    rows = [
        Row(value=value, length=length, **about) for length, value in zip((128, 512), values, strict=True)
    ]
    assert gates.above(results_of(*rows), metric, 10.0)["passed"] is passed


def test_kept_predictions_give_the_same_numbers(lengthwise, model, other, text):
    both = lengthwise("compare", model, other, *text, *SIZES, "--json").json
    for name, which in (("a", model), ("b", other)):
        done = lengthwise("compare", which, *text, *SIZES, "--out", name)
        assert "predictions are kept, with a loss of" in done.out
    for option in ("--metric=loss", "--reference=a", "--format=csv"):
        message = refused(lengthwise("difference", "a", "b", option))
        assert option.partition("=")[0] in message
        assert "fix: leave it out" in message
    Path("link").symlink_to("a")
    for same in ("a", "./a", "link", "b=a"):
        refused(lengthwise("difference", "a", same, "--fail-above", 1), 2, "given twice")
    apart = lengthwise("difference", "a", "b", "--json").json
    assert lengthwise("difference", "a", "b", "--fail-above", 1e-6).code == 4
    # Random models use nothing that is far back, so there is nothing to lose.
    assert lengthwise("difference", "a", "b", "--fail-above", 100, "--fail-use", 0.9).code == 5
    in_turn = lengthwise("compare", model, other, *text, *SIZES, "--sequential", "--out", "c", "--json").json
    assert in_turn["rows"] == [{**row, "model": in_turn["rows"][0]["model"]} for row in apart["rows"]]
    # What a direct comparison says, and that KL is a bound.
    assert both["notes"] == [note for note in apart["notes"] if not note.startswith("kl is")]
    assert apart["notes"] == in_turn["notes"]
    assert verdict_of(both) == verdict_of(apart) == verdict_of(in_turn)

    def numbers(results: Any) -> dict[Any, float]:
        places = ("metric", "length", "position", "distance")
        return {tuple(row.get(key) for key in places): row["value"] for row in results["rows"]}

    whole, kept = numbers(both), numbers(apart)
    for place, value in whole.items():
        if place[0] == "kl":
            assert kept[place] <= value + 1e-6
        else:
            assert kept[place] == pytest.approx(value, abs=1e-5), place
    # Both logs lack a window.
    for name in ("a", "b"):
        shutil.copytree(name, f"{name}-cut")
        log = Path(f"{name}-cut/samples.jsonl")
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    refused(lengthwise("difference", "a-cut", "b-cut", "--fail-above", 100), 2, "not that of the samples")
    # Finished sides are read, not repeated.
    assert (
        lengthwise("compare", model, other, *text, *SIZES, "--sequential", "--out", "c", "--resume").code == 0
    )


def test_the_plan(lengthwise: Callable[..., Any], model: str, text: list[str]) -> None:
    done = lengthwise("compare", model, model, *text, *SIZES, "--b", "read=decode=16", "--dry-run", "--json")
    assert done.json["tokens_to_run"] == 2 * 3 * 2 * 96
    assert done.json["decode_passes"] == 2 * 3 * 16
    alone = lengthwise("compare", model, *text, *SIZES, "--decode", 16, "--dry-run", "--json")
    assert "96 passes of one token" in done.json["seconds_basis"]
    assert "passes of one token" not in alone.json["seconds_basis"]
    assert done.json["settings"]["side_b"]["read"] == "decode=16"


def test_a_table_of_paired_differences(lengthwise, model, other, text):
    """Of two models measured on the same text."""
    runs = ["before", "after"]
    for name, which in zip(runs, (model, "other"), strict=True):
        assert lengthwise("ppl", which, *text, "--lengths", 16, 32, "--windows", 8, "--out", name).code == 0
    done = lengthwise("difference", *runs)
    assert done.code == 0
    assert "difference [95 % interval]" in done.out
    assert re.search(r"^ +loss +16 +other .* [+-]\d\.\d+ \[[+-]", done.out, flags=re.MULTILINE)
    assert re.search(r"\d+ of 8 differences are more than noise", done.out)
    assert lengthwise("difference", *runs, "--format", "csv").out.startswith("model,task,metric,value,")
    assert lengthwise("difference", *runs, "--format", "latex").out.startswith(r"\begin{table}")
    found = lengthwise("difference", *runs, "--reference", "after", "--metric", "loss", "--json").json
    differences = [row for row in found["rows"] if "reference" in row]
    assert [(row["metric"], row["length"], row["reference"]) for row in differences] == [
        ("loss", 16, "other"),
        ("loss", 32, "other"),
    ]
    assert all(0 <= row["p_holm"] <= 1 for row in differences)
    done = lengthwise("compare", *runs)
    assert done.code == 3
    assert "`lengthwise difference`" in done.err
