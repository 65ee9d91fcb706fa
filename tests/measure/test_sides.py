"""Both sides of a comparison read what they read alone: their BOS, their ids; and what rounding gives each."""

import itertools
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import normalizers

from lengthwise.checkpoints import NonFiniteLogits
from lengthwise.errors import UsageError
from lengthwise.measure import Perplexity, run
from lengthwise.measure.comparison import Comparison, run_in_turn
from lengthwise.measure.difference import paired_difference
from lengthwise.measure.distributions import apart
from lengthwise.measure.repeated_windows import KeptPredictions, token_pieces
from lengthwise.report.comparison_evidence import evidence
from lengthwise.report.comparison_verdict import verdict
from lengthwise.results import parse_results
from lengthwise.run_files import read_run
from lengthwise.settings import Subject
from lengthwise.subjects import LoadedModel, Read, Reading, Want
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus, load_corpus, tokenize
from tests.readings import in_memory
from tests.tiny_folders import texts_in, writing

TEXTS = [tiny_text(900, seed=seed) for seed in range(3)]
SPEC = Comparison(lengths=(128,), windows=3)


def tokenizer(before: str = "", after: str = "", normalizer: Any = None) -> Any:
    """A tokenizer with a BOS that it adds only if told to."""
    template = " ".join(part for part in (before, "$A", after) if part)
    made = writing(template, "<s>") if before or after else tiny_tokenizer(bos_token="<s>")
    made.backend_tokenizer.normalizer = normalizer
    return made


def sides(a: Any, b: Any) -> list[LoadedModel]:
    model = tiny_llama(max_position_embeddings=1024, bos_token_id=1)
    return [LoadedModel(model, each, name, "memory") for each, name in ((a, "A"), (b, "B"))]


@pytest.mark.parametrize(("first", "second"), [("", "<s>"), ("<s>", "")])
def test_a_bos_of_one_side_is_measured(first: str, second: str) -> None:
    """Against the losses of the model on the same windows, with and without BOS."""
    a, b = sides(tokenizer(first), tokenizer(second))
    found = run(SPEC, a, TEXTS, other=b)
    records = list(found.records.values())
    assert all(record["other_ids"] == 1 for record in records)
    seen = evidence(found.rows)
    assert seen.pattern != "equal"
    assert "begin a text otherwise" in " ".join(verdict(found.rows))
    assert found.notes[0].startswith("A: ")
    for setting in ("never", "always"):
        same = run(Comparison(lengths=(128,), windows=3, bos=setting), a, TEXTS, other=b)
        [difference] = same.select(metric="difference", position=None)
        assert difference.value == 0
    # The oracle: both readings of the windows, from whole logits.
    spec = SPEC.resolved(a, b)
    shifts = []
    for item in spec.items(a, (None, tokenize(as_corpus(TEXTS), a.tokenizer)), b):
        for window in item.content:
            losses = []
            for side in (a, b):
                ids = torch.from_numpy(window[:-1].copy())
                if side.tokenizer("a").input_ids[0] == side.tokenizer.bos_token_id:
                    ids[0] = side.tokenizer.bos_token_id
                logits = side.model(ids[None]).logits[0].detach()
                losses.append(torch.nn.functional.cross_entropy(logits, torch.from_numpy(window[1:])).item())
            shifts.append(losses[1] - losses[0])
    [shift] = found.select(metric="shift", position=None)
    assert shift.value == pytest.approx(np.mean(shifts), abs=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        tokenizer(normalizer=normalizers.Lowercase()),
        tokenizer(normalizer=normalizers.Replace(" ", "_")),
        tokenizer(before="<s> <s>"),
        tokenizer(before="<s>", after="<|end|>"),
        tokenizer(before="<|end|>"),
    ],
    ids=["lowercase", "spaces", "two BOS", "EOS after", "EOS before"],
)
def test_other_ids_of_the_raw_text_are_refused_in_both_directions(other: Any) -> None:
    texts = [text.title() for text in TEXTS]
    for pair in ((tokenizer(), other), (other, tokenizer())):
        with pytest.raises(UsageError, match=r"other (ids|special tokens)"):
            run(SPEC, sides(*pair)[0], texts, other=sides(*pair)[1])


