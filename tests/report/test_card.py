"""The card: its bars are as long as its numbers, and what is not decided does not look as if it were."""

import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.textpath import TextPath

from lengthwise.report.card_drawing import FADE, HEIGHT, TONES, WIDTH, Line, png, shapes, svg
from lengthwise.report.card_of_runs import card_of
from lengthwise.report.card_text import badge, markdown
from lengthwise.report.sentence import said
from lengthwise.results import Results, Row
from tests.report.card_runs import (
    LEAST,
    LENGTH,
    OPEN,
    SOUND,
    USED,
    boxes,
    compare,
    limit,
    words,
)

TABLE = {"value": float(LENGTH), "ci_low": LENGTH - 128.0, "ci_high": float(LENGTH)}
"""A table of positions is an end."""
NONE = {"value": 0.0, "ci_low": 0.0, "ci_high": 90.0}
SERVED, UNREAD, CHANCE = limit(SOUND, OPEN), limit(SOUND, USED), limit(None, USED)
SERVED.config.update(quantize="nf4", kv_cache="quanto-int4", dtype="bfloat16")
# Of a text in which every passage occurs elsewhere too there is no such row.
UNREAD.rows[:] = [row for row in UNREAD.rows if row.metric != "used_up_to"]
CHANCE.rows.extend(
    Row(model="m", task="limit", metric=f"{name}_loss", value=loss)
    for name, loss in (("recent", 9), ("unigram", 7))
)
RUNS: dict[str, tuple[Results, str]] = {
    "served": (SERVED, "m in bfloat16 with 4-bit weights and a 4-bit cache: claims 8,192 tokens; sound"),
    "no end": (limit(LEAST, OPEN), "at least 16,384 [16,256, open] tokens; used up to 7,298 [4,096, open] tokens"),
    "a table": (limit(TABLE, USED, max_positions=LENGTH), "sound up to 16,384 [16,256, 16,384] tokens;"),
    "no use": (limit(SOUND, NONE), "tokens; context not used (0 [0, 90] tokens back)."),
    "no such row": (UNREAD, "; how far back context is used is not known."),
    "at chance": (CHANCE, "; predictions at chance; used up to 7,298"),
}  # fmt: skip
"""Runs of limit, and words of their sentences."""


@pytest.mark.parametrize("name", RUNS)
def test_a_card_says_what_every_face_of_the_run_says(name: str) -> None:
    run, words = RUNS[name]
    card, other = card_of([run]), limit(OPEN, USED, model="other")
    assert card.sentence == said(run).sentence
    assert words in card.sentence
    assert card_of([other, run]).sentence == f"{said(other).sentence} {card.sentence}"


@pytest.mark.parametrize("end", [SOUND, {**SOUND, "value": 3000.0, "ci_low": 2000.0, "ci_high": 9000.0}])
def test_a_bar_is_as_long_as_its_number(end: dict[str, Any]) -> None:
    card = card_of([limit(end, USED)])
    [rail, *_] = boxes(card, "rail")
    claimed = boxes(card, "claimed")[-1]
    # The axis is the oracle of the scale: its last tick is the 16,384 tokens that were read.
    zero, last = (
        next(
            each.x
            for each in shapes(card)
            if hasattr(each, "text") and each.text == text and each.anchor == "middle"
        )
        for text in ("0", "16,384")
    )
    scale = (last - zero) / LENGTH
    solid, pale = boxes(card, "sound")
    assert (rail.x, solid.x) == (zero, zero)
    assert claimed.width == pytest.approx(8192 * scale)
    assert solid.width == pytest.approx(end["ci_low"] * scale)
    assert pale.x + pale.width == pytest.approx(zero + end["ci_high"] * scale)
    assert (solid.opacity, pale.opacity < 0.5) == (1.0, True)
    marks = [each.x + each.width / 2 for each in boxes(card, "text")]
    assert marks == pytest.approx([zero + each["value"] * scale for each in (end, USED)])
    drawn = ElementTree.fromstring(svg(shapes(card), card.sentence))
    widths = [
        float(each.get("width", 0))
        for each in drawn.iter()
        if each.get("class") == "sound" and each.tag.endswith("rect")
    ]
    assert widths == pytest.approx([solid.width, pale.width], rel=1e-5)


def test_a_number_that_is_not_known_is_an_empty_frame() -> None:
    card = card_of([limit(SOUND, None)])
    assert boxes(card, "used") == []
    [frame] = [each for each in boxes(card, "quiet") if each.frame]
    assert "not known" in words(card)
    assert any(text.startswith("nearby a repeated passage has a benefit of 0.05") for text in words(card))
    assert "Used that far back: not decided." in card.verdict
    assert frame.width > 0


