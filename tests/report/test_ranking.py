"""Pages of many models: in order, in the title, in the text and in the picture."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.report.figures import figures_of
from lengthwise.report.ranking import MOST_SERIES, RANKED, ranking
from lengthwise.report.run_page import build_report
from lengthwise.results import Row
from tests.report import made_rows as made

SOUND = {"a": 3000, "b": 9000, "c": 5000, "d": 2000, "e": 7000, "f": 8000, "g": 40}


def limits() -> list[Row]:
    return [row for model, sound in SOUND.items() for row in made.limit_rows(model, sound=sound)]


def test_a_picture_has_a_line_for_each_model_from_the_greatest_value() -> None:
    rows = [
        replace(row, value=None, ci_low=None, ci_high=None)
        if (row.model, row.metric) == ("c", "used_up_to")
        else row
        for row in limits()
    ]
    (picture,) = figures_of("limit", rows)
    sound, used = picture.figure.axes
    by_value = sorted(SOUND, key=lambda model: -SOUND[model])
    assert [label.get_text() for label in sound.get_yticklabels()] == by_value
    points = {line.get_ydata()[0]: line.get_xdata()[0] for line in sound.lines if len(line.get_xdata()) == 1}
    assert points == {place: SOUND[model] for place, model in enumerate(by_value)}
    bars = {
        line.get_ydata()[0]: tuple(line.get_xdata()) for line in sound.lines if len(line.get_xdata()) == 2
    }
    ends = {row.model: (row.ci_low, row.ci_high) for row in rows if row.metric == "sound_up_to"}
    assert bars == {place: ends[model] for place, model in enumerate(by_value)}
    assert used.get_yticklabels()[-1].get_text() == "c", "what is not known is last"
    assert len(used.lines) == 2 * (len(SOUND) - 1), "and has no point"
    assert sound.get_ylim()[0] > sound.get_ylim()[1], "the first is on top"


def test_few_models_keep_their_curves() -> None:
    few = [row for row in limits() if row.model in list(SOUND)[:MOST_SERIES]]
    assert [picture.name for picture in figures_of("limit", few)] == ["limit"]


@pytest.mark.parametrize("task", RANKED)
def test_rows_without_these_numbers_have_no_ranking(task: str) -> None:
    assert ranking(task, [Row(model="m", task=task, metric="other", value=1.0)]) is None


def test_the_numbers_are_those_of_the_greatest_length() -> None:
    rows = [row for at in range(7) for row in made.perplexity_rows(f"m{at}", shift=at / 10)]
    (picture,) = figures_of("perplexity", rows)
    longest = [row for row in rows if row.metric == "loss" and row.length == 1024 and row.is_headline]
    (axes,) = picture.figure.axes
    points = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert points == sorted((row.value for row in longest if row.value is not None), reverse=True)


def test_a_family_of_questions_is_ranked_by_its_score() -> None:
    rows = [
        Row(model=f"m{at}", task="needle", metric=metric, value=value, length=length, unit="share")
        for at in range(7)
        for length in (128, 256)
        for metric, value in (("accuracy", at / 10 if length == 256 else 1.0), ("chance", 0.25))
    ]
    (picture,) = figures_of("needle", rows)
    assert [label.get_text() for label in picture.figure.axes[0].get_yticklabels()] == [
        f"m{at}" for at in reversed(range(7))
    ]


def test_the_title_names_the_ends_and_the_text_is_in_order(
    write_run: Callable[..., Path], tmp_path: Path
) -> None:
    runs = [
        write_run(model, kind="limit", model=model, rows=made.limit_rows(model, sound=sound))
        for model, sound in SOUND.items()
    ]
    page = build_report(runs, tmp_path / "page.html").read_text(encoding="utf-8")
    title = page[page.index("<title>") + 7 : page.index("</title>")]
    assert title == "Sound up to (tokens) of 7 runs: from b 9,000 [8,600, 9,440] to g 40 [-360, 480]."
    leads = [f'<p class="lead">{model}: sound' for model in sorted(SOUND, key=lambda model: -SOUND[model])]
    assert [page.index(lead) for lead in leads] == sorted(page.index(lead) for lead in leads)
