"""Models with an adapter."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from lengthwise.checkpoints.resolve import quiet_transformers


def with_lora(model: Any, **settings: Any) -> Any:
    """The model with LoRA on its queries, whose weights are random unless `settings` say otherwise."""
    given = {"r": 2, "task_type": "CAUSAL_LM", "target_modules": ["q_proj"], "init_lora_weights": False}
    torch.manual_seed(0)
    with quiet_transformers():
        return get_peft_model(model, LoraConfig(**(given | settings))).eval()
