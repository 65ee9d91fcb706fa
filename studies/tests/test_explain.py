"""`reproduce NAME --explain`: what a study changes, measures and claims, before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.output import print_table
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.claims import Claim
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.explain import WIDEST, explained
from lengthwise_studies.paired_claims import Paired, Quantity
from lengthwise_studies.skeleton import Study
from lengthwise_studies.study_table import studies, study_named

LOSS = Quantity(heading="loss at 2T", task="perplexity", metric="loss", times=2)
SAME = Paired(quantity=LOSS, arm="b", against="a", direction="same", margin=0.004)
BELOW = Paired(quantity=LOSS, arm="c", against="a", direction="lower", steps=50)


def test_arms_measures_and_rules_are_told_once() -> None:
    arms = (
        Arm(name="start", method="yarn", factor=4.0),
        Arm(name="a", changes=("steps=9", "seed=1")),
        Arm(name="b", changes=("steps=9", "seed=2")),
        Arm(name="c", changes=("steps=9",), measures={"perplexity": {"windows": 3}}),
    )
    measures = {"perplexity": {"lengths": [64], "windows": 8}}
    scale = Scale(
        model="m", measures=measures, seeds=3, changes=("length=32",), marks=(2,), mark_measures=measures
    )
    experiment = Experiment(kind="k", arms=arms, recipe="clex", seeded=True)
    claims = [Claim(place="Table 1", says="it does", test=test) for test in (SAME, BELOW)]
    part = experiment.part(lambda *_: [], {"default": scale}, claims=lambda _: claims)
    trained, measured, judged = explained(Study(title="t", parts=(part,)), "default")
    assert trained.caption == "k: 4 arms of m, 3 seeds"
    assert trained.rows == [
        ("not trained, measured on books", ""),
        ("  start", "yarn x4"),
        ("recipe clex, measured on books", "length=32 steps=9"),
        ("  a", "seed=1"),
        ("  b", "seed=2"),
        ("  c", "nothing more"),
    ]
    assert measured.rows == [
        ("perplexity", "lengths=[64] windows=8", "start; a; b"),
        ("perplexity", "lengths=[64] windows=3", "c"),
        ("perplexity", "lengths=[64] windows=8", "trained arms, after steps 2"),
    ]
    assert judged.rows == [
        ["Table 1", "it does", "loss at 2T, b minus a: within 0.004 nats of 0"],
        ["Table 1", "it does", "loss at 2T, c minus a after 50 of the paper's steps: below 0"],
    ]


@pytest.mark.parametrize("name", [one["name"] for one in studies()])
def test_every_study_says_what_it_does(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it reads a text or trains")

    monkeypatch.setattr("lengthwise_studies.experiments._text", refuse)
    monkeypatch.setattr("lengthwise_studies.experiments.trained", refuse)
    assert all({"default", "smoke"} <= set(part.scales) for part in study_named(name).parts)
    for scale in study_named(name).parts[0].scales:
        for table in explained(study_named(name), scale=scale):
            assert table.rows, table.caption
            assert "holds if" not in table.columns or all(all(row) for row in table.rows)
            for widest in (80, WIDEST):
                print_table(table, widest=widest)
                lines = capsys.readouterr().out.splitlines()
                assert max(map(len, lines)) <= widest, table.caption
    assert not list(tmp_path.iterdir())
