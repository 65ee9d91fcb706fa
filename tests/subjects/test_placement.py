"""Models whose layers lie on several devices, here the processor and the disk, give the numbers of one device."""

import itertools
import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from transformers import BitsAndBytesConfig, FineGrainedFP8Config, Gemma3Config, QuantoConfig

from lengthwise.checkpoints import Head
from lengthwise.checkpoints.probe import rounds_together
from lengthwise.checkpoints.stored_weights import is_4bit
from lengthwise.checkpoints.variants import check_splits, check_stored_quantization
from lengthwise.errors import UsageError
from lengthwise.settings import Subject
from lengthwise.subjects import Reading, load, weights
from lengthwise.subjects.pieces import PieceReader
from lengthwise.subjects.plan import layers_to_quantize, reading_cost
from lengthwise.subjects.reading import Branch
from lengthwise.testing import save_tiny_model
from lengthwise.training.merging import expand_into
from tests.architectures import tiny_model
from tests.tiny_folders import saved

SPREAD = {
    "model.embed_tokens": "disk",
    "model.rotary_emb": "cpu",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.norm": "cpu",
    "lm_head": "disk",
}
IDS = torch.arange(40)[None] % 23


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("placement")
    return str(save_tiny_model(folder / "model", tie_word_embeddings=False))


def test_weights_on_disk_give_the_same_numbers(untied: str):
    whole, spread = load(untied, device="cpu"), load(untied, device_map=SPREAD)
    assert spread.model.lm_head.weight.is_meta
    assert isinstance(spread.head, Head)
    assert not spread.head.weight.is_meta
    assert spread.device == torch.device("cpu")
    hidden = spread.hidden_states(IDS)
    torch.testing.assert_close(hidden, whole.hidden_states(IDS))
    losses = [model.rows(hidden[0, :-1]).losses(IDS[0, 1:]) for model in (whole, spread)]
    torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(PieceReader(spread).read(IDS), PieceReader(whole).read(IDS))
    assert spread.fingerprint() == whole.fingerprint()


def test_hidden_states_go_to_the_device_of_the_head(untied: str, monkeypatch: pytest.MonkeyPatch):
    """The meta device in the place of a second one."""
    model = load(untied, device="cpu")
    model.head = Head(
        torch.nn.Linear(32, 320, bias=False, device="meta"), copy_of=model.model.get_output_embeddings()
    )
    # Nothing can be compared there.
    model.proofs.blind_up_to = IDS.shape[1]
    monkeypatch.setattr(weights, "why_not", lambda *_: None)
    assert model.hidden_states(IDS).device == PieceReader(model).read(IDS).device == torch.device("meta")
    assert model.device == torch.device("cpu")


def planned(name: str, method: Literal["nf4", "int8"] | None) -> int:
    """Bytes that a dry run counts for reading a few tokens."""
    subject = Subject(model=name, device="cpu", quantize=method)
    cost = reading_cost(subject, tokens=1, at_once=1, longest=1)
    return cost["memory_bytes"]


def kept(model: Any, *scales: str) -> int:
    """Bytes that the layers keep in the place of their weights, but for bitsandbytes' tables."""
    return sum(
        layer.weight.nbytes + sum(operator.attrgetter(scale)(layer.weight).nbytes for scale in scales)
        for layer in model.modules()
        if type(layer).__name__ in ("Linear4bit", "Linear8bitLt")
    )