def test_what_has_no_end_fades_and_says_so() -> None:
    least = card_of([limit(LEAST, USED)])
    steps = boxes(least, "sound")[2:]
    assert sum(each.width for each in steps) == pytest.approx(FADE)
    assert [each.opacity for each in steps] == sorted((each.opacity for each in steps), reverse=True)
    assert {"≥ 16,384", "[16,256, open]"} <= set(words(least))
    # A lower bound has no mark: that is not where it ends.
    assert len(boxes(least, "text")) == 1
    unended = card_of([limit(SOUND, OPEN)])
    assert len(boxes(unended, "used")) == 11
    assert {"7,298", "[4,096, open]"} <= set(words(unended))
    assert len(boxes(card_of([limit(TABLE, USED, max_positions=LENGTH)]), "sound")) == 2


def test_a_stretch_behind_a_gap_is_drawn_and_said() -> None:
    run = limit(SOUND, USED)
    gap = {"model": "m", "task": "limit", "length": LENGTH, "unit": "tokens", "documents": 6}
    for metric, begin, end in (("not_sound", 10752, 12000), ("sound_again", 12000, 16000)):
        run.rows.append(Row(metric=metric, value=float(end), position=begin, position_end=end, **gap))
    card = card_of([run])
    solid, pale, again = boxes(card, "sound")
    assert again.opacity == pale.opacity < solid.opacity
    scale = solid.width / 10368
    assert again.x == pytest.approx(solid.x + scale * 12000)
    assert again.width == pytest.approx(scale * 4000)
    assert "again" in words(card)
    assert "sound up to 10,496 [10,368, 10,752] tokens and again from 12,000 to 16,000;" in card.sentence
    [bar] = [line for line in markdown(card).splitlines() if line.startswith("sound up to")]
    # 40 blocks are 16,384 tokens: solid, pale, the gap, pale.
    assert f"{'█' * 25}░   {'░' * 10}" in bar
    assert len(boxes(card_of([limit(SOUND, USED)]), "sound")) == 2


def test_a_number_without_interval_is_pale() -> None:
    card = card_of([limit({"value": 10496.0}, USED)])
    [bar] = boxes(card, "sound")
    assert bar.opacity < 0.5
    assert "no interval" in words(card)
    assert "that far: not decided." in card.verdict


@pytest.mark.parametrize(
    ("end", "claim", "answer"),
    [
        (SOUND, 8192, "yes"),
        (SOUND, 10496, "yes"),
        (SOUND, 10600, "not decided"),
        (SOUND, 32768, "no"),
        (LEAST, LENGTH, "yes"),
        (LEAST, 32768, "not decided"),
        ({**SOUND, "ci_low": 4096.0, "ci_high": float(LENGTH)}, 32768, "not decided"),
        (None, 8192, "not decided"),
    ],
)
def test_the_claim_is_judged_by_the_interval(end: dict[str, Any] | None, claim: int, answer: str) -> None:
    verdict = card_of([limit(end, USED, claimed_length=claim)]).verdict
    assert verdict.startswith(f"Claims {claim:,} tokens. Sound")
    assert re.findall(r"Sound(?: and used)? that far: (.+?)\.", verdict) == [answer]


def test_a_claim_that_is_not_known_is_not_drawn() -> None:
    card = card_of([limit(SOUND, USED, claimed_length=None)])
    assert boxes(card, "claimed") == []
    assert card.verdict == "What length the model claims is not known."
    assert card.sentence.startswith("m: sound up to 10,496")


@pytest.mark.parametrize(
    ("base", "new", "answer"),
    [
        (SOUND, LEAST, "farther"),
        (LEAST, SOUND, "less far"),
        (SOUND, SOUND, "not told apart"),
        (LEAST, LEAST, "not told apart"),
    ],
)
def test_new_beside_base(base: dict[str, Any], new: dict[str, Any], answer: str) -> None:
    card = card_of([limit(base, OPEN, model="base"), limit(new, LEAST, model="new", claimed_length=16384)])
    assert card.title == "new against base"
    names = [f"a-model-whose-name-is-long-{size}B" for size in (7, 70)]
    both = card_of([limit(base, OPEN, model=name) for name in names])
    assert both.title == "a-model-whos…e-is-long-70B against a-model-whos…me-is-long-7B"
    # The interval of the base is open.
    assert card.verdict == f"Sound: {answer}. Used: not told apart."
    claims = boxes(card, "claimed")
    assert claims[1].width == pytest.approx(2 * claims[0].width)


def cost(**of: Any) -> tuple[Line, Line]:
    """What a comparison adds to the loss and keeps of a passage's worth, on the card of its model."""
    [[loss], [kept]] = (panel.lines for panel in card_of([limit(SOUND, USED)], [compare(**of)]).rows[1])
    return loss, kept


def test_what_a_cache_costs() -> None:
    loss, kept = cost()
    assert (loss.label, loss.text, loss.small) == ("4-bit cache", "+0.0120", "[0.0100, 0.0142]")
    assert (kept.value, kept.text, kept.small) == (0.9, "90 %", "[85, 96] 256 back")
    # A side that differs from itself by more than a quarter of a nat hides every cost.
    assert [(line.value, line.text) for line in cost(floor=1.0)] == [(None, "not decided")] * 2
    # Of a passage without clear worth nothing can be lost.
    loss, unclear = cost(clear=False)
    assert (loss.text, unclear.value, unclear.text) == ("+0.0120", None, "not decided")


