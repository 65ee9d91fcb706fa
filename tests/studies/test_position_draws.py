from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from lengthwise.positions import POSITION_SAMPLERS
from lengthwise.studies.position_draws import draws_picture, write_picture


def test_the_picture_has_every_sampler(tmp_path: Path) -> None:
    drawn = draws_picture()
    for name in POSITION_SAMPLERS:
        assert name in drawn.alt
    path = write_picture(tmp_path)
    assert path.name == "position-draws.svg"
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert path.stat().st_size < 200_000
    assert write_picture(tmp_path / "again").read_bytes() == path.read_bytes()
