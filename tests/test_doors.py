"""Every public door in Python: what is passed is used, or it is refused with a reason."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lengthwise
from lengthwise import (
    LongPpl,
    Objective,
    PairCollator,
    PairGeometry,
    Perplexity,
    Subject,
    UsageError,
    View,
    WindowDataset,
    load_corpus,
    run,
    tokenize,
)
from lengthwise.alignment import Normalizers
from lengthwise.evaluation import Evaluation
from lengthwise.measure import MEASUREMENTS
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise.testing import save_tiny_model, tiny_llama, tiny_text, tiny_tokenizer
from lengthwise.text import Corpus
from lengthwise.training import Positions
from tests.alignment.problems import problem

T, U = ([tiny_text(300, seed=10 * side + seed) for seed in range(2)] for side in (0, 1))
SPEC = Perplexity(lengths=(16,), windows=2)
KEYS = LongPpl(max_length=48, short=16, windows=2, alpha=0.0, beta=-20.0)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `m`, `n`; texts `t`, `u`; a table with the columns `text` and `other`."""
    folder = tmp_path_factory.mktemp("doors")
    save_tiny_model(folder / "m")
    save_tiny_model(folder / "n", seed=1)
    for name, texts in (("t", T), ("u", U)):
        (folder / name).mkdir()
        for index, text in enumerate(texts):
            (folder / name / f"{index}.txt").write_text(text)
    (folder / "table.jsonl").write_text('{"text": "one", "other": "two"}\n' * 2)
    (folder / "holes.jsonl").write_text('{"text": "one"}\n{"other": "two"}\n')
    (folder / "rows").mkdir()
    (folder / "rows" / "train.jsonl").write_text('{"text": "one two three"}\n' * 2)
    (folder / "old.txt").write_bytes(b"one \xf1")
    return folder


def numbers(found: Results) -> list[Any]:
    return [row.value for row in found.rows]


def measured(here: Path, measurement: Any = SPEC, name: str = "m", text: Any = T, **given: Any) -> list[Any]:
    return numbers(run(measurement, str(here / name), text, **given))


def losses(**changes: Any) -> Callable[[Path], float]:
    """The loss of one batch, with one argument of `alignment_loss` changed."""

    def value(here: Path) -> float:
        data = problem(bias=True)
        given = {
            "hidden_long": data.hidden_long,
            "hidden_short": data.hidden_short,
            "head_weight": data.head_weight,
            "labels_long": data.labels_long,
            "labels_short": data.labels_short,
            "geometry": data.geometry,
            "objective": Objective(alpha=0.1),
        }
        made = {name: each(data) if callable(each) else each for name, each in changes.items()}
        return lengthwise.alignment_loss(**(given | made)).loss.item()

    return value


def items(*, seed: int = 0, size: int = 4, step: int = 0, **view: Any) -> list[Any]:
    documents = tokenize(T, tiny_tokenizer())
    data = WindowDataset(
        documents, View(16, **({"offsets": (1, 7)} | view)), batch_size=size, steps=9, seed=seed
    )
    return [data[size * step + each]["input_ids"].tolist() for each in range(size)]


def batch(view: View | None = None, **given: Any) -> Any:
    rows = [{"input_ids": list(range(start, start + 31))} for start in (5, 60)]
    made = PairCollator(view or View(16, offsets=(1, 15)), **given)(rows)
    return made["geometry"], made["input_ids"].tolist(), made.get("position_ids", torch.empty(0)).tolist()


def drawn(**given: Any) -> Any:
    geometry, positions = View(**({"length": 16} | given)).draw(0, [3])
    return geometry, None if positions is None else positions.tolist()


def repeats(**options: Any) -> Any:
    text = np.stack([np.arange(64)] * 2)
    view = View(64, "repeat", options, positions=SKIP)
    return view.windows(text, view.draw(0, [1]), 0).tolist()


def kept(here: Path, place: str, **given: Any) -> list[Any]:
    return numbers(run(SPEC, Subject(model=str(here / "m"), text=str(here / "t")), out=here / place, **given))


def logged(here: Path, log: SampleLog | None) -> int:
    run(SPEC, str(here / "m"), T, log=log)
    return len(log or ())


