"""What a batch must be so that its loss is true: whole rows, next tokens, views in order, the model's own head."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import LlamaConfig

from lengthwise.alignment import Objective, PairGeometry
from lengthwise.checkpoints import FullLogits, find_head
from lengthwise.errors import UsageError
from lengthwise.testing import tiny_llama
from lengthwise.training import PairCollator, View
from lengthwise.training.model_loss import model_alignment_loss
from lengthwise.training.views import Positions

LENGTH, OFFSET = 16, 5
COUNT = torch.arange(LENGTH)
OBJECTIVE = Objective(alpha=1.0, divergence="jeffreys")
ORDERS = {"short first": [2, 3, 0, 1], "pair by pair": [0, 2, 1, 3], "samples mixed": [0, 1, 3, 2]}


def batch(view: View | None = None) -> dict[str, Any]:
    view = view or View(LENGTH, offsets=(OFFSET, OFFSET))
    ids = torch.randint(0, 320, (2, view.longest_stretch), generator=torch.Generator().manual_seed(0))
    return PairCollator(view)([{"input_ids": row.tolist()} for row in ids])


def reordered(order: list[int]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda given: {name: given[name][order] for name in ("input_ids", "labels")}


def each(name: str, rows: torch.Tensor) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda given: {name: rows.long().expand(4, *rows.shape)}


def with_id(wrong: int, place: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """One token of another vocabulary, or what marks padding."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        ids = given["input_ids"].clone()
        ids[1, place] = wrong
        return {"input_ids": ids}

    return change


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "right padding": ("several texts", each("attention_mask", COUNT < 10)),
    "left padding": ("several texts", each("attention_mask", COUNT > 3)),
    "ids of texts": ("several texts", each("attention_mask", 1 + COUNT // 10)),
    "a mask of a block": ("several texts", each("attention_mask", torch.ones(1, LENGTH, LENGTH).tril())),
    "positions that begin again": ("several texts", each("position_ids", COUNT % 10)),
    "positions of three axes": ("several texts", each("position_ids", COUNT.expand(3, LENGTH))),
    "labels as transformers has them": ("not the token after", lambda b: {"labels": b["input_ids"].clone()}),
    "labels shifted twice": ("not the token after", lambda b: {"labels": b["labels"].roll(-1, dims=1)}),
    "labels of other text": ("not the token after", lambda b: {"labels": (b["labels"] + 7) % 320}),
    "another offset": (
        "different labels",
        lambda b: {"geometry": PairGeometry(LENGTH, OFFSET - 1, b["geometry"].min_context)},
    ),
    **{name: ("different labels", reordered(order)) for name, order in ORDERS.items()},
    **{
        f"id {wrong} at token {place}": (f"hold {wrong}", with_id(wrong, place))
        for wrong in (320, 2**31, -1, -100)
        for place in (0, 7, LENGTH - 1)
    },
}


@pytest.mark.parametrize("case", WRONG)
def test_rows_that_are_no_pairs_of_windows_are_refused(case: str):
    says, change = WRONG[case]
    model, given = tiny_llama(), batch()
    with pytest.raises(UsageError, match=says) as caught:
        model_alignment_loss(model, find_head(model), **(given | change(given)), objective=OBJECTIVE)
    assert caught.value.expected
    assert caught.value.fix


RIGHT: dict[str, Callable[[], dict[str, Any]]] = {
    "truncation": batch,
    "cyclic": lambda: batch(View(LENGTH, "cyclic")),
    "gap": lambda: batch(View(LENGTH, "gap", positions=Positions(sampler="skip", target_length=64))),
    "tokens changed on purpose": lambda: (
        (given := batch()) | {"input_ids": given["input_ids"] + (COUNT == 3)}
    ),
    "no labels": lambda: (given := batch()) | {"labels": torch.full_like(given["labels"], -100)},
}


@pytest.mark.parametrize("case", RIGHT)
def test_pairs_of_windows_have_the_loss_of_a_loop_by_hand(case: str):
    model, given = tiny_llama().double(), RIGHT[case]()
    found = model_alignment_loss(model, find_head(model), **given, objective=OBJECTIVE).loss.item()
    passed = {name: given[name] for name in given.keys() - {"labels", "geometry"}}
    with torch.no_grad():
        log_p = model(**passed).logits.log_softmax(-1)
    terms = [0.0]
    for view, labels in zip(log_p.chunk(2), given["labels"].chunk(2), strict=True):
        if (labels != -100).any():
            terms.append(F.nll_loss(view.flatten(0, 1), labels.flatten()).item() / 2)
    offset, first = given["geometry"].offset, given["geometry"].min_context
    p, q = log_p.chunk(2)
    jeffreys = [
        ((p[n, row + offset].exp() - q[n, row].exp()) * (p[n, row + offset] - q[n, row])).sum().item()
        for n in range(2)
        for row in range(first, LENGTH - offset)
    ]
    assert found == pytest.approx(sum(terms) + sum(jeffreys) / len(jeffreys), rel=1e-9)


def resized(model: Any) -> Any:
    with torch.random.fork_rng():
        model.resize_token_embeddings(330)
    return model


STALE: dict[str, Callable[[Any], Any]] = {
    "LoRA on the head": lambda model: get_peft_model(model, LoraConfig(target_modules=["lm_head"])),
    "the head trained whole": lambda model: get_peft_model(
        model, LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"])
    ),
    "resized": resized,
    "a copy": copy.deepcopy,
    "another model": lambda model: tiny_llama(seed=1, tie_word_embeddings=False),
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("case", STALE)
def test_a_head_that_is_no_longer_the_models_is_refused(case: str):
    model = tiny_llama(tie_word_embeddings=False)
    head = find_head(model)
    now = STALE[case](model)
    with pytest.raises(UsageError, match="not the output layer"):
        model_alignment_loss(now, head, **batch(), objective=OBJECTIVE)
    assert model_alignment_loss(now, find_head(now), **batch(), objective=OBJECTIVE).loss.isfinite()


def test_a_trained_head_that_is_read_from_a_copy_is_refused():
    """As of tensor parallel or offloaded weights: the loss would not follow the head, nor train it."""
    model = tiny_llama(tie_word_embeddings=False)
    own = model.lm_head
    copied = replace(find_head(model), module=copy.deepcopy(own), copy_of=own)
    with pytest.raises(UsageError, match="no gradient reaches"):
        model_alignment_loss(model, copied, **batch(), objective=OBJECTIVE)
    with torch.no_grad():
        read = model_alignment_loss(model, copied, **batch(), objective=OBJECTIVE).loss
    own.requires_grad_(False)
    frozen = model_alignment_loss(model, copied, **batch(), objective=OBJECTIVE).loss
    frozen.backward()
    assert frozen.item() == read.item()
    assert model.model.layers[0].self_attn.q_proj.weight.grad.abs().max() > 0


@pytest.mark.parametrize("nested", [False, True])
def test_a_router_loss_that_would_be_left_out_is_refused(nested: bool, monkeypatch: pytest.MonkeyPatch):
    model = tiny_llama()
    head = find_head(model)
    if nested:
        # As in a model of text and images.
        text = LlamaConfig(vocab_size=320, output_router_logits=True)
        monkeypatch.setattr(LlamaConfig, "get_text_config", lambda self, **_: text)
    else:
        model.config.output_router_logits = True
    with pytest.raises(UsageError, match="output_router_logits"):
        model_alignment_loss(model, head, **batch(), objective=OBJECTIVE)
    with torch.no_grad():
        assert model_alignment_loss(model, head, **batch(), objective=OBJECTIVE).loss.isfinite()


@pytest.mark.parametrize("full", [False, True])
def test_ids_of_32_bits_have_the_loss_of_64(full: bool):
    model, given = tiny_llama().double(), batch()
    head = FullLogits("asked for") if full else find_head(model)
    short = {name: given[name].int() for name in ("input_ids", "labels")}
    found, expected = (
        model_alignment_loss(model, head, **ids, objective=OBJECTIVE).loss.item()
        for ids in (given | short, given)
    )
    assert found == expected
