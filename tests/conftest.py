"""Fixtures of several folders."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lengthwise.testing import save_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model."""
    return save_tiny_model(tmp_path / "tiny")


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    import torch.distributed

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
