"""Known shapes have the parameters of the models of their names."""

import pytest

from lengthwise.checkpoints.loading import model_skeleton
from lengthwise_studies.known_shapes import SHAPES, known_config

_PARAMETERS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
    "smollm2-135m": 134_515_008,
}
"""Of the published checkpoints."""


@pytest.mark.parametrize("name", SHAPES)
def test_known_shapes_have_the_parameters_of_their_models(name: str):
    model = model_skeleton(known_config(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == _PARAMETERS[name]