def test_int8_weights_are_close(untied: str):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    whole, rounded = load(untied, device="cpu"), load(untied, device="cpu", quantization="int8")
    small = layers_to_quantize(whole.model)
    weights = sum(4 * layer.weight.numel() for layer in small)
    assert planned(untied, None) - planned(untied, "int8") == weights - kept(rounded.model, "SCB")
    hidden, close = whole.hidden_states(IDS), rounded.hidden_states(IDS)
    assert 0 < ((close - hidden).norm() / hidden.norm()).item() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_int8_takes_no_shortcut(untied: str, dtype: Any):
    """What it rounds depends on all tokens of a pass: four texts side by side were 0.3 nats from each alone."""
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    model = load(untied, device="cpu", quantization="int8", dtype=dtype)
    ids = np.random.default_rng(0).integers(320, size=(4, 100))
    branches = tuple(Branch(place=at, tokens=ids[1, :at], labels=ids[2, :at]) for at in (20, 30))
    texts = [Reading(tokens=text, labels=text) for text in ids]
    for found, text in zip(model.read(texts), ids, strict=True):
        assert torch.equal(found.losses, model.rows(model.plain_pass(text)).losses(text))
    [found] = model.read([Reading(tokens=ids[0], labels=ids[0], branches=branches)])
    for losses, branch in zip(found.branches, branches, strict=True):
        alone = model.rows(model.plain_pass(branch.after(ids[0]))).losses(branch.labels)
        assert torch.equal(losses, alone)


class ByScales(torch.nn.Linear):
    """Rounds what it multiplies to whole numbers of a scale: of each row, of all of them, or written in a file."""

    scales: Any = staticmethod(lambda states: torch.tensor(0.01))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        scale = self.scales(states)
        return super().forward((states / scale).round() * scale)


ROUNDED: dict[str, tuple[Any, bool]] = {
    "by a scale of each row": (lambda states: states.abs().amax(-1, keepdim=True) / 127, False),
    "by one scale": (lambda states: states.abs().amax() / 127, True),
    "by the largest column": (lambda states: states.abs().flatten(0, -2).amax(0) / 127, True),
    "by a scale of the files": (lambda _: torch.tensor(0.01), False),
    "by rows, to no number": (lambda states: states.abs().amax(-1, keepdim=True) * torch.nan, True),
}


