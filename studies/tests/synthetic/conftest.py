from __future__ import annotations

from collections.abc import Iterator

import pytest

from lengthwise_studies.synthetic.training import one_thread


@pytest.fixture(autouse=True)
def _small_models_on_one_thread() -> Iterator[None]:
    with one_thread():
        yield
