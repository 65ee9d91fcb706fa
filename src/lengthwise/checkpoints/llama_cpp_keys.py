"""Keys of a GGUF file that llama.cpp reads for some architectures, and for all others passes over without a word."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

READ_BY = "llama-cpp-python 0.3.36"
"""The version whose sources the table is of."""
_GRANITE = ("granite", "granite_swa", "granitehybrid", "granitemoe", "graniteswitch")
# Phi-3's key is read, and the window then turned off.
_WINDOWS = (
    "afmoe", "cohere2", "cohere2moe", "deepseek4", "dflash", "dots3note", "exaone-moe", "exaone4", "gemma-embedding",
    "gemma2", "gemma3", "gemma3n", "gemma4", "gemma4-assistant", "gpt-oss", "granite_swa", "laguna", "lfm2", "llama4",
    "maple", "mellum", "mimo2", "modern-bert", "muse-glimmer", "olmo2", "plamo3", "smallthinker", "spark2_5",
    "step35",
)  # fmt: skip
OBEYED: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "attention.clamp_kqv": (("dbrx", "mpt", "olmo"), (0.0,)),
    "attention.max_alibi_bias": (("jais", "mpt"), (0.0,)),
    "attention.scale": (("dflash", *_GRANITE), (0.0,)),
    "attention.sliding_window": (_WINDOWS, (0.0,)),
    "attn_logit_softcapping": (("gemma2", "grok"), (0.0,)),
    "embedding_scale": (("dflash", "grok", "hrm_text", "minicpm", *_GRANITE), (0.0, 1.0)),
    "final_logit_softcapping": (("dflash", "gemma2", "gemma3", "gemma4", "grok", "muse-glimmer"), (0.0,)),
    "logit_scale": (
        (
            "cohere2",
            "cohere2moe",
            "command-r",
            "dflash",
            "grok",
            "minicpm",
            "muse-glimmer",
            "talkie",
            *_GRANITE,
        ),
        (0.0, 1.0),
    ),
    "residual_scale": (("minicpm", "minimax-01", *_GRANITE), (0.0, 1.0)),
    "rope.scaling.alpha": (("hunyuan_vl",), (0.0,)),
    "rope.scaling.yarn_attn_factor": (("grok",), (1.0,)),
    "rope.scaling.yarn_beta_fast": (("grok", "mistral3"), (32.0,)),
    "rope.scaling.yarn_beta_slow": (("grok", "mistral3"), (1.0,)),
    "rope.scaling.yarn_ext_factor": (("grok",), (-1.0, 1.0)),
    "rope.scaling.yarn_log_multiplier": (("deepseek2", "deepseek32", "mistral3", "mistral4"), (0.0,)),
}
"""Key, without the architecture -> the architectures that obey it, and the values that are llama.cpp's own."""


def passed_over(architecture: str, says: Callable[[str], Any], scaling: str | None = None) -> list[str]:
    """In words, each setting of a file that llama.cpp does not obey.

    Args:
        architecture: the file's.
        says: a key without the architecture -> the file's value, in text or as it is; None if it has none.
        scaling: the kind of rope scaling in force; None is the file's own.
    """
    yarn = (scaling or says("rope.scaling.type")) == "yarn"
    own: Mapping[str, Callable[[float], bool]] = {
        # A window beyond every text is none.
        "attention.sliding_window": lambda value: value >= _number(says("context_length")),
        "rope.scaling.yarn_attn_factor": lambda value: math.isclose(
            value, 0.1 * math.log(max(1.0, _number(says("rope.scaling.factor")))) + 1, rel_tol=1e-5
        ),
    }
    found = []
    for key, (obeying, neutral) in OBEYED.items():
        value = says(key)
        if value is None or architecture in obeying or ("yarn" in key and not yarn):
            continue
        number = _number(value)
        if not any(math.isclose(number, each, rel_tol=1e-6) for each in neutral) and not own.get(
            key, lambda _: False
        )(number):
            found.append(f"llama.cpp does not obey {key} = {value} of the file ({READ_BY})")
    return found


def _number(value: Any) -> float:
    """NaN of what is no number, as one value for each layer."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