@pytest.mark.parametrize("place", ["late", "in a later document", "in one of many", "in the last"])
@pytest.mark.parametrize("tokens", [False, True], ids=["text", "tokens"])
def test_other_ids_are_found_in_every_document_that_gives_a_window(place: str, tokens: bool) -> None:
    """And not where no window is from."""
    texts = [tiny_text(900, seed=seed) for seed in range(12)]
    if place == "late":
        texts = [
            text[:20_500] + text[20_500:].title() for text in (tiny_text(8000, seed=s) for s in range(4))
        ]
    else:
        changed = {"in a later document": range(8, 12), "in one of many": [5], "in the last": [11]}[place]
        texts = [text.title() if index in changed else text for index, text in enumerate(texts)]
    spec = Comparison(lengths=(128,), windows=12)
    lower = normalizers.Replace("T", "U") if tokens else normalizers.Lowercase()
    for one, other in itertools.permutations((tokenizer(), tokenizer(normalizer=lower))):
        given = tokenize(as_corpus(texts), tokenizer()) if tokens else texts
        if tokens:
            # As tokens of no tokenizer that is known.
            given = replace(given, tokenizer_fingerprint="")
        with pytest.raises(UsageError, match="other ids"):
            run(spec, sides(one, one)[0], given, other=sides(other, other)[1])
    short = [*(text.lower() for text in texts), "The King And The Queen."]
    a, b = sides(tokenizer(), tokenizer(normalizer=normalizers.Lowercase()))
    assert run(spec, a, short, other=b).records


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (3, 0), (5, 1)])
def test_software_that_makes_other_ids_of_any_window_is_refused(place: tuple[int, int]) -> None:
    texts = [tiny_text(900, seed=seed) for seed in range(6)]
    a, b = sides(tokenizer(), tokenizer())
    spec = Comparison(lengths=(128, 256), windows=6).resolved(a, b)
    items = spec.items(a, (None, tokenize(as_corpus(texts), a.tokenizer)), b)
    spec.check_models(a, b, items)
    index, half = place
    longest = [item for item in items if item.longest == 256]
    wrong = a.tokenizer.decode(longest[index].content[half, 100:110])
    plain = b.ids_of
    b.ids_of = lambda text: plain(text.replace(wrong, "") if wrong in text else text)
    with pytest.raises(UsageError, match="other ids"):
        spec.check_models(a, b, items)


@pytest.mark.parametrize("broken", ["A", "B"])
def test_the_side_whose_logits_are_no_numbers_is_named(broken: str) -> None:
    models = sides(tokenizer(), tokenizer())
    for side in models:
        side.model = tiny_llama(max_position_embeddings=1024, bos_token_id=1, tie_word_embeddings=False)
        if side.name == broken:
            torch.nn.init.constant_(side.model.lm_head.weight, float("nan"))
    a, b = models
    with pytest.raises(NonFiniteLogits) as caught:
        run(SPEC, a, TEXTS, other=b)
    assert caught.value.model == f"{broken} ({broken})"
    assert str(caught.value.text).startswith("tokens ")
    # What likeliest tokens alone say, as of kept predictions.
    labels = np.arange(3)
    pair = [Read(losses=torch.full((3,), float("nan") if name == broken else 1.0)) for name in "AB"]
    with pytest.raises(NonFiniteLogits) as caught:
        apart(pair[0], pair[1], labels)
    assert caught.value.view == "AB".index(broken)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.05, 0.3, 0.6])
def test_the_floor_is_that_of_sound_pairs(dtype: torch.dtype, scale: float) -> None:
    """In 16 bits rounding moves a prediction by as much as another attention kernel, within a factor of two."""
    model = tiny_llama(max_position_embeddings=1024, hidden_size=64, initializer_range=scale).to(dtype)
    a, b = (in_memory(model, name) for name in "ab")
    window = np.random.default_rng(0).integers(320, size=513)
    reading = Reading(tokens=window[:-1], labels=window[1:], want=Want.ROWS)
    [read] = a.read([reading])
    [(plain, rounded)], again = a.again(reading, read), a.again(reading, read)

    def distances(one: Read, two: Read) -> Any:
        (own, other, *_), _ = apart(one, two, window[1 : len(one.rows) + 1])
        return np.abs(other - own)

    found, same = (distances(*pair) for pair in ((plain, rounded), again[0]))
    assert (found == same).all()
    assert len(found) == 256
    model.set_attn_implementation("eager")
    [other] = b.read([reading])
    model.set_attn_implementation("sdpa")
    assert found.mean() / 2 <= distances(read, other).mean() <= 1.3 * found.mean()


def test_the_floor_of_float64_is_none() -> None:
    a, b = (in_memory(tiny_llama(max_position_embeddings=1024).double(), name) for name in "ab")
    found = run(SPEC, a, TEXTS, other=b)
    for name in ("floor_a", "floor_b"):
        [floor] = found.select(metric=name)
        assert floor.value < 1e-12


def test_other_chat_templates_are_noted() -> None:
    one, other = tokenizer(), tokenizer()
    other.chat_template = "{{ messages }}"
    for second, noted in ((one, False), (other, True)):
        notes = run(SPEC, sides(one, one)[0], TEXTS, other=sides(second, second)[1]).notes
        assert any("chat templates differ" in note for note in notes) is noted


def named(a: str, b: str, text: str) -> tuple[Comparison, list[Subject]]:
    spec = Comparison(lengths=(128,), windows=3, side_b={"model": b})
    return spec, [Subject(model=each, text=text) for each in (a, b)]


