"""Settings of a configuration that may differ from layer to layer."""

from __future__ import annotations

from typing import Any


def by_layer(config: Any, name: str) -> list[Any]:
    """A setting of a text configuration in each of its layers; None where it has no such setting.

    It is one for all, a list (Gemma 3n), or every layer has a configuration of its own (Gemma 4), and the model's
    raises an error of another type than AttributeError.
    """
    layers = range(config.num_hidden_layers)
    if getattr(config, "is_heterogeneous", False):
        return [getattr(config.per_layer_config[layer], name, None) for layer in layers]
    value = getattr(config, name, None)
    return [*value] if isinstance(value, list | tuple) else [value for _ in layers]
