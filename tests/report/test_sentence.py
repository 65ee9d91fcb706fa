"""The sentence of a run: its numbers are those of the rows, and every face begins with it."""

import re
from typing import Any, get_args

import pytest

from lengthwise.report import comparison_evidence, comparison_verdict
from lengthwise.report.comparison_evidence import Evidence, Kind
from lengthwise.report.sentence import APART, BY_CACHE, USED, said, subject_of
from lengthwise.results import Results, Row
from tests.report import made_rows as made


def results_of(rows: list[Row], kind: str = "compare", **config: Any) -> Results:
    return Results(kind=kind, model_name="m", config=config, rows=rows)


def difference_rows() -> list[Row]:
    about: Any = {"model": "m", "task": "difference", "length": 512}
    bins = [
        Row(metric="difference", value=0.2, position=0, position_end=512, n=512, **about),
        Row(metric="benefit_kept", value=0.9, unit="ratio", distance=64, **about),
        Row(metric="windows_apart", value=0.25, unit="share", **about),
        Row(metric="floor_a", value=0.3, **about),
        Row(metric="cached_from", value=64, unit="tokens", **about),
    ]
    return [made.estimate(0.21, 0.03, metric="difference", **about), *bins]


@pytest.mark.parametrize("pattern", get_args(Kind))
def test_every_pattern_of_a_comparison_has_its_words_and_numbers(
    pattern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Evidence(pattern, "worse", 0.47, (256, 260), None, 0.13, 0.2, "less", True, None, False)
    monkeypatch.setattr(comparison_evidence, "evidence", lambda _: seen)
    monkeypatch.setattr(comparison_verdict, "verdict", lambda _: ["why"])
    found = said(results_of(difference_rows(), side_b={"model": "m", "kv_cache": "quanto-int4"}))
    assert found.sentence.startswith("m with a 4-bit cache: ")
    assert found.more == ["why"]
    undecided = pattern in ("undecided", "unstable")
    assert ("0.210 [0.180, 0.243]" in found.sentence) is not undecided, "the number with its interval"
    assert found.sentence.endswith(f"{USED['less']}.") is not undecided
    form = BY_CACHE if pattern == "all positions" else APART[pattern]
    assert ("0.47" in found.sentence) is ("{size" in form)
    assert ("0.13" in found.sentence) is ("{before" in form)
    assert ("from token 64 on" in found.sentence) is ("{cached" in form)
    assert [row.metric for row in found.numbers][:1] == ["difference"]


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ({"model": "org/m"}, {"model": "org/m", "quantize": "nf4"}, "m with 4-bit weights"),
        ({"model": "org/m"}, {"model": "org/m", "kv_cache": "q8_0"}, "m with an 8-bit cache"),
        ({"model": "m", "kv_cache": "quanto-int4"}, {"model": "m"}, "m with no kv_cache"),
        ({"model": "a/m"}, {"model": "b/n", "read": "decode"}, "n with read=decode against m"),
        ({"model": "m"}, {"model": "http://h:1/v1"}, "http://h:1/v1 against m"),
        (
            {"model": "m"},
            {"model": "m", "dtype": "float16", "kv_cache": "q4_0"},
            "m in float16 with a 4-bit cache",
        ),
        ({"model": "m", "dtype": "float16"}, {"model": "m"}, "m with dtype=auto"),
        ({"model": "m"}, {"model": "m", "adapter": "runs/lora"}, "m with adapter=runs/lora"),
        (
            {"model": "m"},
            {"model": "m", "adapter": {"config": "LoraConfig", "r": 8}},
            "m with a Lora adapter of rank 8",
        ),
    ],
)
def test_what_was_compared(one: Any, two: Any, expected: str) -> None:
    assert subject_of(results_of([], **one, side_b=two)) == expected
    assert subject_of(results_of([], a=one, b=two)) == expected, "kept predictions"


def test_both_limits_with_their_intervals() -> None:
    found = said(results_of(made.limit_rows(), "limit"))
    assert found.sentence == (
        "m: sound up to 10,000 [9,600, 10,440] tokens; used up to 7,000 [6,100, 7,990] tokens back."
    )
    assert [row.metric for row in found.numbers] == ["sound_up_to", "used_up_to", "tolerance"]
    unknown = said(results_of([Row(model="m", task="limit", metric="tolerance", value=0.1)], "limit"))
    assert re.fullmatch(r"m: where .* not known; how far .* not known\.", unknown.sentence)


def test_a_run_without_an_answer_names_no_numbers() -> None:
    assert said(results_of([Row(model="m", task="limit", metric="loss", value=1.0)], "limit")).numbers == ()


@pytest.mark.parametrize(
    ("losses", "expected", "more"),
    [
        ((3.2, 3.1, 2.9), ", 0.300 lower than at 32 tokens.", []),
        ((3.2, 3.0, 3.4), ", 0.200 higher than at 32 tokens.", ["It is lowest at 64 tokens: 3.000."]),
        ((3.2, 3.2, 3.2), ", as at 32 tokens.", []),
        ((3.2, 3.3, 3.2 + 1e-9), ", as at 32 tokens.", []),
        ((3.2, 3.3, 3.2 - 1e-9), ", as at 32 tokens.", []),
        ((3.2, 3.1, 3.2 + 1e-9), ", as at 32 tokens.", ["It is lowest at 64 tokens: 3.100."]),
    ],
)  # fmt: skip
def test_losses_that_are_printed_alike_are_neither_higher_nor_lower(losses, expected, more) -> None:
    about: Any = {"model": "m", "task": "perplexity", "metric": "loss"}
    rows = [
        made.estimate(loss, 0.0, length=length, **about)
        for length, loss in zip((32, 64, 128), losses, strict=True)
    ]
    found = said(results_of(rows, "ppl"))
    assert found.sentence.endswith(f" nats per token{expected}")
    assert found.more == more


@pytest.mark.parametrize(("perplexity", "said_of_it"), [(None, None), (54.5, "(perplexity 54.5")])
def test_the_perplexity_is_that_of_the_length_of_the_loss(perplexity, said_of_it) -> None:
    """It has no value where it overflows."""
    about: Any = {"model": "m", "task": "perplexity"}
    rows = [made.estimate(loss, 0.1, metric="loss", length=n, **about) for n, loss in ((64, 2.0), (128, 4.0))]
    rows += [
        Row(metric="perplexity", value=value, unit="ratio", length=n, **about)
        for n, value in ((64, 7.4), (128, perplexity))
    ]
    found = said(results_of(rows, "ppl"))
    assert ("(perplexity" in found.sentence) is (said_of_it is not None)
    assert (said_of_it or "") in found.sentence
    assert {row.length for row in found.numbers} == {128}
