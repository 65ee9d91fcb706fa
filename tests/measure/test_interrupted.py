"""Ctrl-C at the first samples: whatever there is then is shown, of every measurement."""

from pathlib import Path

import pytest

from lengthwise.cli.options import Output
from lengthwise.cli.output import print_results
from lengthwise.errors import Interrupted
from lengthwise.measure import MEASUREMENTS, run
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_tokenizer
from tests.small_measurements import SMALL, TEXTS


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("kind", MEASUREMENTS)
def test_what_is_there_is_shown(
    kind: str,
    finished: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    settings = dict(SMALL[kind])
    if kind == "compare":
        settings["side_b"] = {"model": str(save_tiny_model(tmp_path / "other", seed=1))}
    append = SampleLog.append

    def stopped(log: SampleLog, key: str, record: dict[str, object]) -> None:
        if len(log) == finished:
            raise KeyboardInterrupt
        append(log, key, record)

    monkeypatch.setattr(SampleLog, "append", stopped)
    with pytest.raises(Interrupted) as caught:
        run(
            MEASUREMENTS[kind].measurement(**settings),
            (tiny_llama(), tiny_tokenizer()),
            TEXTS,
            out=tmp_path / "run",
        )
    partial = caught.value.partial
    assert partial.partial
    assert len(partial.records) == finished
    for verbose in (False, True):
        print_results(partial, Output(verbose=verbose))
        assert capsys.readouterr().out
    assert partial._repr_html_()
