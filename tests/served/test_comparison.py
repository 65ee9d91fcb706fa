"""A served model against its checkpoint: equal, or found where it differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lengthwise.measure.served import position_edges
from lengthwise.report.served_verdict import verdict

from lengthwise.cli.main import run
from lengthwise.errors import UsageError
from lengthwise.measure import Served
from lengthwise.measure.runner import plan_run
from lengthwise.measure.runner import run as measure
from lengthwise.models import LoadedModel
from lengthwise.report.run_page import build_report
from lengthwise.results import Row
from lengthwise.settings import Subject
from lengthwise.testing import tiny_llama, tiny_text

TEXTS = [tiny_text(300, seed=seed) for seed in range(3)]
SPEC = Served(endpoint="http://here/v1", lengths=(64, 128), windows=3)


class Changed:
    """A served model whose losses are `by(position, length)` nats higher than the checkpoint's."""

    def __init__(self, model: LoadedModel, by: Any) -> None:
        self.name, self.tokenizer, self._model, self._by = "changed", model.tokenizer, model, by

    def check_ready(self, tokens: int) -> None:
        pass

    def token_losses(self, views: list[Any], labels: list[Any]) -> list[torch.Tensor]:
        found = self._model.token_losses(views, labels)
        return [each + torch.tensor([self._by(p, len(each)) for p in range(len(each))]) for each in found]


def measured(local: LoadedModel, by: Any) -> dict[tuple[str, int | None, int | None], Row]:
    found = measure(SPEC, local, TEXTS, other=Changed(local, by))  # type: ignore[arg-type]
    return {(row.metric, row.length, row.position): row for row in found.rows} | {("notes", 0, 0): found}  # type: ignore[dict-item]


def test_edges() -> None:
    assert position_edges(128) == [0, 16, 24, 32, 48, 64, 96, 128]
    assert position_edges(10) == [0, 10]
    assert position_edges(100)[-2:] == [96, 100]


def test_a_difference_from_a_position_on(local: LoadedModel) -> None:
    rows = measured(local, lambda p, _: 0.5 if p >= 48 else 0.01)
    for length in (64, 128):
        assert rows["equal_up_to", length, None].value == 48
        assert rows["equal_up_to", length, None].at_least is None
        mean = (0.01 * 48 + 0.5 * (length - 48)) / length
        for metric in ("difference", "shift"):
            assert rows[metric, length, None].value == pytest.approx(mean)
        assert rows["largest", length, None].value == pytest.approx(0.5)
        assert rows["difference", length, 48].value == pytest.approx(0.5)
        assert rows["difference", length, 32].value == pytest.approx(0.01)
        served, own = (rows[f"loss_{side}", length, None].value for side in ("served", "checkpoint"))
        assert served is not None
        assert own is not None
        assert served - own == pytest.approx(mean)


def test_signs_do_not_cancel(local: LoadedModel) -> None:
    rows = measured(local, lambda p, _: 0.2 if p % 2 else -0.2)
    assert rows["difference", 128, None].value == pytest.approx(0.2)
    assert rows["shift", 128, None].value == pytest.approx(0, abs=1e-12)
    assert rows["equal_up_to", 128, None].value == 0


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (lambda p, _: 0.001, ["as the checkpoint does", "128 tokens"]),
        (lambda p, _: 0.5 if p >= 48 else 0, ["up to 48 tokens", "0.5 nats"]),
        (lambda p, _: 0.3, ["first tokens", "0.3 nats"]),
        (
            lambda p, length: 0.3 if length > 64 else 0,
            ["equal in windows of 64 tokens", "moves with the length"],
        ),
        (
            lambda p, length: 0.3 if length <= 64 else 0,
            ["equal in windows of 128", "64 tokens it differs", "0.3 nats"],
        ),
    ],
)
def test_verdicts(by: Any, words: list[str], local: LoadedModel) -> None:
    found = measure(SPEC, local, TEXTS, other=Changed(local, by))  # type: ignore[arg-type]
    said = " ".join(verdict(found.rows))
    for word in words:
        assert word in said


def test_compare_with_an_endpoint(
    serve: Any, folder: Path, local: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXTS))
    options = ["--text", str(tmp_path / "text.txt"), "--split", "all", "--length", "64", "--limit", "2"]
    out = tmp_path / "run"
    run(["compare", str(folder), serve().url, *options, "--out", str(out), "--fail-above", "0.01"])
    assert "as the checkpoint does" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    rows = {row["metric"]: row for row in results["rows"] if "position" not in row}
    assert rows["largest"]["value"] < 1e-4
    assert rows["equal_up_to"]["value"] == 64
    assert rows["equal_up_to"]["at_least"] is True
    page = build_report([out])
    assert "served-by-position" in page.read_text()
    # Another rope scaling.
    other = LoadedModel(rescaled(), local.tokenizer, "other", "memory")
    words = ["compare", str(folder), serve(model=other).url, *options, "--fail-above", "0.01"]
    assert run(words) == 4
    assert "differs from the checkpoint" in capsys.readouterr().out


def rescaled() -> Any:
    return tiny_llama(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})


def test_sides_are_checked(folder: Path, serve: Any) -> None:
    url = serve().url
    assert run(["compare", url, str(folder), "--dry-run"]) == 2
    with pytest.raises(UsageError):
        plan_run(Served(endpoint=url), Subject(model=str(folder), tokenizer="t"))