def test_the_card_of_a_comparison() -> None:
    card = card_of([], [compare()])
    assert card.title == "m with a 4-bit cache"
    (equal, apart), [kept] = (panel.lines for panel in card.rows[0])
    assert (equal.text, equal.tone, apart.text, apart.tone) == ("rounding", "claimed", "0.400", "sound")
    assert (kept.value, kept.text, kept.small) == (0.9, "90 %", "[85, 96]")
    solid, pale = boxes(card, "used")
    mark = next(each.x + 1 for each in boxes(card, "claimed") if each.width == 2)
    # The line through all bars is at 100 %.
    assert solid.width / (mark - solid.x) == pytest.approx(0.85)
    assert (pale.x + pale.width - solid.x) / (mark - solid.x) == pytest.approx(0.955)
    undecided = card_of([], [compare(floor=1.0)])
    assert {line.text for panel in undecided.rows[0] for line in panel.lines} == {"not decided"}
    [unclear] = card_of([], [compare(clear=False)]).rows[0][1].lines
    assert (unclear.value, unclear.text) == (None, "not clear")


def extent(each: Any) -> tuple[float, float, float, float]:
    """Left, top, right, bottom in DejaVu Sans, the widest of the fonts that the picture asks for."""
    path = TextPath(
        (0, 0), each.text.replace("$", r"\$"), size=each.size, prop={"weight": 700 if each.bold else 400}
    )
    found = path.get_extents()
    left = each.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[each.anchor] * found.x1
    return left, each.y - found.y1, left + found.x1, each.y - found.y0


NAMES = {
    "a\x07b\x1b[31m\x00": "a\ufffdb\ufffd[31m\ufffd", "one\n\n# two": "one # two", "gnp\u202e.exe": "gnp\ufffd.exe",
    "[x](http://y)": "[x](http://y)", "<img src=x onerror=y>": "<img src=x onerror=y>", "`a` *b*": "`a` *b*",
}  # fmt: skip
"""Names of models, and what a picture shows of them."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(name: str) -> None:
    card = card_of([limit(SOUND, USED, model=name)])
    for picture in (svg(shapes(card), card.sentence), badge(card)):
        ElementTree.fromstring(picture)
    assert NAMES[name].rpartition("/")[2] in card.sentence
    text = markdown(card)
    assert text.startswith("### ")
    assert not any(each in text for each in ("\n# two", "](", "<img", "*b*", "\x1b", "\u202e"))


@pytest.mark.parametrize("name", ["a-model-whose-name-is-long-" * 6, 'a<b>&"$c$'])
def test_every_word_is_on_the_picture_and_on_no_other(name: str) -> None:
    one = card_of([limit(LEAST, None, model=name, claimed_length=2**20)], [compare(), compare()])
    two = card_of([limit(SOUND, OPEN, model=name), limit(LEAST, None, model=name)], [compare(clear=False)])
    unknown = card_of([limit(None, None, model=name), limit(SOUND, None, model="b")])
    for card in (one, two, unknown, card_of([], [compare()])):
        places = [(each.text, extent(each)) for each in shapes(card) if hasattr(each, "text") and each.text]
        for index, (text, (left, top, right, bottom)) in enumerate(places):
            assert (left >= 0, top >= 0, right <= WIDTH, bottom <= HEIGHT) == (True,) * 4, text
            for other, (x0, y0, x1, y1) in places[:index]:
                assert right <= x0 or x1 <= left or bottom <= y0 or y1 <= top, (text, other)
            for frame in (each for each in boxes(card, "quiet") if each.frame and text):
                x0, y0, x1, y1 = frame.x, frame.y, frame.x + frame.width, frame.y + frame.height
                apart = right <= x0 or x1 <= left or bottom <= y0 or y1 <= top
                assert apart or (x0 <= left and y0 <= top and right <= x1 and bottom <= y1), (text, frame)
        ElementTree.fromstring(svg(shapes(card), card.sentence))
        ElementTree.fromstring(badge(card))


def test_the_picture_is_light_and_dark() -> None:
    card = card_of([limit(SOUND, USED, model="a$b$")])
    drawing = shapes(card)
    text = svg(drawing, card.sentence)
    solid = boxes(card, "sound")[0]
    for dark in (False, True):
        pixels = imread(io.BytesIO(png(drawing, dark=dark)))[:, :, :3]
        assert pixels.shape == (HEIGHT, WIDTH, 3)
        for y, x, tone in (
            (2, 2, "page"),
            (int(solid.y + solid.height / 2), int(solid.x + solid.width / 2), "sound"),
        ):
            wanted = [int(TONES[tone][dark][i : i + 2], 16) / 255 for i in (1, 3, 5)]
            assert np.allclose(pixels[y, x], wanted, atol=0.01)
            assert f".{tone}{{color:{TONES[tone][dark]}}}" in text.split("@media")[dark]