@pytest.mark.parametrize(
    "compared",
    [
        lambda a, b, text: run(named(a, b, text)[0], named(a, b, text)[1][0]),
        lambda a, b, text: run_in_turn(named(a, b, text)[0], *named(a, b, text)[1]),
        lambda a, b, text: run(SPEC, a, load_corpus(text), other=b),
    ],
    ids=["at once", "in turn", "a corpus"],
)
@pytest.mark.parametrize(("name", "refused"), [("same", False), ("other", True)])
def test_chats_of_which_two_templates_make_other_texts_are_refused(compared, name, refused, tmp_path):
    """One text from two templates is compared."""
    turn = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    templates = {"one": turn, "same": f"{{# The same. #}}{turn}", "other": turn.replace(": ", " says ")}
    for own in ("one", name):
        made = tiny_tokenizer()
        made.chat_template = templates[own]
        made.save_pretrained(save_tiny_model(tmp_path / own, max_position_embeddings=1024))
    chats = [json.dumps({"text": [{"role": "user", "content": text}]}) for text in TEXTS]
    (tmp_path / "chats.jsonl").write_text("\n".join(chats))
    for a, b in itertools.permutations(str(tmp_path / each) for each in ("one", name)):
        with pytest.raises(UsageError) if refused else nullcontext():
            found = compared(a, b, str(tmp_path / "chats.jsonl"))
            assert any("Both sides read the same text" in note for note in found.notes)


def test_pieces_make_the_text() -> None:
    made, text = tiny_tokenizer(), "the king — café 猫 sees"
    assert "".join(token_pieces(made, made(text).input_ids)) == text


def test_results_pass_through_json(model: LoadedModel, documents: Any, tmp_path: Path) -> None:
    """In memory, from a file and read again by --resume they are the same, records included."""
    spec = Perplexity(lengths=(64, 128), windows=3)
    direct = run(spec, model, documents)
    assert parse_results(json.loads(direct.to_json())) == direct
    kept = run(spec, model, documents, out=tmp_path / "run")
    again = run(spec, model, documents, out=tmp_path / "run", resume=True)
    assert again.records == kept.records == direct.records
    for one in (direct, kept, again, read_run(tmp_path / "run")):
        for other in (direct, kept, again, read_run(tmp_path / "run")):
            assert all(row.value == 0 for row in paired_difference(one, other))


class StoppedError(Exception):
    """A kill."""


@pytest.mark.parametrize("stopped", ["a", "b", "end"])
def test_sequential_goes_on_after_any_stop(stopped, tmp_path, monkeypatch):
    """Stopped within a side, between the sides, and before the results: the rest is read, and all is the same."""
    text = str(texts_in(tmp_path / "text", 3, 900))
    subjects = [
        Subject(model=str(save_tiny_model(tmp_path / name, seed=seed)), text=text, split="all")
        for seed, name in enumerate(("one", "two"))
    ]
    spec = Comparison(lengths=(128,), windows=2, side_b={"model": subjects[1].model})
    whole = run_in_turn(spec, *subjects, out=tmp_path / "whole")
    place = tmp_path / "run"
    scored: list[str] = []
    score = KeptPredictions.score

    def stops(self: Any, model: Any, items: Any, other: Any) -> Any:
        if model.name.endswith("two" if stopped == "b" else "one") and scored:
            raise StoppedError
        scored.append(model.name)
        yield from score(self, model, items, other)

    def fails(*_: Any, **__: Any) -> Any:
        raise StoppedError

    with monkeypatch.context() as patch:
        if stopped == "end":
            patch.setattr("lengthwise.measure.comparison.comparison_of_kept", fails)
        else:
            patch.setattr(KeptPredictions, "score", stops)
        with pytest.raises(StoppedError):
            run_in_turn(spec, *subjects, out=place)
    again = run_in_turn(spec, *subjects, out=place, resume=True)
    assert again.rows == whole.rows
    assert again.notes == whole.notes


@pytest.mark.parametrize("in_turn", [True, False])
def test_what_replaces_a_sequential_run_reads_both_sides_again(in_turn, tmp_path):
    text = str(texts_in(tmp_path / "text", 3, 900))
    subjects = [
        Subject(model=str(save_tiny_model(tmp_path / name, seed=seed)), text=text, split="all")
        for seed, name in enumerate(("one", "two"))
    ]
    spec = Comparison(lengths=(128,), windows=2, side_b={"model": subjects[1].model})
    place, again = tmp_path / "run", {"out": tmp_path / "run", "overwrite": True}
    run_in_turn(spec, *subjects, out=place)
    shutil.rmtree(tmp_path / "two")
    save_tiny_model(tmp_path / "two", seed=2)
    found = run_in_turn(spec, *subjects, **again) if in_turn else run(spec, subjects[0], **again)
    assert (place / "a").exists() is (place / "b").exists() is in_turn
    fresh = run_in_turn(spec, *subjects) if in_turn else run(spec, subjects[0])
    assert found.rows == fresh.rows
