"""Parts of a model that no text reaches: towers for images and sounds, and what projects them. None is trained."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from lengthwise.checkpoints.hidden import decoder_of, unwrap
from lengthwise.checkpoints.position_modules import towers


def beside_text(model: nn.Module) -> list[str]:
    """The names of the topmost modules whose weights no text reaches; none of a model of texts alone."""
    base, found = unwrap(model), list[str]()
    of_images = {*towers(base)}
    if not of_images and base.config is base.config.get_text_config():
        return []
    decoder = decoder_of(base)
    reading, inside = (
        {decoder, base.get_input_embeddings(), base.get_output_embeddings()},
        {*decoder.modules()},
    )
    for name, module in base.named_modules():
        if any(name.startswith(f"{each}.") for each in found) or (parts := {*module.modules()}) & reading:
            continue
        # A decoder may hold towers itself (Phi 4).
        if module not in inside or parts & of_images:
            found.append(name)
    return found


def exclude_beside_text(config: Any, model: nn.Module) -> None:
    """Leave the parts beside texts out of an adapter: LoRA's q_proj is in a tower too, where it would stay idle."""
    from peft.tuners.tuners_utils import check_target_module_exists

    names = beside_text(model)
    pattern = "|".join(rf"{re.escape(name)}(\..+)?" for name in names)
    targeted = [
        name
        for name, _ in unwrap(model).named_modules()
        if names and re.fullmatch(pattern, name)
        if config.target_modules in (None, "all-linear") or check_target_module_exists(config, name)
    ]
    if not targeted:
        return
    if given := config.exclude_modules:
        # As PEFT matches them.
        listed = "|".join(map(re.escape, given))
        pattern += f"|{given}" if isinstance(given, str) else rf"|(.*\.)?({listed})"
    config.exclude_modules = pattern