SKIP = Positions(sampler="skip", target_length=512)
NARROW = PairGeometry(12, 1)
Value = Callable[[Path], Any]
# door, parameter: its value with two arguments that differ in this parameter alone.
USED: dict[tuple[str, str], tuple[Value, Value]] = {
    ("run", "measurement"): (measured, lambda at: measured(at, Perplexity(lengths=(32,), windows=2))),
    ("run", "subject"): (measured, lambda at: measured(at, name="n")),
    ("run", "text"): (measured, lambda at: measured(at, text=U)),
    ("run", "other"): (lambda at: measured(at, KEYS), lambda at: measured(at, KEYS, other=str(at / "n"))),
    ("run", "out"): (
        lambda at: (at / "new").exists(),
        lambda at: (kept(at, "new"), (at / "new").exists())[1],
    ),
    ("run", "resume"): (lambda at: refusal(kept, at, "a"), lambda at: refusal(kept, at, "a", resume=True)),
    ("run", "overwrite"): (
        lambda at: refusal(kept, at, "b"),
        lambda at: refusal(kept, at, "b", overwrite=True),
    ),
    ("run", "log"): (lambda at: logged(at, None), lambda at: logged(at, SampleLog())),
    ("load_corpus", "spec"): (lambda at: load_corpus(f"{at}/t"), lambda at: load_corpus(f"{at}/u")),
    ("load_corpus", "split"): (
        lambda at: load_corpus(f"{at}/t"),
        lambda at: load_corpus(f"{at}/t", split="test"),
    ),
    ("load_corpus", "encoding"): (
        lambda at: load_corpus(f"{at}/old.txt", encoding="latin-1"),
        lambda at: load_corpus(f"{at}/old.txt", encoding="cp1250"),
    ),
    ("load_corpus", "skip_unreadable"): (
        lambda at: loaded(f"{at}/holes.jsonl"),
        lambda at: loaded(f"{at}/holes.jsonl", skip_unreadable=True),
    ),
    ("load_corpus", "text_tokens"): (
        lambda at: load_corpus(f"hf://{at}/rows", split="all"),
        lambda at: load_corpus(f"hf://{at}/rows", split="all", text_tokens=1),
    ),
    ("load_corpus", "text_field"): (
        lambda at: load_corpus(f"{at}/table.jsonl"),
        lambda at: load_corpus(f"{at}/table.jsonl", text_field="other"),
    ),
    ("tokenize", "text"): (lambda at: ids(T, tiny_tokenizer()), lambda at: ids(U, tiny_tokenizer())),
    ("tokenize", "tokenizer"): (
        lambda at: ids(T, tiny_tokenizer()),
        lambda at: ids(T, tiny_tokenizer(vocab_size=300)),
    ),
    ("tokenize", "cache"): (lambda at: cached(at, cache=False), lambda at: cached(at, cache=True)),
    ("View", "length"): (lambda at: drawn(), lambda at: drawn(length=17)),
    ("View", "name"): (lambda at: drawn(), lambda at: drawn(name="cyclic")),
    ("View", "options"): (lambda at: repeats(share=1.0), lambda at: repeats(share=0.0)),
    ("View", "offsets"): (lambda at: drawn(), lambda at: drawn(offsets=(1, 7))),
    ("View", "positions"): (lambda at: drawn(), lambda at: drawn(positions=SKIP)),
    ("View", "min_context"): (lambda at: drawn(), lambda at: drawn(min_context=0)),
    ("PairCollator", "view"): (
        lambda at: batch(),
        lambda at: batch(View(16, offsets=(1, 15), min_context=0)),
    ),
    ("PairCollator", "bos_id"): (lambda at: batch(), lambda at: batch(bos_id=1)),
    ("PairCollator", "seed"): (lambda at: batch(), lambda at: batch(seed=2)),
    ("WindowDataset", "documents"): (lambda at: items(), lambda at: of_others()),
    ("WindowDataset", "view"): (lambda at: items(), lambda at: items(offsets=(8, 15))),
    ("WindowDataset", "batch_size"): (lambda at: items(size=4, step=1), lambda at: items(size=2, step=1)),
    ("WindowDataset", "steps"): (lambda at: length(steps=2), lambda at: length(steps=3)),
    ("WindowDataset", "seed"): (lambda at: items(), lambda at: items(seed=1)),
    **{
        ("alignment_loss", name): (losses(), losses(**{name: changed}))
        for name, changed in {
            "hidden_long": lambda data: data.hidden_long.flip(0),
            "hidden_short": lambda data: data.hidden_short.flip(0),
            "head_weight": lambda data: data.head_weight.flip(0),
            "labels_long": lambda data: data.labels_long.flip(0),
            "labels_short": lambda data: data.labels_short.flip(0),
            "geometry": NARROW,
            "objective": Objective(alpha=0.2),
            "head_bias": lambda data: data.head_bias,
            "soft_cap": 2.0,
            "logit_scale": 0.5,
            "normalizers": Normalizers(100, 100, 100),
        }.items()
    },
}
NO_NUMBER = {("alignment_loss", "chunk_size"), ("alignment_loss", "accumulate_dtype")}
"""How much is in memory at once, and in which dtype sums are kept: rounding alone."""


