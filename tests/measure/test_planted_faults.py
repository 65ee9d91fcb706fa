"""Faults that serving really has, planted on purpose: each is found, and sound pairs are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.measure.difference import Difference
from lengthwise.measure.runner import run
from lengthwise.report.difference_verdict import verdict
from lengthwise.settings import Subject
from lengthwise.testing import save_tiny_model, tiny_text
from tests.measure import faulty_caches

LENGTH = 1024
LADDER = (128, 256, 512, 1024)
TEXTS = [tiny_text(1800, seed=seed) for seed in range(3)]
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 256}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of the same weights, which differ in what their configuration says."""
    folder = tmp_path_factory.mktemp("models")
    ropes: dict[str, Any] = {
        "yarn": YARN,
        "yarn-512": YARN | {"original_max_position_embeddings": 512},
        "linear": LINEAR,
        "llama3": LLAMA3,
        "base": {"rope_type": "default", "rope_theta": 1e6},
        "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
    }
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    save_tiny_model(folder / "plain", max_position_embeddings=2048, **shape)
    for name, rope in ropes.items():
        most = 256 if name == "dynamic" else 2048
        save_tiny_model(folder / name, max_position_embeddings=most, rope_parameters=rope, **shape)
    return folder


def said(
    a: Path, b: Path | str, *, lengths: tuple[int, ...] = (LENGTH,), of_a: Any = None, **of_b: Any
) -> str:
    """What the comparison says, in one line."""
    spec = Difference(side_b={"model": str(b), **of_b}, lengths=lengths, windows=3)
    found = run(spec, Subject(model=str(a), **(of_a or {})), TEXTS)
    return " ".join(verdict(found.rows))


@pytest.mark.parametrize(
    ("rope", "other"),
    [*((each, "plain") for each in ("yarn", "linear", "llama3", "base")), ("yarn", "yarn-512")],
)
def test_a_rope_scaling_that_was_dropped_or_is_another(folders: Path, rope: str, other: str) -> None:
    assert "predicts as A does" not in said(folders / rope, folders / other, lengths=(512,))


def test_a_rope_that_depends_on_the_length(folders: Path) -> None:
    text = said(folders / "plain", folders / "dynamic", lengths=(128, 512))
    assert "equal to A in windows of 128" in text
    assert "moves with the length" in text


@pytest.mark.parametrize(
    ("cache", "chunk", "place", "decoded"),
    [
        ("evicts_the_middle", 64, faulty_caches.SINKS + faulty_caches.RECENT + 64, 256),
        ("forgets", 64, faulty_caches.FORGETS + 64, 256),
        ("off_by_one", 64, faulty_caches.OFFSET_FROM, 512),
    ],
)
def test_caches_that_lose_tokens(folders: Path, cache: str, chunk: int, place: int, decoded: int) -> None:
    """Found in chunks at the position, and on the decode path between two lengths."""
    plain = folders / "plain"
    text = said(plain, plain, cache=f"tests.measure.faulty_caches:{cache}", read=f"chunks={chunk}")
    assert f"equal to A up to {place:,} tokens" in text
    assert "fault of the cache" in text
    text = said(plain, plain, cache=f"tests.measure.faulty_caches:{cache}", read="decode=32", lengths=LADDER)
    before = max(length for length in LADDER if length <= decoded and length <= place)
    assert f"equal to A up to {before:,} tokens" in text
    assert "fault of the cache" in text


@pytest.mark.parametrize("cache", ["four_bits", "two_bits"])
def test_caches_in_few_bits_are_precision(folders: Path, cache: str) -> None:
    text = said(
        folders / "plain", folders / "plain", cache=f"tests.measure.faulty_caches:{cache}", read="chunks=64"
    )
    assert "at all positions alike, once a cache is read (from token 64 on)" in text
    assert "precision" in text


def test_a_sliding_window_that_one_side_has(tmp_path: Path, folders: Path) -> None:
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    plain = folders / "plain"
    for name, window in (("none", None), ("window", 192)):
        torch.manual_seed(0)
        model = MistralForCausalLM(
            MistralConfig(
                vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=2048, sliding_window=window, initializer_range=0.3,
            )
        )  # fmt: skip
        model.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path / name)
    text = said(tmp_path / "none", tmp_path / "window")
    assert "equal to A up to 192 tokens" in text
    assert "a sliding window" in text
    # Its cache keeps the window: the decode path is as sound as prefill.
    for read in ("chunks=100", "decode=32"):
        assert "predicts as A does" in said(
            tmp_path / "window", tmp_path / "window", read=read, lengths=(512,)
        )


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_an_adapter_that_was_not_loaded(folders: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folders / "plain")
    tuned = get_peft_model(
        model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    tuned.save_pretrained(tmp_path / "adapter")
    text = said(
        folders / "plain", folders / "plain", lengths=(256,), of_a={"adapter": str(tmp_path / "adapter")}
    )
    assert "an adapter" in text


def test_weights_in_four_bits(folders: Path) -> None:
    pytest.importorskip("bitsandbytes")
    assert "at all positions alike" in said(
        folders / "plain", folders / "plain", lengths=(256,), quantize="nf4"
    )


@pytest.mark.parametrize(
    "of_b",
    [
        {"attn": "eager"},
        {"read": "chunks=64"},
        {"read": "chunks=100"},
        {"read": "decode=32"},
        {"kv_cache": "static", "read": "chunks=64"},
        {"kv_cache": "full", "read": "chunks=50"},
        {"kv_cache": "dynamic", "read": "decode=16"},
        {"attn": "eager", "read": "decode=16"},
        {"dtype": "float64"},
    ],
    ids=str,
)
@pytest.mark.parametrize("rope", ["plain", "yarn"])
def test_sound_pairs_are_equal(folders: Path, rope: str, of_b: dict[str, str]) -> None:
    lengths = (128, 512) if "decode" in str(of_b) else (512,)
    assert "predicts as A does, up to 512 tokens" in said(
        folders / rope, folders / rope, lengths=lengths, **of_b
    )
