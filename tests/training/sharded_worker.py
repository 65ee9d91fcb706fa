"""What test_sharded.py starts in two processes: the objective on heads that FSDP2 shards, against one whole copy.

Every process also computes the whole batch on its own copy of the model; `errors.json` gets, for each way to shard,
the largest difference of the loss and of any gradient, as a share of its size. Before that, AlignmentTrainer trains
with accelerate's FSDP2.
"""

import copy
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from sharded_recipes import sharded, tiny
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from trainers import GEOMETRY, train_double, views
from transformers import PhiConfig, PhiForCausalLM

from lengthwise.alignment import AlignmentOutput, Normalizers, Objective, alignment_loss
from lengthwise.checkpoints import Head, final_hidden_states, find_head
from lengthwise.subjects import Reading, load
from lengthwise.testing import tiny_llama
from lengthwise.training.model_loss import model_alignment_loss

SETTINGS: dict[str, Any] = {"geometry": GEOMETRY, "objective": Objective(alpha=2.0, divergence="jeffreys")}


def batch() -> tuple[Tensor, Tensor]:
    """Both views of four samples [2, 4, L]; the last two, those of the second process, have few labels."""
    both, labels = views(4)
    labels[:, 2:, 3:] = -100
    labels[0, 3] = -100
    return both, labels


def layers(model: nn.Module, **settings: Any) -> None:
    for layer in model.model.layers:
        fully_shard(layer, **settings)


def shard_root(model: nn.Module) -> None:
    layers(model)
    fully_shard(model)


def shard_root_and_free(model: nn.Module) -> None:
    layers(model)
    fully_shard(model, reshard_after_forward=True)


def shard_head(model: nn.Module) -> None:
    fully_shard(model.lm_head)
    shard_root(model)


def shard_tail(model: nn.Module) -> None:
    """As accelerate and transformers group them, but freed after forward."""
    fully_shard([model.model.norm, model.lm_head], reshard_after_forward=True)
    shard_root(model)


def shard_adapted(model: nn.Module) -> None:
    layers(model.base_model.model)
    fully_shard(model)


def shard_in_fp32(model: nn.Module) -> None:
    """Parameters in fp64, products in fp32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float64)
    fully_shard(model.lm_head, mp_policy=policy)
    layers(model, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def untied() -> nn.Module:
    return tiny_llama(tie_word_embeddings=False)


def lora() -> nn.Module:
    torch.manual_seed(0)
    model = get_peft_model(untied(), LoraConfig(r=2, task_type="CAUSAL_LM", init_lora_weights=False))
    return model.eval()


def bias() -> nn.Module:
    config = PhiConfig(
        vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    torch.manual_seed(0)
    model = PhiForCausalLM(config).eval()
    torch.nn.init.normal_(model.lm_head.bias)
    return model


WAYS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], None]]] = {
    "root": (untied, shard_root),
    "root-freed": (untied, shard_root_and_free),
    "root-tied": (tiny_llama, shard_root),
    "root-tied-freed": (tiny_llama, shard_root_and_free),
    "head": (untied, shard_head),
    "tail-freed": (untied, shard_tail),
    "bias": (bias, shard_root_and_free),
    "lora": (lora, shard_adapted),
    "fp32": (untied, shard_in_fp32),
    "direct": (untied, shard_head),
}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found.items()}


def error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    largest = max(gradient.norm() for gradient in expected.values())
    return max(
        ((found[name] - gradient).norm() / max(gradient.norm(), 1e-3 * largest)).item()
        for name, gradient in expected.items()
    )


def own_rows(tensor: Tensor) -> Tensor:
    """This process's two samples of [2, 4, L] as [2 * 2, L]."""
    start = 2 * distributed.get_rank()
    return tensor[:, start : start + 2].flatten(0, 1)


def total(loss: Tensor) -> Tensor:
    loss = loss.detach().clone()
    distributed.all_reduce(loss)
    return loss


def counts(labels: Tensor) -> Normalizers:
    own = Normalizers.count(*labels.chunk(2), geometry=GEOMETRY)
    step = own.over_ranks("cpu")
    assert own.labels_long != step.labels_long / 2, "the processes should differ in their labels"
    return step


def way_of_sharding(name: str) -> dict[str, float]:
    make, shard = WAYS[name]
    whole = make().double()
    model = copy.deepcopy(whole)
    both, labels = batch()
    expected = model_alignment_loss(
        whole, find_head(whole), both.flatten(0, 1), labels.flatten(0, 1), **SETTINGS
    )
    expected.loss.backward()

    shard(model)
    weight = model.get_output_embeddings().weight
    assert isinstance(weight, DTensor)
    head = find_head(model)
    assert isinstance(head, Head), head
    both, labels = own_rows(both), own_rows(labels)
    settings = SETTINGS | {"normalizers": counts(labels)}

    def objective(both: Tensor, labels: Tensor) -> AlignmentOutput:
        if name != "direct":
            return model_alignment_loss(model, head, both, labels, **settings)
        # The DTensor itself in the place of the weight.
        hidden = final_hidden_states(model, both).chunk(2)
        return alignment_loss(*hidden, weight, *labels.chunk(2), **settings)

    with torch.no_grad():
        unseen = objective(both, labels)
    output = objective(both, labels)
    # FSDP2 averages over processes, and the shares have to be added.
    (output.loss * distributed.get_world_size()).backward()
    result = {
        "loss": (total(output.loss) / expected.loss - 1).abs().item(),
        "evaluation": (total(unseen.loss) / expected.loss - 1).abs().item(),
        "gradients": error(gradients(model), gradients(whole)),
    }
    # One sample at a time; gradients are reduced once.
    model.zero_grad()
    for index, last in ((0, False), (1, True)):
        model.set_requires_gradient_sync(last)
        rows = torch.tensor([index, index + 2])
        (objective(both[rows], labels[rows]).loss * distributed.get_world_size()).backward()
    result["accumulated"] = error(gradients(model), gradients(whole))
    return result


def tensor_parallel(model: str) -> dict[str, float]:
    """The largest difference of a token's loss where the processes hold shares of every layer."""
    whole, split = load(model, device="cpu"), load(model, tp_plan="auto")
    assert isinstance(split.model.model.layers[0].mlp.up_proj.weight, DTensor)
    assert isinstance(split.head, Head)
    assert split.head.weight.shape == whole.model.lm_head.weight.shape
    ids = np.arange(40) % 23
    ours, theirs = (
        each.read([Reading(tokens=ids[:-1], labels=ids[1:])])[0].losses for each in (whole, split)
    )
    return {"losses": (ours - theirs).abs().max().item()}


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # asked for by PEFT
    torch.set_num_threads(1)
    train_double(Path(sys.argv[1]), accumulation=2, sharded=True)
    errors = {name: way_of_sharding(name) for name in WAYS}
    warnings.simplefilter("default")
    folder = Path(sys.argv[1])
    sharded(tiny("clex", folder, "precision=float32"), folder / "clex")
    errors["tensor parallel"] = tensor_parallel(str(folder / "model"))
    if distributed.get_rank() == 0:
        (Path(sys.argv[1]) / "errors.json").write_text(json.dumps(errors))
    distributed.destroy_process_group()
