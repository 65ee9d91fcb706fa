from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.models import load
from lengthwise.text import TokenDocument, load_corpus, tokenize
from lengthwise.training import far_text, plan, train, training_plan
from lengthwise.training.far_text import far_divergence, rank_documents, selection_note
from lengthwise.training.recipe import Recipe
from lengthwise.training.recipe_trainer import training_documents

Make = Callable[..., Recipe]
VOCABULARY = 50


@pytest.mark.parametrize("bos_id", [None, 7])
@pytest.mark.parametrize("length", [32, 35, 8])
def test_the_divergence_equals_the_plain_formula(shared: Path, length: int, bos_id: int | None) -> None:
    model = load(str(shared / "model"))
    ids = np.random.default_rng(length).integers(320, size=length)
    step = length // 4 // 2

    def log_p(tokens: np.ndarray) -> torch.Tensor:
        tokens = tokens.copy()
        if bos_id is not None:
            tokens[0] = bos_id
        with torch.no_grad():
            return model.model(input_ids=torch.from_numpy(tokens)[None]).logits[0].double().log_softmax(-1)

    long = log_p(ids)
    terms, gains = [], []
    first = length - length // 2 // step * step
    for end in range(first + step, length + 1, step):
        short = log_p(ids[end - length // 4 : end])
        for row in range(end - step, end):
            p, q = long[row], short[row - end]
            terms.append((p.exp() * (p - q)).sum().item())
            gains += [(p - q)[ids[row + 1]].item()] if row + 1 < length else []
    assert first <= -(-length // 2) + step
    kl, gain = far_divergence(model, ids, bos_id)
    assert kl == pytest.approx(np.mean(terms), rel=1e-4)
    assert gain == pytest.approx(np.mean(gains), rel=1e-4, abs=1e-5)


class Copies:
    """Predicts, with 0.9, the token that followed the last occurrence of the current one in its context."""

    name, vocab_size, device = "copies", VOCABULARY, torch.device("cpu")
    head = SimpleNamespace(logits=lambda rows: rows)

    def hidden_states(self, ids: torch.Tensor) -> torch.Tensor:
        logits = torch.full((*ids.shape, VOCABULARY), 0.1 / VOCABULARY).log()
        for row, tokens in enumerate(ids.tolist()):
            after: dict[int, int] = {}
            for place, token in enumerate(tokens):
                if token in after:
                    logits[row, place, after[token]] = float(np.log(0.9))
                if place + 1 < len(tokens):
                    after[token] = tokens[place + 1]
        return logits


def documents() -> list[TokenDocument]:
    """Passages that come again after 40 tokens (`far`), after 5 (`near`), and never."""
    rng = np.random.default_rng(0)
    far = np.tile(rng.permutation(VOCABULARY)[:40], 8)
    near = np.concatenate([np.tile(rng.permutation(VOCABULARY)[:5], 8) for _ in range(8)])
    return [
        TokenDocument(name, ids.astype(np.int32))
        for name, ids in (("near", near), ("far", far), ("shuffled", rng.permutation(near)))
    ]


def test_documents_with_far_repeats_come_first() -> None:
    ranked = rank_documents(Copies(), documents(), length=96, bos_id=None)  # pyright: ignore[reportArgumentType]
    assert ranked[0].id == "far"
    assert ranked[0].kl > 10 * ranked[-1].kl
    assert [each.windows for each in ranked] == [2, 2, 2]
    assert ranked[0].gain > 1


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_ranks_far_repeats_first(monkeypatch: pytest.MonkeyPatch) -> None:
    # The cache of this machine, not the one of these tests.
    monkeypatch.undo()
    model = load("smollm2-135m", dtype="bfloat16")
    rng = np.random.default_rng(0)
    text = tokenize(load_corpus("books", split="test"), model.tokenizer)[0].ids
    shuffled = [rng.permutation(text[start : start + 512]) for start in (0, 5000)]
    repeats = [np.tile(passage[:100], 6)[:512] for passage in shuffled]
    made_up = [
        TokenDocument(f"{name}{index}", ids)
        for name, each in (("shuffled", shuffled), ("repeats", repeats))
        for index, ids in enumerate(each)
    ]
    ranked = rank_documents(model, made_up, length=256, bos_id=None)
    assert {each.id for each in ranked[:2]} == {"repeats0", "repeats1"}
    assert ranked[1].kl > 2 * ranked[2].kl
    assert ranked[1].gain > 1 > ranked[2].gain


@pytest.mark.real
def test_a_small_model_is_moved_most_by_stitched_text_and_gains_nothing_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    model = load("tiny-books")
    books = tokenize(load_corpus("books", split="test"), model.tokenizer)
    rng = np.random.default_rng(0)
    made_up = []
    for book in books:
        pieces = [
            books[int(other)].ids[start : start + 16]
            for other, start in zip(rng.integers(7, size=48), rng.integers(5000, size=48), strict=True)
        ]
        made_up.append(TokenDocument("stitched", np.concatenate(pieces)))
        made_up.append(TokenDocument("whole", book.ids[2000:2768]))
    ranked = rank_documents(model, made_up, length=128, bos_id=None)
    assert [each.id for each in ranked] == ["stitched"] * 7 + ["whole"] * 7
    stitched, whole = (np.mean([each.gain for each in half]) for half in (ranked[:7], ranked[7:]))
    assert stitched < whole


def test_a_selection_that_gains_less_is_told() -> None:
    assert selection_note({"gain_kept": 0.1, "gain_left": 0.2})
    assert not selection_note({"gain_kept": 0.2, "gain_left": 0.1})
    assert not selection_note({"gain_kept": 0.2, "gain_left": None})
    assert not selection_note(None)


def far(make: Make, recipe_settings: dict[str, Any], **changes: Any) -> Recipe:
    return make(data=recipe_settings["data"] | {"select": "far"} | changes)


def test_a_run_trains_on_the_top_share_and_keeps_its_ranking(
    make: Make, recipe_settings: dict[str, Any], tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = far(make, recipe_settings)
    results = train(recipe, tmp_path / "run")
    ranking = json.loads((tmp_path / "run" / far_text.RANKING).read_text())["ranking"]
    assert [each["kl"] for each in ranking] == sorted((each["kl"] for each in ranking), reverse=True)
    assert len(ranking) == 4
    selected = results.provenance["selected"]
    total = sum(each["tokens"] for each in ranking)
    assert selected["documents"] in (2, 3)
    assert selected["tokens"] == sum(each["tokens"] for each in ranking[: selected["documents"]]) >= total / 2
    assert selected["least_kl"] == ranking[selected["documents"] - 1]["kl"]
    assert any("far" in note for note in results.notes)

    loaded = load(str(shared / "model"), device="cpu")
    monkeypatch.setattr(far_text, "rank_documents", lambda *_, **__: pytest.fail("measured again"))
    chosen, facts = training_documents(recipe, loaded)
    assert {each.id for each in chosen} == {each["id"] for each in ranking[: selected["documents"]]}
    # Without the cache a resumed run reads the ranking in its own folder.
    shutil.rmtree(shared / "cache" / "far_text")
    _, again = training_documents(recipe, loaded, run=tmp_path / "run")
    assert again["selected"] == facts["selected"] == selected
    with pytest.raises(pytest.fail.Exception):
        training_documents(make(length=17, data=recipe_settings["data"] | {"select": "far"}), loaded)


def test_the_whole_share_and_packing(make: Make, recipe_settings: dict[str, Any], shared: Path) -> None:
    loaded = load(str(shared / "model"), device="cpu")
    every, _ = training_documents(make(), loaded)
    chosen, facts = training_documents(far(make, recipe_settings, select_share=1.0), loaded)
    assert [each.id for each in chosen] == [each.id for each in every]
    assert not facts["left_out"]
    [packed], facts = training_documents(far(make, recipe_settings, select_share=0.01, packing=True), loaded)
    assert len(packed.ids) == facts["selected"]["tokens"] + 1


def test_the_plan_states_its_cost(
    make: Make, recipe_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_plan, "seconds_at_least", lambda work, **_: (work, ""))
    plain, ranked = plan(make()), plan(far(make, recipe_settings))
    assert (plain.ranking_tokens, ranked.ranking_tokens) == (0, 4 * 2 * 2 * 16)
    # A forward pass is two operations a weight and token.
    extra = (ranked.cost.seconds_at_least or 0) - (plain.cost.seconds_at_least or 0)
    assert extra == ranked.ranking_tokens * 2 * (ranked.cost.parameters or 0)


@pytest.mark.parametrize(
    "changes", [{"select_share": 0.0}, {"select_share": 1.5}, {"select_share": float("nan")}]
)
def test_refused_shares(make: Make, recipe_settings: dict[str, Any], changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"data\.select_share"):
        far(make, recipe_settings, **changes)


def test_windows_that_are_too_short(make: Make, recipe_settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="length = 4"):
        make(data=recipe_settings["data"] | {"select": "far"}, length=4)
