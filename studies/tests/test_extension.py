from pathlib import Path

import pytest

from lengthwise_studies.extension import EXPERIMENT, SCALES, sections

pytestmark = pytest.mark.real

ARMS = [arm.name for arm in EXPERIMENT.arms]


def test_every_arm_predicts_the_same_tokens(tmp_path: Path) -> None:
    results = EXPERIMENT.run(tmp_path / "run", SCALES["smoke"])
    whole = {row.arm: row for row in results.select(metric="loss", reference=None, position=None)}
    assert list(whole) == ARMS
    assert len({row.n for row in whole.values()}) == 1
    assert len({row.value for row in whole.values()}) == len(ARMS)
    changes = {row.arm: row for row in results.select(metric="loss", reference="none", position=None)}
    for arm in ARMS[1:]:
        assert changes[arm].value == pytest.approx(whole[arm].value - whole["none"].value)

    [section] = sections(results, tmp_path / "run")
    [table] = section.tables
    assert [line[0] for line in table.rows] == ["0-63", "64-127", "128-191", "192-255", "all"]
    assert all(cell is not None for line in table.rows for cell in line)
    assert len(section.figures) == 1
