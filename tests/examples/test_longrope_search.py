import importlib.util
from pathlib import Path

import pytest
import torch

from lengthwise.checkpoints import extend
from lengthwise.errors import UsageError
from lengthwise.subjects import LoadedModel, load
from lengthwise.testing import save_tiny_model
from lengthwise.text import load_corpus, sample_windows, tokenize
from lengthwise.yaml_text import read_yaml
from tests.architectures import tiny_model
from tests.tiny_folders import texts_in

_SPEC = importlib.util.spec_from_file_location(
    "longrope_search", Path(__file__).parents[2] / "examples" / "longrope_search.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)

BEST = (1.0, 1.0, 1.3, 1.9, 2.2, 3.1, 3.9, 4.4)
Factors = tuple[float, ...]


def distance(factors: Factors) -> float:
    return sum((a - b) ** 2 for a, b in zip(factors, BEST, strict=True))


def starts() -> dict[str, Factors]:
    return example.start_factors(10000.0, 16, 4096, 4.0)


def evolved(seed: int = 0, loss=distance, population: int = 24, iterations: int = 30) -> dict[Factors, float]:
    return example.search_factors(
        loss, starts(), largest=5.0, population=population, iterations=iterations, seed=seed
    )


def test_the_starts_are_other_methods_as_factors() -> None:
    found = starts()
    assert set(found) == set(example.STARTS)
    assert found["pi"] == pytest.approx((4.0,) * 8)
    assert found["ntk"] == pytest.approx([4 ** (k / 7) for k in range(8)], abs=1e-4)
    assert found["yarn"][0] == 1
    assert found["yarn"][-1] == pytest.approx(4)
    assert all(factors == tuple(sorted(factors)) for factors in found.values())


def test_it_comes_close_to_a_known_best_in_order_and_within_bounds() -> None:
    asked: list[Factors] = []

    def loss(factors: Factors) -> float:
        asked.append(factors)
        return distance(factors)

    found = evolved(loss=loss)
    best = next(iter(found))
    assert found[best] == min(found.values()) == distance(best)
    assert found[best] < 0.1 * min(distance(factors) for factors in starts().values())
    assert len(asked) == len(set(asked)) <= 24 + 30 * 32
    for factors in asked:
        assert factors == tuple(sorted(factors))
        assert factors[0] >= 1
        assert factors[-1] <= 5


def test_without_generations_it_is_the_best_of_the_starts() -> None:
    found = evolved(population=3, iterations=0)
    assert found == {factors: distance(factors) for factors in starts().values()}


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save_tiny_model(tmp_path / "model"))


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    return str(texts_in(tmp_path / "text", 2, 600))


@pytest.mark.parametrize("by_layer_type", [False, True])
def test_the_loss_that_is_reported_is_that_of_the_extended_model(model, text, tmp_path, by_layer_type):
    loaded = load(model)
    if by_layer_type:
        gemma = tiny_model("gemma3-text", layer_types=["sliding_attention", "full_attention"])
        loaded = LoadedModel(gemma, loaded.tokenizer, "gemma", "memory")
    loaded.tokenizer.bos_token = None
    documents = tokenize(load_corpus(text, split="all"), loaded.tokenizer)
    ids = torch.arange(60)[None]
    before = loaded.model(input_ids=ids).logits
    found = example.search(
        loaded, documents, tmp_path, factor=2.0, original_length=32, windows=2, population=4, iterations=1
    )
    torch.testing.assert_close(loaded.model(input_ids=ids).logits, before)
    assert found["loss"] <= min(found["start_losses"].values())
    section = found["extend"]
    rope = {"factor": section["factor"], "original_length": section["original_length"]}
    extend(loaded.model, section["method"], **rope, **section["options"])
    losses = []
    for window in sample_windows(documents, 65, count=2, seed=0):
        tokens = torch.tensor(window.ids.tolist())
        with torch.no_grad():
            logits = loaded.model(input_ids=tokens[None, :-1]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, tokens[1:]).item())
    assert found["loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_a_search_goes_on_and_ends_the_same(model: str, text: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ("--windows", "1", "--population", "4", "--iterations", "1")

    def run(factor: str = "2") -> dict[str, object]:
        words = (model, "--factor", factor, "--original-length", "32", "--text", text, "--split", "all")
        return example.main(*words, *sizes, "--out", str(out))

    whole = run()
    lines = (out / "losses.jsonl").read_text().splitlines(keepends=True)
    (out / "extend.yaml").unlink()
    (out / "losses.jsonl").write_text("".join(lines[:4]))
    assert run() == whole
    assert (out / "losses.jsonl").read_text() == "".join(lines)
    assert read_yaml(out / "extend.yaml") == {"extend": whole["extend"]}
    with pytest.raises(UsageError, match="another search"):
        run("3")


def test_what_cannot_be_searched(model: str, text: str, tmp_path: Path) -> None:
    loaded = load(model)
    documents = tokenize(load_corpus(text, split="all"), loaded.tokenizer)
    with pytest.raises(UsageError, match="leaves nothing to search"):
        example.search(loaded, documents, tmp_path, factor=1.0)
    extend(loaded.model, "pi", factor=2.0)
    with pytest.raises(UsageError, match="is extended already"):
        example.search(loaded, documents, tmp_path, factor=2.0)
