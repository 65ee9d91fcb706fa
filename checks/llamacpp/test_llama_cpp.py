"""What llama.cpp gives, against transformers; `make check-llamacpp` runs this where llama-cpp-python is installed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("llama_cpp")

from lengthwise.checkpoints import extend
from lengthwise.checkpoints.llama_cpp_keys import OBEYED
from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure import run
from lengthwise.measure.comparison import Comparison, comparison_of_kept
from lengthwise.measure.repeated_windows import KeptPredictions
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, open_model
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from tests.checkpoints import test_gguf_sentencepiece as sentencepiece
from tests.checkpoints.test_gguf_settings import SCALINGS, made, scaling_keys
from tests.gguf_files import write_gguf
from tests.readings import in_memory, next_logits, token_losses

IDS = np.random.default_rng(0).integers(1, 320, 129)
EXACT = {"kv_cache": "f32"}
ROUNDING = 2e-3
"""Nats: llama.cpp computes attention and the products of fp32 weights in other orders than transformers."""
TEXTS = [tiny_text(400, seed=seed) for seed in range(4)]


def tiny(**overrides: Any) -> LoadedModel:
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 3}
    model = tiny_llama(**(shape | {"max_position_embeddings": 256} | overrides))
    return in_memory(model)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tiny().model, tiny_tokenizer())


def side(file: Path, **settings: Any) -> Any:
    return open_model(Subject(model=f"llama.cpp:{file}", **settings), tokenizer=tiny_tokenizer())


def losses(model: Any, count: int = 128) -> torch.Tensor:
    return token_losses(model, [IDS[:-1]], [IDS[len(IDS) - count :]])[0]


@pytest.mark.parametrize("path", [{}, {"read": "chunks=16"}, {"read": "decode=40"}, {"n_ctx": 256}])
@pytest.mark.parametrize("count", [128, 40, 1])
def test_every_path_gives_the_losses_of_transformers(file: Path, path: dict[str, Any], count: int):
    found = losses(side(file, **EXACT, **path), count)
    torch.testing.assert_close(found, losses(tiny(), count), atol=ROUNDING, rtol=0)


def test_next_logits_are_those_after_the_last_token(file: Path):
    found, own = (next_logits(m, IDS[:50]).log_softmax(-1) for m in (side(file, **EXACT), tiny()))
    torch.testing.assert_close(found, own.to(found), atol=ROUNDING, rtol=0)


@pytest.mark.parametrize(("kind", "method"), [("linear", "pi"), ("yarn", "yarn")])
def test_a_rope_scaling_is_that_of_transformers(file: Path, kind: str, method: str):
    extended = tiny()
    extend(extended.model, method=method, factor=2.0)
    found, plain = (losses(side(file, **EXACT, rope_scaling=scale)) for scale in (f"{kind}:2", "none"))
    torch.testing.assert_close(found, losses(extended), atol=ROUNDING, rtol=0)
    assert (found - plain).abs().mean() > 0.05
    torch.testing.assert_close(plain, losses(tiny()), atol=ROUNDING, rtol=0)


def test_longrope_is_that_of_the_text_s_own_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """llama.cpp chooses its frequencies by the room of the context, in steps of 256 tokens."""
    lengths = {"original_max_position_embeddings": 512, "attention_factor": 1.25}
    monkeypatch.setitem(SCALINGS, "longrope", lengths)
    monkeypatch.setattr("tests.checkpoints.test_gguf_settings.L0", 512)
    made_of = made("phi3", "longrope", sliding_window=None, max_position_embeddings=2048)
    more = scaling_keys(made_of)
    model = side(write_gguf(tmp_path / "x.gguf", made_of, tiny_tokenizer(), more=more), **EXACT)
    text = np.random.default_rng(0).integers(1, 320, 701)
    for size in (200, 700, 200):
        found, own = (
            token_losses(m, [text[:size]], [text[1 : size + 1]])[0] for m in (model, in_memory(made_of))
        )
        torch.testing.assert_close(found, own, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("key", OBEYED)
def test_a_key_that_is_not_obeyed_changes_nothing_and_is_named(key: str, tmp_path: Path):
    checkpoint = made("llama", "yarn" if "yarn" in key else "default")
    keys = scaling_keys(checkpoint)
    plain, with_it = (
        side(write_gguf(tmp_path / name, checkpoint, tiny_tokenizer(), more=more), **EXACT)
        for name, more in {"plain.gguf": keys, "x.gguf": keys | {key: 16 if "window" in key else 7.5}}.items()
    )
    torch.testing.assert_close(losses(with_it), losses(plain), rtol=0, atol=0)
    assert plain.describe()["remarks"] == []
    assert key in " ".join(with_it.describe()["remarks"])


def test_a_key_that_is_obeyed_changes_numbers_and_is_not_named(tmp_path: Path):
    found = []
    for cap in (5.0, 50.0):
        checkpoint = made("gemma2", final_logit_softcapping=cap)
        model = side(write_gguf(tmp_path / "x.gguf", checkpoint, tiny_tokenizer()), **EXACT)
        assert model.describe()["remarks"] == []
        found.append(losses(model))
    assert (found[0] - found[1]).abs().mean() > 0.05


@pytest.mark.parametrize("path", [{}, {"read": "decode=40"}])
def test_attention_to_later_tokens_is_refused(path: dict[str, Any], tmp_path: Path):
    more = {"attention.causal": False}
    file = write_gguf(tmp_path / "x.gguf", made("llama"), tiny_tokenizer(), more=more)
    with pytest.raises(UsageError, match="before it"):
        side(file, **path).check_ready(50)


def test_divisors_of_the_file_stay_beside_another_scaling(tmp_path: Path):
    checkpoint = made("llama", "llama3")
    file = write_gguf(tmp_path / "x.gguf", checkpoint, tiny_tokenizer(), more=scaling_keys(checkpoint))
    model = side(file, **EXACT, rope_scaling="none")
    torch.testing.assert_close(losses(model), losses(in_memory(checkpoint)), atol=ROUNDING, rtol=0)
    assert "rope_freqs.weight" in " ".join(model.describe()["remarks"])


def test_a_quantized_cache_is_worse_the_fewer_its_bits(file: Path):
    plain = losses(tiny())
    apart = [
        (losses(side(file, kv_cache=each)) - plain).abs().mean() for each in ("f32", "f16", "q8_0", "q4_0")
    ]
    assert apart == sorted(apart)
    assert apart[0] < 1e-3 < apart[3]


def test_compare_finds_exact_kl_of_equal_models(file: Path):
    found = run(Comparison(lengths=(128,), windows=2), tiny(), TEXTS, other=side(file, **EXACT))
    by = {row.metric: row.value or 0 for row in found.rows if row.is_whole and row.distance is None}
    assert by["difference"] < ROUNDING
    assert abs(by["kl"]) < 1e-5
    assert by["same_top"] > 0.99
    assert not any("lower bound" in note for note in found.notes)


def test_sides_kept_apart_are_compared_as_together(file: Path):
    one, two = side(file, **EXACT), side(file, rope_scaling="linear:2")
    whole = run(Comparison(lengths=(128,), windows=2), one, TEXTS, other=two)
    kept = KeptPredictions(lengths=(128,), windows=2)
    later = comparison_of_kept(run(kept, one, TEXTS), run(kept, two, TEXTS))
    for metric in ("difference", "shift", "same_top"):
        (a,), (b,) = (r.select(metric=metric, position=None, distance=None) for r in (whole, later))
        assert b.value == pytest.approx(a.value, rel=1e-4, abs=1e-6)
    (exact,), (bound,) = (r.select(metric="kl", position=None) for r in (whole, later))
    assert 0.1 * exact.value < bound.value <= exact.value + 1e-6


def test_other_ids_of_llama_cpp_itself_are_refused(file: Path, tmp_path: Path):
    assert side(file).ids_of("the old queen walks.") == tiny_tokenizer()("the old queen walks.").input_ids
    merges = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]["merges"]
    more = {"tokenizer.ggml.merges": [" ".join(pair) for pair in reversed(merges)]}
    other = write_gguf(tmp_path / "x.gguf", tiny().model, tiny_tokenizer(), more=more)
    with pytest.raises(UsageError, match="other ids"):
        run(Comparison(lengths=(128,), windows=1), tiny(), TEXTS, other=side(other))
    with pytest.raises(UsageError, match="other ids"):
        run(KeptPredictions(lengths=(128,), windows=1), side(other), TEXTS)


@pytest.mark.parametrize("prefix", [True, False])
def test_ids_of_sentencepiece(prefix: bool, tmp_path: Path):
    model = side(sentencepiece.written(tmp_path / "x.gguf", add_space_prefix=prefix))
    for text in sentencepiece.TEXTS:
        assert model.ids_of(text) == sentencepiece.ids_of(text, prefix=prefix), text


def test_a_vocabulary_without_bytes_is_refused(tmp_path: Path):
    """llama.cpp ends the process at a letter that is no token."""
    kinds = [1 if kind == sentencepiece.BYTE else kind for _, kind in sentencepiece.vocabulary().values()]
    model = side(sentencepiece.written(tmp_path / "x.gguf", token_type=kinds))
    with pytest.raises(UsageError, match="no bytes"):
        model.ids_of("東京")


def test_two_texts_at_a_time_are_refused(file: Path):
    model = side(file, read="chunks=16")
    first = model.logits(IDS, 0)
    next(first)
    assert losses(model, 1).isfinite().all()
    with pytest.raises(LengthwiseError, match="another text"):
        list(first)


def test_n_ctx_bounds_the_windows(file: Path):
    model = side(file, n_ctx=64)
    with pytest.raises(UsageError, match="n_ctx is 64"):
        model.check_ready(65)
    assert model.max_positions == 64
    assert side(file).max_positions is None


def test_a_damaged_file_is_named(tmp_path: Path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(UsageError, match="cannot read"):
        side(path)


def test_fingerprint_and_description(file: Path, tmp_path: Path):
    model = side(file, kv_cache="q8_0", rope_scaling="linear:2")
    other = write_gguf(tmp_path / "x.gguf", tiny(seed=1).model, tiny_tokenizer())
    assert model.fingerprint() == side(file).fingerprint()
    assert model.fingerprint()["weights"] != side(other).fingerprint()["weights"]
    said = model.describe()
    assert said["parameters"] == sum(p.numel() for p in tiny().model.parameters())
    assert (said["trained_length"], said["rope_scaling"], said["batch"]) == (256, "linear:2", 512)


def test_its_own_tokenizer_reads_a_text_alone(file: Path):
    model = open_model(Subject(model=f"llama.cpp:{file}"))
    assert model.tokenizer(TEXTS[0]).input_ids == tiny_tokenizer()(TEXTS[0]).input_ids
