"""The hardware page is about the published models, and two trained views need what twice the length needs."""

from __future__ import annotations

import pytest

from lengthwise.alignment import Objective
from lengthwise.checkpoints.loading import model_skeleton
from tools.docs.hardware import SIZES, config_of, training_memory

PUBLISHED = {"135M": 134_515_008, "1B": 1_235_814_400, "8B": 8_030_261_248, "70B": 70_553_706_496}


@pytest.mark.parametrize("size", SIZES)
def test_the_sizes_have_the_weights_of_the_published_models(size):
    assert model_skeleton(config_of(size)).num_parameters() == PUBLISHED[size]


def test_two_views_need_what_twice_the_length_needs():
    pair = Objective(alpha=0.1, divergence="sce")
    assert training_memory("1B", length=4096, objective=pair) == training_memory("1B", length=8192)
