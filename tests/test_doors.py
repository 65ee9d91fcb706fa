"""The public doors in Python: what would not be used is refused, and a run folder knows what it is of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise import (
    LongPpl,
    Perplexity,
    Subject,
    UsageError,
    load_corpus,
    run,
    tokenize,
)
from lengthwise.evaluation import Evaluation
from lengthwise.measure import MEASUREMENTS
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import Corpus

T, U = ([tiny_text(300, seed=10 * side + seed) for seed in range(2)] for side in (0, 1))
SPEC = Perplexity(lengths=(16,), windows=2)
KEYS = LongPpl(max_length=48, short=16, windows=2, alpha=0.0, beta=-20.0)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `m`, `n`; texts `t`, `u`."""
    folder = tmp_path_factory.mktemp("doors")
    save_tiny_model(folder / "m")
    save_tiny_model(folder / "n", seed=1)
    for name, texts in (("t", T), ("u", U)):
        (folder / name).mkdir()
        for index, text in enumerate(texts):
            (folder / name / f"{index}.txt").write_text(text)
    return folder


def numbers(found: Results) -> list[Any]:
    return [row.value for row in found.rows]


def measured(here: Path, measurement: Any = SPEC, name: str = "m", text: Any = T, **given: Any) -> list[Any]:
    return numbers(run(measurement, str(here / name), text, **given))


TOKENS = tokenize(T, tiny_tokenizer())
CORPUS = Corpus.of("c", {"a": T[0]}, split="train", split_rule="given")
READS_NO_TEXT = Evaluation(tasks=("longbench_qasper_e",), max_length=500)
# What would not be used: the call, and the word that the reason has.
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a log beside a run folder": (lambda at: measured(at, out=at / "x", log=SampleLog()), "log"),
    "resume with a log": (lambda at: measured(at, log=SampleLog(), resume=True), "resume"),
    "overwrite with a log": (lambda at: measured(at, log=SampleLog(), overwrite=True), "overwrite"),
    "two texts": (lambda at: run(SPEC, Subject(model=str(at / "m"), text="u"), T), "text = 'u'"),
    "a split of a corpus": (lambda at: run(SPEC, Subject(model=str(at / "m"), split="all"), CORPUS), "split"),
    "a split of a list": (lambda at: run(SPEC, Subject(model=str(at / "m"), split="all"), T), "split"),
    "a text for questions that need none": (lambda at: measured(at, READS_NO_TEXT), "a text is given"),
    "tokens for a measurement of characters": (lambda at: measured(at, KEYS, text=TOKENS), "characters"),
    "tokens of another tokenizer": (
        lambda at: measured(at, text=tokenize(T, tiny_tokenizer(vocab_size=300))),
        "another tokenizer",
    ),
    "two evaluators": (
        lambda at: measured(at, KEYS.model_copy(update={"evaluator": "n"}), other=str(at / "n")),
        "name one",
    ),
    "a field of a text without columns": (lambda at: load_corpus(f"{at}/t", text_field="body"), "text_field"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_be_used_is_refused(case: str, here: Path):
    call, word = REFUSED[case]
    with pytest.raises(UsageError) as refused:
        call(here)
    assert word in str(refused.value)


@pytest.mark.parametrize(
    "kind", [name for name, each in MEASUREMENTS.items() if each.measurement.about.second is None]
)
def test_a_second_model_where_there_is_none(kind: str, here: Path):
    settings = {"eval": {"tasks": ("needle_single",)}}.get(kind, {})
    with pytest.raises(UsageError, match="second model"):
        measured(here, MEASUREMENTS[kind].measurement(**settings), other=str(here / "n"))


def test_the_run_folder_records_the_text_that_was_read(here: Path):
    """And continues with no other one, whatever it is called."""
    model, spec = str(here / "m"), Subject(model=str(here / "m"))
    found = run(SPEC, spec, str(here / "t"), out=here / "named")
    assert found.config["text"] == str(here / "t")
    with pytest.raises(UsageError, match="text"):
        run(SPEC, Subject(model=model, text=str(here / "u")), out=here / "named", resume=True)
    corpus = run(SPEC, model, CORPUS, out=here / "corpus")
    assert (corpus.config["text"], corpus.config["split"]) == ("c", "train")

    listed = run(SPEC, model, T, out=here / "listed")
    assert numbers(run(SPEC, model, T, out=here / "listed", resume=True)) == numbers(listed)
    with pytest.raises(UsageError, match="text"):
        run(SPEC, model, U, out=here / "listed", resume=True)


def test_a_finished_run_is_read_for_the_model_and_the_second_model_that_it_is_of(here: Path):
    tokenizer = tiny_tokenizer()
    one, two = ((tiny_llama(seed=seed), tokenizer) for seed in (0, 1))
    run(SPEC, one, T, out=here / "object")
    run(SPEC, one, T, out=here / "object", resume=True)
    with pytest.raises(UsageError, match="weights"):
        run(SPEC, two, T, out=here / "object", resume=True)

    run(KEYS, one, T, other=two, out=here / "other")
    with pytest.raises(UsageError, match="second model"):
        run(KEYS, one, T, other=(tiny_llama(seed=2), tokenizer), out=here / "other", resume=True)


def test_a_finished_run_of_chats_is_read_for_the_chats_that_it_is_of(tmp_path: Path):
    """As they are given, whatever a template makes of them."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    save_tiny_model(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    for name, texts in (("t", T), ("u", U)):
        chats = [json.dumps({"messages": [{"role": "user", "content": each}]}) for each in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(chats))
    one, other = (load_corpus(tmp_path / f"{name}.jsonl", text_field="messages") for name in "tu")
    model = str(tmp_path / "m")
    found = run(SPEC, model, one, out=tmp_path / "run")
    assert numbers(run(SPEC, model, one, out=tmp_path / "run", resume=True)) == numbers(found)
    with pytest.raises(UsageError, match="text"):
        run(SPEC, model, other, out=tmp_path / "run", resume=True)
    by_name = Subject(model=model, text=str(tmp_path / "t.jsonl"), text_field="messages")
    run(SPEC, by_name, out=tmp_path / "named")
    assert numbers(run(SPEC, by_name, out=tmp_path / "named", resume=True)) == numbers(found)
