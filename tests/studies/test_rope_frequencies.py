from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from lengthwise.positions import ROPE_METHODS
from lengthwise.studies.rope_frequencies import frequencies_picture, write_picture


def test_the_picture_has_every_method_that_has_frequencies(tmp_path: Path) -> None:
    drawn = frequencies_picture()
    for name in set(ROPE_METHODS) - {"longrope", "eabf"}:
        assert name in drawn.alt
    path = write_picture(tmp_path)
    assert path.name == "rope-frequencies.svg"
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert write_picture(tmp_path / "again").read_bytes() == path.read_bytes()
