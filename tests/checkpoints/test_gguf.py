import hashlib
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from lengthwise.checkpoints import embedded_models
from lengthwise.checkpoints.embedded_models import EMBEDDED, made_folder
from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.prompts import fit
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus, load_corpus, resolve_bos, sample_windows, tokenize, view
from tests.gguf_files import write_gguf

GEMMA3_MODULES = [module for module, _ in EMBEDDED["gemma3-270m"]["gguf"]]


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", tiny_llama(), tiny_tokenizer())


def check_whole(path: Path | str) -> None:
    loaded = load(str(path))
    ids = torch.randint(320, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = tiny_llama()(input_ids=ids).logits
    torch.testing.assert_close(loaded.head.logits(loaded.hidden_states(ids)), expected)
    text = tiny_text(30)
    assert loaded.tokenizer(text).input_ids == tiny_tokenizer()(text).input_ids
    assert loaded.model.dtype == torch.float32


def kept(cache: Path) -> list[str]:
    files = (path for path in (cache / "models").rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted({path.parent.name for path in files})


def test_converted_once_and_equal(gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    check_whole(gguf_file)
    (name,) = kept(cache)
    assert name.startswith("gguf-tiny-")
    monkeypatch.setattr(
        "lengthwise.checkpoints.embedded_models.write_converted", lambda *_: pytest.fail("converted again")
    )
    check_whole(gguf_file)


def test_a_changed_file_is_converted_again(gguf_file: Path, cache: Path):
    load(str(gguf_file))
    write_gguf(gguf_file, tiny_llama(seed=1), tiny_tokenizer())
    load(str(gguf_file))
    assert len(kept(cache)) == 2


def test_a_file_that_asks_for_bos_gets_it_once(tmp_path: Path, cache: Path):
    path = write_gguf(tmp_path / "bos.gguf", tiny_llama(), tiny_tokenizer(bos_token="<|begin|>"))
    loaded = load(str(path))
    bos_id = tiny_tokenizer(bos_token="<|begin|>").bos_token_id
    # In our tokenizer, and in the one that transformers loads from the converted folder.
    for tokenizer in (loaded.tokenizer, AutoTokenizer.from_pretrained(loaded.source)):
        assert resolve_bos(tokenizer, "auto") == bos_id
        assert fit(tokenizer, "a king", None, None)[0].count(bos_id) == 1
        tokenizer.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}"
        assert fit(tokenizer, "a king", None, None, chat=True)[0].count(bos_id) == 1
        assert bos_id not in tokenize(as_corpus(["a king"]), tokenizer, cache=False)[0].ids


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"<html>not found</html>", lambda whole: whole[:100], lambda whole: whole[: len(whole) // 2]],
    ids=["no gguf", "header alone", "half"],
)
def test_a_damaged_file_is_refused_and_leaves_nothing(gguf_file, cache, damage):
    gguf_file.write_bytes(damage(gguf_file.read_bytes()))
    with pytest.raises(UsageError):
        load(str(gguf_file))
    assert kept(cache) == []


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_a_packaged_model_without_its_package(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingError) as caught:
        load(name)
    assert caught.value.fix == EMBEDDED[name]["install"]


@pytest.fixture
def in_parts(gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The file in two packages, as the model gemma3-270m."""
    content = gguf_file.read_bytes()
    middle = len(content) // 2
    modules = {}
    for name, part in (("one", content[:middle]), ("two", content[middle:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_bytes(part)
        modules[name] = ModuleSpec(name, None, origin=str(tmp_path / name / "__init__.py"))
    packaged = EMBEDDED["gemma3-270m"] | {
        "gguf": [("one", "part"), ("two", "part")],
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    monkeypatch.setitem(EMBEDDED, "gemma3-270m", packaged)
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: modules.get(name) or found(name))
    return [tmp_path / name / "part" for name in modules]


def test_a_model_in_parts(in_parts: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch):
    check_whole("gemma3-270m")
    folder = made_folder("gemma3-270m")
    assert folder is not None
    assert not list(folder.glob("*.gguf"))
    monkeypatch.setattr(embedded_models, "_RULES", embedded_models._RULES + 1)
    assert made_folder("gemma3-270m") is None
    check_whole("gemma3-270m")
    assert made_folder("gemma3-270m") not in (None, folder)


def test_a_damaged_part(in_parts: list[Path], cache: Path):
    in_parts[1].write_bytes(in_parts[1].read_bytes()[:-1] + b"x")
    with pytest.raises(MissingError) as caught:
        load("gemma3-270m")
    assert caught.value.expected == EMBEDDED["gemma3-270m"]["sha256"]
    assert kept(cache) == []


@pytest.mark.real
def test_the_real_model():
    loaded = load("smollm2-135m")
    described = loaded.describe()
    assert described["parameters"] == 134_515_008
    assert described["dtype"] == "float32"
    assert described["head"] == "proven"
    assert (described["vocab_size"], described["trained_length"]) == (49152, 8192)
    text = load_corpus("books", split="all").documents
    # Perplexity of the first 1024 tokens, measured in fp32; a wrong conversion is off by far more.
    for document, perplexity in {"bible/Jeremiah": 16.4, "shakespeare/king-lear": 36.4}.items():
        ids = torch.tensor([loaded.tokenizer(text[document][:8000]).input_ids[:1024]])
        logits = loaded.head.logits(loaded.hidden_states(ids))
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
        assert loss.exp().item() == pytest.approx(perplexity, rel=0.02), document


@pytest.fixture(scope="module")
def gemma3() -> LoadedModel:
    return load("gemma3-270m", dtype="bfloat16")


@pytest.mark.real
@pytest.mark.skipif(
    made_folder("gemma3-270m") is None and not all(map(importlib.util.find_spec, GEMMA3_MODULES)),
    reason=f"gemma3-270m is not installed: {EMBEDDED['gemma3-270m']['install']}",
)
class TestGemma3:
    def test_its_configuration(self, gemma3: LoadedModel) -> None:
        described = gemma3.describe()
        assert described["parameters"] == EMBEDDED["gemma3-270m"]["parameters"]
        assert described["head"] == "proven"
        assert (described["vocab_size"], described["trained_length"]) == (262_144, 32_768)
        config = gemma3.config
        assert config.layer_types == (["sliding_attention"] * 5 + ["full_attention"]) * 3
        assert (config.sliding_window, config.query_pre_attn_scalar, config.head_dim) == (512, 256, 256)
        assert (config.final_logit_softcapping, config.attn_logit_softcapping) == (None, None)
        assert config.tie_word_embeddings
        assert {kind: rope["rope_theta"] for kind, rope in config.rope_parameters.items()} == {
            "full_attention": 1e6,
            "sliding_attention": 1e4,
        }

    def test_it_predicts_better_with_bos_which_auto_takes(self, gemma3: LoadedModel) -> None:
        assert resolve_bos(gemma3.tokenizer, "auto") == gemma3.tokenizer.bos_token_id == 2
        documents = tokenize(load_corpus("books", split="test"), gemma3.tokenizer)
        losses = {}
        for bos_id in (2, None):
            views = [view(w.ids, 0, 512, bos_id) for w in sample_windows(documents, 512, count=2)]
            rows = [gemma3.hidden_states(torch.from_numpy(ids)[None])[0, :-1] for ids in views]
            found = [gemma3.rows(each).losses(ids[1:]) for each, ids in zip(rows, views, strict=True)]
            losses[bos_id] = torch.cat(found).mean().item()
        # Two windows in fp32: 3.56 with BOS, 4.49 without.
        assert losses[2] == pytest.approx(3.56, abs=0.05)
        assert losses[None] - losses[2] > 0.7