@pytest.mark.parametrize("case", ROUNDED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", ["self_attn.q_proj", "mlp.down_proj"])
def test_what_rounds_tokens_together_is_proven_on_the_model(case: str, dtype: torch.dtype, layer: str):
    """One layer of many is enough, in any method."""
    scales, together = ROUNDED[case]
    model: Any = tiny_model("llama-gqa").to(dtype)
    model.hf_quantizer = SimpleNamespace()
    assert not rounds_together(model)
    other: Any = tiny_model("llama-gqa").to(dtype)
    other.hf_quantizer, module = SimpleNamespace(), other.get_submodule(f"model.layers.1.{layer}")
    module.__class__, module.scales = ByScales, scales
    assert rounds_together(other) is together


@pytest.mark.parametrize(("method", "together"), [("int8", True), ("nf4", False), ("quanto", False)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_which_methods_round_tokens_together(untied: str, method: str, together: bool, dtype: Any):
    pytest.importorskip("optimum.quanto" if method == "quanto" else "bitsandbytes")
    quantization = QuantoConfig(weights="int8") if method == "quanto" else method
    model = load(untied, device="cpu", quantization=quantization, dtype=dtype)
    assert rounds_together(model.model) is together


def test_nf4_weights_are_read_as_what_they_stand_for(untied: str):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    expanded, rounded = load(untied, device="cpu"), load(untied, device="cpu", quantization="nf4")
    layers = [layer for layer in rounded.model.modules() if is_4bit(layer)]
    assert layers
    assert rounded.describe()["parameters"] == expanded.describe()["parameters"]
    saved = sum(4 * layer.weight.numel() for layer in layers_to_quantize(expanded.model))
    saved -= kept(rounded.model, "quant_state.absmax", "quant_state.state2.absmax")
    # A layer of fewer than 256 scales keeps a whole number for them.
    assert abs(planned(untied, None) - planned(untied, "nf4") - saved) < 4 * len(layers)
    expand_into(expanded.model, rounded.model)
    torch.testing.assert_close(rounded.hidden_states(IDS), expanded.hidden_states(IDS), rtol=1e-3, atol=1e-3)


STORED: dict[str, dict[str, Any]] = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "fp4": {"load_in_4bit": True},
    "int8": {"load_in_8bit": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "desc_act": True},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "unknown": {"quant_method": "nvfp9"},
}
QUANTIZED: list[tuple[str, Any, bool]] = [
    *(
        (stored, asked, stored == asked)
        for stored, asked in itertools.product(STORED, ("nf4", "int8"))
        if "unknown" not in stored
    ),
    ("unknown", "nf4", False),
    ("nf4", BitsAndBytesConfig(load_in_8bit=True), False),
    ("nf4", BitsAndBytesConfig(load_in_4bit=True), False),
    ("nf4", BitsAndBytesConfig(**STORED["nf4"], bnb_4bit_compute_dtype=torch.bfloat16), False),
    ("nf4", BitsAndBytesConfig(**STORED["nf4"]), True),
    ("nf4", FineGrainedFP8Config(), False),
    ("fp8", FineGrainedFP8Config(dequantize=True), True),
    ("fp8", FineGrainedFP8Config(weight_block_size=(64, 64)), False),
]


@pytest.mark.parametrize(("stored", "asked", "fits"), QUANTIZED)
@pytest.mark.parametrize("in_text", [False, True])
def test_weights_that_are_quantized_otherwise_than_asked(stored: str, asked: Any, fits: bool, in_text: bool):
    """transformers keeps to config.json, and the numbers were those of other weights."""
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    config: Any = Gemma3Config()
    (config.text_config if in_text else config).quantization_config = STORED[stored]
    if fits:
        check_stored_quantization(config, asked, "m")
        return
    with pytest.raises(UsageError, match="quantized already") as caught:
        check_stored_quantization(config, asked, "m")
    assert caught.value.expected
    assert caught.value.fix


def test_a_saved_nf4_model_is_loaded_as_it_is_stored(untied: str, tmp_path: Path):
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    made = load(untied, device="cpu", quantization="nf4")
    folder = str(saved(made.model, tmp_path / "nf4"))
    quantized: list[Literal["nf4"] | None] = [None, "nf4"]
    for quantization in quantized:
        smaller = 4 * made.describe()["parameters"] - (tmp_path / "nf4" / "model.safetensors").stat().st_size
        assert planned(untied, None) - planned(folder, quantization) == smaller > 0
        again = load(folder, device="cpu", quantization=quantization)
        assert torch.equal(again.hidden_states(IDS), made.hidden_states(IDS))
    for quantization in ("int8", BitsAndBytesConfig(load_in_8bit=True)):
        with pytest.raises(UsageError, match=r"nf4, not int8|load_in_8bit is False, not True"):
            load(folder, device="cpu", quantization=quantization)
    with pytest.raises(UsageError, match="nf4, not int8"):
        planned(folder, "int8")
    (tmp_path / "nf4" / "model.safetensors").unlink()
    assert planned(folder, None) == planned(untied, None)


@pytest.mark.parametrize("placed", [{"tp_plan": "auto"}, {"device_map": "auto", "device": "cpu"}])
def test_places_that_exclude_each_other(untied: str, placed: dict[str, str]):
    with pytest.raises(UsageError):
        load(untied, **placed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "processes"), [("llama-gqa", 4), ("llama-gqa", 3), ("gpt2", 2)], ids=["keys", "heads", "no plan"]
)
def test_processes_that_cannot_share_the_heads(name: str, processes: int, monkeypatch: pytest.MonkeyPatch):
    """Four heads of queries and two of keys; GPT-2 has no plan in transformers."""
    monkeypatch.setattr("lengthwise.machine._rank_and_count", lambda: (0, processes))
    with pytest.raises(UsageError):
        check_splits(tiny_model(name).config)
    monkeypatch.setattr("lengthwise.machine._rank_and_count", lambda: (0, 2))
    check_splits(tiny_model("llama-gqa").config)
