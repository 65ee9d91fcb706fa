"""A model with YaRN switched on and no training: the reference that every study of extension needs."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.cache import build_once
from lengthwise.models import LoadedModel, load


def with_yarn(model: LoadedModel, *, factor: float, folder: Path) -> LoadedModel:
    """Save `model` with YaRN by `factor` to `folder` (once) and load it from there.

    transformers has YaRN and builds the frequencies with the model, so setting it on a loaded model would
    change nothing: the weights are loaded anew under the changed configuration.
    """
    trained = model.trained_length
    assert trained is not None, f"{model.name} does not say how long a context it was trained for"

    def build(place: Path) -> None:
        config = AutoConfig.from_pretrained(model.source)
        config.rope_parameters = {
            **config.rope_parameters,
            "rope_type": "yarn",
            "factor": float(factor),
            "original_max_position_embeddings": trained,
        }
        config.max_position_embeddings = int(trained * factor)
        AutoModelForCausalLM.from_pretrained(model.source, config=config).save_pretrained(place)
        model.tokenizer.save_pretrained(place)

    build_once(folder, build, what=f"{model.name} with YaRN x{factor:g}")
    extended = load(str(folder))
    extended.name = model.name
    return extended
