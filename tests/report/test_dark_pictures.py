"""Pictures on a dark screen: every colour has another there, and what is drawn can be seen."""

import re
from pathlib import Path

import pytest

from lengthwise.report.dark_pictures import DARK, with_dark_colors

FIGURES = sorted(Path(__file__).parents[2].joinpath("docs", "figures").glob("*.svg"))
GROUND, RAILS = DARK["#ffffff"], {"#ffffff", "#eeeeee", "#dddddd"}


def luminance(color: str) -> float:
    """As WCAG 2 defines it."""
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_every_picture_of_the_docs_follows_the_screen(figure: Path) -> None:
    text = figure.read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in text.replace(": ", ":")
    if "stroke-linejoin: round" in text:
        light = re.sub(r"@media screen.*?(?=</style>)", "", text)
        assert with_dark_colors(light) == text
        assert set(re.findall(r": (#[0-9a-f]{6})\b", light)) <= set(DARK)


def test_what_is_drawn_can_be_told_from_a_dark_ground() -> None:
    for light, dark in DARK.items():
        contrast = (luminance(dark) + 0.05) / (luminance(GROUND) + 0.05)
        assert (
            contrast >= (7 if light == "#000000" else 1.1 if light in RAILS - {"#ffffff"} else 3)
            or dark == GROUND
        )
    assert len({*DARK.values()}) == len(DARK)
