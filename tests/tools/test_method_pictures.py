from pathlib import Path
from xml.etree import ElementTree

from lengthwise.positions import POSITION_SAMPLERS, ROPE_METHODS
from tools.docs.method_pictures import draws_picture, frequencies_picture, write_pictures


def test_the_pictures_have_every_method_and_sampler(tmp_path: Path) -> None:
    assert all(name in draws_picture().alt for name in POSITION_SAMPLERS)
    assert all(name in frequencies_picture().alt for name in set(ROPE_METHODS) - {"longrope", "eabf"})
    paths = write_pictures(tmp_path)
    assert [path.name for path in paths] == ["rope-frequencies.svg", "position-draws.svg"]
    again = write_pictures(tmp_path / "again")
    for path, other in zip(paths, again, strict=True):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.read_bytes() == other.read_bytes()
    assert paths[1].stat().st_size < 200_000
