"""Arguments of another kind than their annotation: each door of the library refuses them when it is called."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

import lengthwise
from lengthwise import (
    AlignmentTrainer,
    LoadedModel,
    MeasureCallback,
    PairCollator,
    Perplexity,
    UsageError,
    View,
    WindowDataset,
    check_rope,
    extend,
    load,
    load_corpus,
    read_recipe,
    read_results,
    run,
    tokenize,
    train,
)
from lengthwise.alignment import Normalizers, alignment_loss, alignment_loss_from_logits
from lengthwise.evaluation import likelihoods
from lengthwise.machine import usable_device
from lengthwise.results import parse_results
from lengthwise.subjects import Branch, Endpoint, Reading, as_model, open_model
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import TokenDocument, WindowSampler, pack_documents, resolve_bos, sample_windows, view
from lengthwise.training import pair_windows, plan

VIEW = View(16, offsets=(7, 7))
IDS = np.arange(4)
URL = "http://127.0.0.1:9/v1"


def pair() -> Any:
    return tiny_llama(), tiny_tokenizer()


def documents() -> Any:
    return tokenize([tiny_text(100)], tiny_tokenizer())


def trainer(*arguments: Any, **more: Any) -> Any:
    return AlignmentTrainer(tiny_llama(), *arguments, **more)


def measuring(every: Any) -> Any:
    from_trainer = trainer(
        TrainingArguments("out", use_cpu=True),
        objective=lengthwise.Objective(),
        processing_class=tiny_tokenizer(),
    )
    return MeasureCallback(from_trainer, Perplexity(lengths=(16,), windows=1), [tiny_text(99)], every=every)


BATCH = PairCollator(VIEW)([{"input_ids": [*range(23)]}])


def loss(of: str, **changes: Any) -> Any:
    """Of a batch of one pair, with one argument of another kind."""
    settings = {"geometry": BATCH["geometry"], "objective": lengthwise.Objective(alpha=0.1)}
    if of == "model":
        model = tiny_llama(num_hidden_layers=1)
        given = {**BATCH, **settings, "head": lengthwise.find_head(model), **changes}
        return lengthwise.model_alignment_loss(model, **given)
    rows, weight = torch.ones(2, 1, 16, 8), torch.ones(320, 8)
    labels, more = BATCH["labels"].chunk(2), settings | changes
    if of == "states":
        return alignment_loss(*rows, weight, *labels, **more)
    return alignment_loss_from_logits(*(rows @ weight.T), *labels, **more)


LOSSES: dict[str, Callable[[], Any]] = {
    f"{name} of the {of}'s loss as {value!r}": lambda of=of, name=name, value=value: loss(of, **{name: value})
    for of in ("model", "states", "logits")
    for name, values in {
        "objective": (0.1, {"alpha": 0.1}, None),
        "geometry": (5, None),
        "normalizers": (5, (4, 4, 4), Normalizers([4], 4, 4), Normalizers("4", 4, 4)),  # type: ignore[arg-type]
        **(
            {
                "head": (None, torch.nn.Linear(8, 320)),
                "labels": (None, [[1]]),
                "input_ids": (
                    [[1]],
                    *(BATCH["input_ids"].to(kind) for kind in (torch.float32, torch.int16, torch.bool)),
                    *(BATCH["input_ids"][rows] for rows in (0, slice(0), slice(1), (slice(2), slice(0)))),
                ),
            }
            if of == "model"
            else {}
        ),
    }.items()
    for value in values
}


def rows_of(dataset: Any, view: Any = VIEW, **options: Any) -> Any:
    return pair_windows(dataset, tiny_tokenizer(), view, **options)


class Texts(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(["a text"])


TEXTS = [{"text": tiny_text(99)}]


def loaded() -> Any:
    return as_model(pair())


DOORS: dict[str, Callable[[], Any]] = {
    "a collator of a length": lambda: PairCollator(64),  # type: ignore[arg-type]
    "BOS as text": lambda: PairCollator(VIEW, bos_id="<s>"),  # type: ignore[arg-type]
    "BOS -1": lambda: PairCollator(VIEW, bos_id=-1),
    "a collator's seed of 1.5": lambda: PairCollator(VIEW, seed=1.5),  # type: ignore[arg-type]
    "one offset": lambda: View(16, offsets=8),  # type: ignore[arg-type]
    "the name of a sampler": lambda: View(16, "gap", positions="skip"),  # type: ignore[arg-type]
    "options of a view": lambda: View(16, options=5),  # type: ignore[arg-type]
    "windows of a length": lambda: WindowDataset(documents(), 64, batch_size=2, steps=2),  # type: ignore[arg-type]
    "windows of a name": lambda: WindowDataset("books", VIEW, batch_size=2, steps=2),  # type: ignore[arg-type]
    "steps of no samples": lambda: WindowDataset(documents(), VIEW, batch_size=0, steps=2),
    "half a step": lambda: WindowDataset(documents(), VIEW, batch_size=2, steps=1.5),  # type: ignore[arg-type]
    "a sampler's seed of -1": lambda: WindowSampler(documents(), seed=-1),
    "no tokenizer": lambda: LoadedModel(tiny_llama(), None, "tiny", "memory"),
    "no model": lambda: LoadedModel(5, tiny_tokenizer(), "tiny", "memory"),
    "the port of an endpoint": lambda: Endpoint(8000),  # type: ignore[arg-type]
    "server options": lambda: Endpoint(URL, server={"patience": 1}),  # type: ignore[arg-type]
    "a model in place of its trainer": lambda: MeasureCallback(tiny_llama(), Perplexity()),  # type: ignore[arg-type]
    "no arguments of a trainer": lambda: trainer(None, objective=lengthwise.Objective()),
    "alpha as the objective": lambda: trainer(TrainingArguments("out", use_cpu=True), objective=0.1),
    "a length as the measurement": lambda: run(1024, pair(), [tiny_text(99)]),  # type: ignore[arg-type]
    "a class as the measurement": lambda: run(Perplexity, pair(), [tiny_text(99)]),  # type: ignore[arg-type]
    "a number as the folder": lambda: run(Perplexity(lengths=(16,)), pair(), [tiny_text(99)], out=5),  # type: ignore[arg-type]
    "a factor as text": lambda: extend(tiny_llama(), "yarn", factor="2"),  # type: ignore[arg-type]
    "a factor of True": lambda: extend(tiny_llama(), "yarn", factor=True),
    "a number as the model": lambda: load(5),  # type: ignore[arg-type]
    "nothing as the model": lambda: load(None),  # type: ignore[arg-type]
    "a number as the device": lambda: load("tiny-books", device=5),  # type: ignore[arg-type]
    "a number as the adapter": lambda: load("tiny-books", adapter=5),  # type: ignore[arg-type]
    "a number as the text": lambda: load_corpus(5),  # type: ignore[arg-type]
    "a number as the recipe": lambda: read_recipe(5),  # type: ignore[arg-type]
    "a path as the recipe of a training": lambda: train("recipe.yaml", "out"),  # type: ignore[arg-type]
    "a path as the recipe of a plan": lambda: plan("recipe.yaml"),  # type: ignore[arg-type]
    "a number as the results": lambda: read_results(5),  # type: ignore[arg-type]
    "a list as the results": lambda: parse_results([]),  # type: ignore[arg-type]
    "a name as the subject": lambda: open_model("tiny-books"),  # type: ignore[arg-type]
    "a name as the model of a check": lambda: check_rope("tiny-books"),
    "a name as the tokenizer": lambda: tokenize([tiny_text(99)], "gpt2"),
    "no tokenizer for BOS": lambda: resolve_bos(None, "auto"),
    "texts as documents": lambda: sample_windows(["a text"], 16),  # type: ignore[list-item]
    "a sample's seed of -1": lambda: sample_windows(documents(), 16, seed=-1),
    "a list as a document": lambda: TokenDocument("a", [1, 2]),  # type: ignore[arg-type]
    "fractions as a document": lambda: TokenDocument("a", IDS + 0.5),
    "nothing to pack": lambda: pack_documents([], eos_id=1),
    "a view of -3 tokens": lambda: view(IDS, 0, -3, None),
    "a view from 1.5": lambda: view(IDS, 1.5, 2, None),  # type: ignore[arg-type]
    "the name of what is wanted": lambda: Reading(tokens=IDS, want="loss"),  # type: ignore[arg-type]
    "a branch beyond the text": lambda: Reading(
        tokens=IDS, branches=[Branch(place=9, tokens=IDS, labels=IDS)]
    ),
    "a label beyond the vocabulary": lambda: [*loaded().read([Reading(tokens=IDS, labels=IDS + 10**6)])],
    "prompts without answers": lambda: likelihoods(loaded(), [[1], [2]], [[[1]]]),
    "no text at a time": lambda: likelihoods(loaded(), [[1]], [[[1]]], batch_size=0),
    "fractions as tokens": lambda: Reading(tokens=IDS + 0.5),
    "tokens in a list": lambda: Reading(tokens=[1, 2]),  # type: ignore[arg-type]
    "a batch as tokens": lambda: Reading(tokens=IDS[None]),
    "tokens below 0": lambda: Reading(tokens=IDS - 1),
    "-100 as a label": lambda: Reading(tokens=IDS, labels=np.array([1, -100])),
    "more labels than tokens": lambda: Reading(tokens=IDS[:1], labels=IDS),
    "one token in a window": lambda: View(1),
    "one token in a rotated window": lambda: View(1, "cyclic"),
    **{
        f"every of {every!r}": lambda every=every: measuring(every)
        for every in ("10", 1.5, True, float("nan"), 0)
    },
    **LOSSES,
    "a length as the view of rows": lambda: rows_of(TEXTS, 16),
    "a number as the column": lambda: rows_of(TEXTS, text_field=3),
    **{
        f"{name}='no'": lambda name=name: rows_of(TEXTS, **{name: "no"})
        for name in ("packing", "assistant_only")
    },
    **{
        f"rows that are {rows!r}": lambda rows=rows: rows_of(rows)
        for rows in ("a text", ["a text"], [5], None, 5, {"text": ["a text"]})
    },
    "a stream of texts": lambda: rows_of(Texts()),
    "-100 as a label of a branch": lambda: Branch(place=1, tokens=IDS, labels=np.array([-100])),
}


@pytest.mark.parametrize("door", DOORS)
def test_another_kind_of_argument_is_refused_at_the_door(door):
    with pytest.raises(UsageError):
        DOORS[door]()


def test_a_device_of_torch_is_a_device():
    assert usable_device(torch.device("cpu")) == "cpu"
