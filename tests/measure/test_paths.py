"""Every verb that measures a text reads along the path of its subject: through its passes, cache and kernel."""

import functools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from transformers import DynamicCache

from lengthwise.measure import MEASUREMENTS, run
from lengthwise.results import Results, Row
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel
from lengthwise.testing import save_tiny_model, tiny_text

TEXT = [tiny_text(1500, seed=seed) for seed in range(4)]
SETTINGS: dict[str, dict[str, Any]] = {
    "ppl": {"lengths": (32, 64), "windows": 2, "batch_size": 2},
    "measure": {"lengths": (64,), "windows": 2},
    "limit": {"max_length": 128, "reference": 32, "windows": 4, "passage": 16, "scored": 12},
    "longppl": {"max_length": 128, "short": 32, "windows": 2, "stride": 32},
    "compare": {"lengths": (128,), "windows": 2},
}
WAYS: dict[str, dict[str, str]] = {
    "chunks": {"read": "chunks=24"},
    "a cache": {"kv_cache": "static", "read": "chunks=24"},
    "a cache of one's own": {"cache": "tests.measure.test_paths:own_cache", "read": "chunks=24"},
    "another kernel": {"attn": "eager"},
}


def own_cache() -> DynamicCache:
    return DynamicCache()


def place(row: Row) -> tuple[Any, ...]:
    """What a row is of."""
    numbers = ("value", "stderr", "ci_low", "ci_high", "at_least")
    return tuple(value for name, value in asdict(row).items() if name not in numbers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    save_tiny_model((parent := tmp_path_factory.mktemp("model")) / "copy")
    return save_tiny_model(parent / "tiny")


def results(verb: str, folder: Path, **path: str) -> Results:
    """A run of a verb; both sides of a comparison are read along the path."""
    other = {"side_b": {"model": str(folder.parent / "copy"), **path}} if verb == "compare" else {}
    measurement = MEASUREMENTS[verb].measurement(**SETTINGS[verb], **other)
    return run(measurement, Subject(model=str(folder), **path), TEXT)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Callable[[str], Results]:
    """The run of a verb in one pass, made once."""
    return functools.cache(lambda verb: results(verb, folder))


# Each verb in pieces through a cache, and one verb in each way: a measurement does not know how it is read.
CASES = [(verb, "a cache") for verb in SETTINGS] + [("compare", way) for way in WAYS if way != "a cache"]


@pytest.mark.parametrize(("verb", "way"), CASES)
def test_a_path_is_read_and_gives_the_same(verb, way, folder, plain, monkeypatch):
    sizes, kernels = list[int](), set[str]()

    def watched(self: LoadedModel, readings: Any) -> Any:
        kernels.add(self.config._attn_implementation)
        assert self.head
        hook = self.model.model.register_forward_pre_hook(
            lambda _module, _unnamed, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True
        )
        try:
            return read(self, readings)
        finally:
            hook.remove()

    read = LoadedModel.read
    kept, compared = {place(row): row.value for row in plain(verb).rows}, 0
    monkeypatch.setattr(LoadedModel, "read", watched)
    along = results(verb, folder, **WAYS[way])
    assert sizes
    assert max(sizes) == 24 if "read" in WAYS[way] else kernels == {"eager"}
    for row in along.rows:
        if row.unit == "nats" and (expected := kept.get(place(row))) is not None:
            compared += 1
            assert row.value == pytest.approx(expected, abs=2e-4), row
    assert compared >= 2
    for name, value in WAYS[way].items():
        assert along.config[name] == value
