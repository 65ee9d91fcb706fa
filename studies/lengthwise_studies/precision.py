"""The dtype that studies of real models compute in."""

from __future__ import annotations

import torch

from lengthwise.settings import Dtype


def fast_dtype() -> Dtype:
    """bfloat16 where the processor multiplies it at full speed, else float32.

    It decides between minutes and hours on a CPU. Small disagreements need float32 all the same: bf16 rounding alone
    is a few hundredths of a nat.
    """
    processor = torch.cpu.get_capabilities()
    fast = any(processor.get(unit) for unit in ("avx512_bf16", "amx_bf16"))
    if fast or (torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)):
        return "bfloat16"
    return "float32"
