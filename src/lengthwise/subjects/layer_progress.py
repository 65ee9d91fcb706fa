"""The progress of one forward pass, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import nn

from lengthwise.checkpoints.hidden import decoder_of, is_compiled, runs_compiled
from lengthwise.progress import advance, watched

_LONG = 2048
"""Tokens of a pass that takes long enough to show its layers."""


@contextmanager
def reported(model: nn.Module, tokens: int) -> Iterator[None]:
    """Report the tokens of the forward pass inside: a share after each layer of a long one, else all at its end."""
    if not watched():
        yield
        return
    layers = _layers(model) if tokens >= _LONG else []
    with ExitStack() as hooks:
        for layer in layers:
            handle = layer.register_forward_hook(lambda *_: advance(tokens / len(layers)))
            hooks.callback(handle.remove)
        yield
    if not layers:
        advance(tokens)


def _layers(model: nn.Module) -> list[nn.Module]:
    """The layers of the decoder; none where it keeps no list of them, or torch would compile again for a hook."""
    if is_compiled(model):
        return []
    lists = [list(child) for child in decoder_of(model).children() if isinstance(child, nn.ModuleList)]
    layers = max(lists, key=len, default=[])
    return [] if any(runs_compiled(layer) for layer in layers) else layers
