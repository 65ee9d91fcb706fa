"""What test_initial_model.py starts in two processes: the initial model of models that DDP and FSDP2 wrap.

Each process writes, for each way to wrap, the largest difference of the initial logits from the untouched model's,
and of any gradient from one of a step without the initial model's pass.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lengthwise.errors import UsageError
from lengthwise.models import extend, find_head, hidden_states_for
from lengthwise.testing import tiny_llama
from lengthwise.training.initial_model import InitialModel, initial_cross_entropy
from lengthwise.training.recipe import Adapter
from lengthwise.training.trained_model import add_adapter

IDS = torch.randint(320, (2, 40), generator=torch.Generator().manual_seed(1))


def ddp(model: Any) -> nn.Module:
    return DistributedDataParallel(model)


def sharded(model: Any) -> nn.Module:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in base.model.layers:
        fully_shard(layer)
    return fully_shard(model, reshard_after_forward=True)


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name.removeprefix("module."): whole(p.grad)
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def difference(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def measure(adapter: Adapter | None, wrap: Any) -> dict[str, float]:
    with torch.no_grad():
        untouched = tiny_llama().double()(input_ids=IDS).logits
    torch.manual_seed(0)
    model = tiny_llama().double()
    extend(model, "clex", factor=4.0, original_length=16)
    model = add_adapter(model, adapter).double()
    other = copy.deepcopy(model)
    heads = [find_head(model), find_head(other)]
    initial = InitialModel(model, heads[0])
    model, other = wrap(model), wrap(other)
    for each in (model, other):
        each.train()
    errors = {"logits": 0.0, "cross_entropy": 0.0, "gradients": 0.0}
    expected = cross_entropy(untouched.flatten(0, 1), IDS.flatten(), reduction="sum")
    optimizers = [
        torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.1) for each in (model, other)
    ]
    for _ in range(2):
        for each, head in zip((model, other), heads, strict=True):
            student = hidden_states_for(each, head, IDS)
            if each is model:
                with initial.active(model) as original:
                    hidden = hidden_states_for(original, initial.head, IDS)
                    logits = initial.head.logits(hidden)
                    ce = initial_cross_entropy(original, initial.head, IDS, IDS)
                errors["logits"] = max(errors["logits"], difference(logits, untouched))
                errors["cross_entropy"] = max(errors["cross_entropy"], difference(ce, expected))
            # The head's weight is used after the initial model's pass.
            cross_entropy(head.logits(student).flatten(0, 1), IDS.flatten()).backward()
        found, plain = gradients(model), gradients(other)
        assert found.keys() == plain.keys()
        errors["gradients"] = max(
            errors["gradients"], *(difference(found[name], plain[name]) for name in plain)
        )
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return errors


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    adapters = {"lora": Adapter(r=2), "whole": None}
    errors = {
        f"{name}-{wrap.__name__}": measure(adapter, wrap)
        for name, adapter in adapters.items()
        for wrap in (ddp, sharded)
    }
    late = tiny_llama()
    head = find_head(late)
    sharded(late)
    try:
        InitialModel(late, head)
        refused = False
    except UsageError:
        refused = True
    (folder / f"{distributed.get_rank()}.json").write_text(json.dumps({"errors": errors, "refused": refused}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
