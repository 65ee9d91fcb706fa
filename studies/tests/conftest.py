import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from lengthwise_studies import store
from lengthwise_studies.experiments import Experiment, Scale
from lengthwise_studies.synthetic.training import one_thread


@pytest.fixture(scope="module")
def small_experiment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Scale]:
    """The experiment of `make check-cluster`: an arm that is not trained, and two arms with two seeds."""
    place = Path(__file__).parents[2] / "checks" / "cluster" / "__main__.py"
    spec = importlib.util.spec_from_file_location("cluster_check", place)
    cluster = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cluster)
    return cluster.experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(autouse=True)
def arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty store of arms: what a test trains, it trains itself, on one thread."""
    folder = tmp_path / "store"
    monkeypatch.setattr(store, "cache_dir", lambda: folder)
    with one_thread():
        yield folder
