"""The bar of a run counts the tokens that are read, as they are read."""

import contextlib
import io
import logging
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from lengthwise import progress
from lengthwise.cli.main import _BesideBars
from lengthwise.evaluation import Evaluation
from lengthwise.measure import Limit, LongPpl, Misalignment, Perplexity, run
from lengthwise.measure.comparison import Comparison
from lengthwise.measure.measurement import Measurement
from lengthwise.progress import TokenBar
from lengthwise.settings import Subject
from lengthwise.subjects import Reading
from lengthwise.testing import tiny_llama
from tests.readings import in_memory
from tests.tiny_folders import filled


def test_a_single_long_pass_moves_the_bar_layer_by_layer() -> None:
    model = in_memory(tiny_llama(num_hidden_layers=3, max_position_embeddings=4096))
    tokens, seen = np.random.default_rng(0).integers(1, 320, 2401), list[float]()
    reading = Reading(tokens=tokens[:-1], labels=tokens[1:])
    assert model.head, "proven by a pass of its own"
    for layer in model.model.model.layers:
        layer.register_forward_pre_hook(lambda *_: seen.append(bar._bar.n))
    with TokenBar("ppl", total=4000, read=400, items=3, finished=1) as bar:
        with bar.reading(2800):
            model.read([reading])
            # Then the first tokens are read alone (`check_blind`), which the bar does not count.
            assert seen == pytest.approx([400, 1200, 2000, 2800, 2800, 2800])
            assert bar._bar.n == 2800
            bar.finish()
        assert bar._bar.n == 3200, "what was not reported"
        with bar.reading(800):
            model.read([reading])
            assert bar._bar.n == 4000, "no more than was planned"
    hooks = [len(layer._forward_hooks) for layer in model.model.model.layers]
    assert hooks == [0, 0, 0]


def test_a_warning_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with TokenBar("ppl", total=10, read=0, items=1, finished=0):
        _BesideBars().handle(logging.makeLogRecord({"msg": "the slow %s", "args": ("way",)}))
    assert "the slow way" in re.split("[\r\n]", capsys.readouterr().err)


def test_without_a_bar_nothing_is_hooked_or_printed(monkeypatch, capsys):
    monkeypatch.setattr(progress, "is_main_process", lambda: False)
    with TokenBar("ppl", total=10, read=0, items=1, finished=0) as bar, bar.reading(10):
        assert not progress.watched()
        bar.finish()
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_thousands_of_tokens_the_rate_and_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with TokenBar("limit", total=2_500_000, read=0, items=8, finished=2) as bar:
        with bar.reading(500_000):
            pass
        bar.finish()
        bar._bar.refresh()
    assert re.search(r"limit:  20%.* 500k/2[.]50M .*tok/s, 3/8]", terminal.getvalue())


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = filled(tmp_path_factory.mktemp("progress"), texts=3, words=2000, max_position_embeddings=4096)
    return Subject(model=str(folder / "model"), text=str(folder / "text"), split="all")


RUNS: dict[str, tuple[Measurement, tuple[float, float]]] = {
    "ppl": (Perplexity(lengths=(256, 1024), windows=4), (1.0, 1.05)),
    "limit": (Limit(max_length=1024, reference=64, windows=4), (1.0, 1.15)),
    "longppl": (LongPpl(max_length=512, short=128, windows=2), (0.98, 1.0)),
    "measure": (Misalignment(lengths=(128, 256), windows=4), (0.98, 1.0)),
    "compare": (Comparison(side_b={"attn": "eager"}, lengths=(512,), windows=2), (2.0, 3.0)),
    "needles": (Evaluation(tasks=("needle",), lengths=(1024,), depths=(0, 100), samples=3), (1.0, 1.4)),
    "likelihoods": (
        Evaluation(tasks=("babilong_qa1",), lengths=(1024,), mode="likelihood", samples=3),
        (1.0, 1.15),
    ),
}
"""Measurements, and how many times the planned tokens they read, at least and at most.

Proofs come on top, the first time; `compare` also reads how far rounding carries.
"""


@pytest.mark.parametrize("name", RUNS)
def test_about_as_many_tokens_are_reported_as_were_planned(name, subject, monkeypatch):
    planned, reported = list[int](), [0.0]

    @contextlib.contextmanager
    def reading(self: TokenBar, tokens: int) -> Iterator[None]:
        planned.append(tokens)
        progress._WATCH.append(reported.append)
        yield
        progress._WATCH.pop()

    monkeypatch.setattr(TokenBar, "reading", reading)
    measurement, (least, most) = RUNS[name]
    if isinstance(measurement, Comparison):
        side = measurement.side_b | {"model": subject.model}
        measurement = measurement.model_copy(update={"side_b": side})
    run(measurement, subject)
    assert least <= sum(reported) / sum(planned) <= most