def loaded(place: str, **given: Any) -> Any:
    """The corpus, or None where it is refused."""
    try:
        return load_corpus(place, **given)
    except UsageError:
        return None


def refusal(call: Callable[..., Any], at: Path, place: str, **given: Any) -> bool:
    """Whether a run into a folder with a run is refused."""
    if not (at / place).exists():
        call(at, place)
    try:
        call(at, place, **given)
    except UsageError:
        return True
    return False


def ids(text: Any, tokenizer: Any) -> list[Any]:
    return [document.ids.tolist() for document in tokenize(text, tokenizer)]


def cached(at: Path, *, cache: bool) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENGTHWISE_CACHE", str(at / f"cache-{cache}"))
        tokenize(load_corpus(f"{at}/t"), tiny_tokenizer(), cache=cache)
    return (at / f"cache-{cache}").exists()


def of_others() -> list[Any]:
    data = WindowDataset(tokenize(U, tiny_tokenizer()), View(16, offsets=(1, 7)), batch_size=4, steps=9)
    return [data[each]["input_ids"].tolist() for each in range(4)]


def length(*, steps: int) -> int:
    return len(WindowDataset(tokenize(T, tiny_tokenizer()), View(16), batch_size=4, steps=steps))


def test_every_parameter_of_a_door_is_in_the_table():
    for door in {name for name, _ in USED}:
        parameters = {(door, name) for name in inspect.signature(getattr(lengthwise, door)).parameters}
        assert parameters == {each for each in {*USED, *NO_NUMBER} if each[0] == door}


@pytest.mark.parametrize("which", USED, ids=".".join)
def test_what_is_passed_is_used(which: tuple[str, str], here: Path):
    one, two = (value(here) for value in USED[which])
    assert one != two


TOKENS = tokenize(T, tiny_tokenizer())
CORPUS = Corpus.of("c", {"a": T[0]}, split="train", split_rule="given")
READS_NO_TEXT = Evaluation(tasks=("longbench_qasper_e",), max_length=500)
# What would not be used: the call, and the word that the reason has.
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a log beside a run folder": (lambda at: measured(at, out=at / "x", log=SampleLog()), "log"),
    "resume with a log": (lambda at: measured(at, log=SampleLog(), resume=True), "resume"),
    "overwrite with a log": (lambda at: measured(at, log=SampleLog(), overwrite=True), "overwrite"),
    "resume without a folder": (lambda at: measured(at, resume=True), "--out"),
    "overwrite without a folder": (lambda at: measured(at, overwrite=True), "--out"),
    "two texts": (lambda at: run(SPEC, Subject(model=str(at / "m"), text="u"), T), "text = 'u'"),
    "a split of a corpus": (lambda at: run(SPEC, Subject(model=str(at / "m"), split="all"), CORPUS), "split"),
    "a split of a list": (lambda at: run(SPEC, Subject(model=str(at / "m"), split="all"), T), "split"),
    "a text for questions that need none": (lambda at: measured(at, READS_NO_TEXT), "a text is given"),
    "tokens for a measurement of characters": (lambda at: measured(at, KEYS, text=TOKENS), "characters"),
    "tokens of another tokenizer": (
        lambda at: measured(at, text=tokenize(T, tiny_tokenizer(vocab_size=300))),
        "another tokenizer",
    ),
    "tokens tokenized again": (
        lambda at: tokenize(TOKENS, tiny_tokenizer(vocab_size=300)),
        "another tokenizer",
    ),
    "two evaluators": (
        lambda at: measured(at, KEYS.model_copy(update={"evaluator": "n"}), other=str(at / "n")),
        "name one",
    ),
    "a field of a text without columns": (lambda at: load_corpus(f"{at}/t", text_field="body"), "columns"),
    "a field of an embedded text": (lambda at: load_corpus("books", text_field="body"), "columns"),
    "pairs by the objective": (lambda at: Objective(min_context=0), "min_context"),  # type: ignore[call-arg]
    "offsets of gap views": (lambda at: View(16, "gap", offsets=(1, 7), positions=SKIP), "offsets"),
    "options of views without any": (lambda at: View(16, options={"share": 0.5}), "share"),
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
