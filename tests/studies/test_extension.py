from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.studies.extension import ARMS, Plan, extension_section, run_extension

pytestmark = pytest.mark.real

PLAN = Plan(
    length=256,
    segments=3,
    bins=4,
    training_length=64,
    steps=2,
    arms=("none", "YaRN x2", "PI x2", "PI x2, LoRA with Jeffreys 10"),
)


def test_every_arm_predicts_the_same_tokens_and_an_interrupted_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr("lengthwise.studies.extension.train", _stopped)
    with pytest.raises(KeyboardInterrupt):
        run_extension(out, plan=PLAN, model="tiny-books")
    untrained = (out / "parts" / "yarn-x2" / "perplexity.jsonl").read_bytes()
    monkeypatch.undo()
    results = run_extension(out, plan=PLAN, model="tiny-books", resume=True)
    assert (out / "parts" / "yarn-x2" / "perplexity.jsonl").read_bytes() == untrained

    whole = {row.arm: row for row in results.select(metric="loss", reference=None, position=None)}
    assert set(whole) == set(PLAN.arms) <= set(ARMS)
    assert len({row.n for row in whole.values()}) == 1
    assert len({row.value for row in whole.values()}) == 4
    changes = {row.arm: row for row in results.select(metric="loss", reference="none", position=None)}
    for arm in PLAN.arms[1:]:
        assert changes[arm].value == pytest.approx(whole[arm].value - whole["none"].value)

    section = extension_section(results)
    [table] = section.tables
    assert [line[0] for line in table.rows] == ["0-63", "64-127", "128-191", "192-255", "all"]
    assert all(cell is not None for line in table.rows for cell in line)
    assert len(section.figures) == 1


def _stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
