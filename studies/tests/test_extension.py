from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise_studies import store
from lengthwise_studies.extension import EXPERIMENT, SCALES, sections

pytestmark = pytest.mark.real

ARMS = [arm.name for arm in EXPERIMENT.arms]


def test_every_arm_predicts_the_same_tokens_and_an_interrupted_study_continues(
    tmp_path: Path, arms: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, scale = tmp_path / "run", SCALES["smoke"]
    with monkeypatch.context() as patched:
        patched.setattr(store, "train", _stopped)
        with pytest.raises(KeyboardInterrupt):
            EXPERIMENT.run(out, scale)
    logs = {path: path.read_bytes() for path in arms.rglob("*.jsonl")}
    assert len(logs) == 5
    results = EXPERIMENT.run(out, scale, resume=True)
    assert {path: path.read_bytes() for path in logs} == logs

    whole = {row.arm: row for row in results.select(metric="loss", reference=None, position=None)}
    assert list(whole) == ARMS
    assert len({row.n for row in whole.values()}) == 1
    assert len({row.value for row in whole.values()}) == len(ARMS)
    changes = {row.arm: row for row in results.select(metric="loss", reference="none", position=None)}
    for arm in ARMS[1:]:
        assert changes[arm].value == pytest.approx(whole[arm].value - whole["none"].value)

    [section] = sections(results, out)
    [table] = section.tables
    assert [line[0] for line in table.rows] == ["0-63", "64-127", "128-191", "192-255", "all"]
    assert all(cell is not None for line in table.rows for cell in line)
    assert len(section.figures) == 1


def _stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
