"""What each verb says of a model, and what is so by its plain forward pass alone: pairs of numbers."""

from __future__ import annotations

import json
import random
import re
import shutil
import string
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import lengthwise
from checks.zoo.plain import Ids, Plain
from lengthwise.measure import Comparison
from lengthwise.settings import Subject
from lengthwise.subjects.plan import reading_cost
from lengthwise.text import Corpus

Pair = tuple[float, float]
"""What a verb says, and what is so."""
LENGTH, REFERENCE, PASSAGE, SCORED, SHORT, STRIDE = 128, 32, 16, 12, 32, 16
DECODED, CHUNK, PROMPT, EOS = 24, 50, 200, 0


def made_up(characters: int, seed: int) -> str:
    """Sentences of random letters: no passage occurs twice."""
    rng = random.Random(seed)
    words = (
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7))) for _ in range(characters // 4)
    )
    return ". ".join(words)[:characters]


TEXTS = {f"text {seed}": made_up(size, seed) for seed, size in enumerate((330, 420, 360, 900, 640))}
"""Documents of unequal size, of a token or less for each character."""
FIRST, OTHERS = list(TEXTS)[:3], list(TEXTS)[3:]


def corpus_of(names: Iterable[str]) -> Corpus:
    """Some of the texts, in this order."""
    return Corpus.of("zoo", {name: TEXTS[name] for name in names}, split="all")


class Case:
    """One model, its oracle, and the texts that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.plain = folder, Plain(folder)
        bos = self.plain.tokenizer("a").input_ids[0]
        self.bos = bos if bos == self.plain.tokenizer.bos_token_id else None

    @property
    def parameters(self) -> int:
        """Numbers in its weights; those of tied ones count once."""
        return sum(each.numel() for each in self.plain.model.parameters())

    def model(self) -> Any:
        """The model as `load` gives it, as yet unread."""
        return lengthwise.load(str(self.folder), dtype="float32", device="cpu")

    def run(self, measurement: Any, model: Any = None, texts: Iterable[str] = TEXTS) -> Any:
        """The results of a verb on some of the texts."""
        return lengthwise.run(measurement, model or self.model(), corpus_of(texts))

    def ids(self, text: str) -> list[int]:
        """Its tokens."""
        return self.plain.tokenizer(text, add_special_tokens=False).input_ids

    @cached_property
    def sample(self) -> list[int]:
        """A text of 200 tokens as it is read."""
        return self.view(self.ids(TEXTS["text 3"])[:200])

    def view(self, ids: Ids) -> list[int]:
        """A stretch of a text as it is read: BOS replaces its first token."""
        return [*ids] if self.bos is None else [self.bos, *ids[1:]]

    def windows(self, found: Any) -> list[tuple[dict[str, Any], list[int]]]:
        """The record of every window, and the tokens of its document from there on."""
        return [(each, self.ids(TEXTS[each["document"]])[each["start"] :]) for each in found.records.values()]

    def losses(self, ids: Ids, start: int, length: int) -> Any:
        """Losses of the tokens start + 1 .. start + length, each with those from `start` on before it."""
        return self.plain.losses(self.view(ids[start : start + length]), ids[start + 1 : start + length + 1])

    def served_apart(self, **how: Any) -> float | None:
        """How far transformers' own cached generation is from whole readings, on average over tokens."""
        found = [self.plain.served(self.sample, DECODED, **how)]
        if size := how.get("prefill_chunk_size"):
            found.append(self.plain.in_chunks(self.sample, size))
        whole = self.plain.losses(self.sample[:-1], self.sample[1:])
        apart = [np.abs(each.numpy() + whole[-len(each) :]).mean() for each in found if each is not None]
        return float(max(apart)) if apart else None


def ppl(case: Case, batch: int = 1) -> Iterator[Pair]:
    """The loss at each length, and by position at the greater; windows of several documents in a batch."""
    lengths = (64, LENGTH) if batch == 1 else (32, 64, LENGTH)
    found = case.run(lengthwise.Perplexity(lengths=lengths, windows=5, batch_size=batch))
    whole = {length: [] for length in lengths}
    for record, ids in case.windows(found):
        length = record["length"]
        parts = [case.losses(ids, start, length) for start in range(0, LENGTH, length)]
        whole[length].append(np.concatenate(parts))
    for row in found.select(metric="loss"):
        at = slice(row.position or 0, row.position_end or LENGTH)
        yield row.value, float(np.mean(np.array(whole[row.length])[:, at]))


def after_another(case: Case) -> Iterator[Pair]:
    """The same text read first, and after a longer one, and in another order: the same loss."""
    verb = lengthwise.Perplexity(lengths=(LENGTH,), windows=3)

    def loss(model: Any, texts: Iterable[str]) -> float:
        [row] = (row for row in case.run(verb, model, texts).select(metric="loss") if row.is_whole)
        return row.value

    model = case.model()
    first = loss(model, FIRST)
    case.run(lengthwise.Perplexity(lengths=(3 * LENGTH,), windows=1), model, OTHERS)
    yield loss(model, FIRST), first
    yield loss(case.model(), FIRST[::-1]), first
    yield loss(model, FIRST[:1]), loss(case.model(), FIRST[:1])


def measure(case: Case) -> Iterator[Pair]:
    """Eq. 2 over the drawn views of each window."""
    length, views = LENGTH // 2, 3
    half = length // 2
    found = case.run(lengthwise.Misalignment(lengths=(length,), windows=3, batch_size=4))
    sums, entropies = [], []
    for index, (_, ids) in enumerate(case.windows(found)):
        rng = np.random.default_rng([0, length, index])
        drawn = sorted(rng.integers(length - half, size=views).tolist())
        log_p = {start: case.plain.log_p(case.view(ids[start : start + length])) for start in drawn}
        entropies += [float(-(log_p[each].exp() * log_p[each])[half:].sum(1).mean()) for each in drawn]
        for one, other in combinations(drawn, 2):
            p, q = log_p[one][half + other - one :], log_p[other][half : length - other + one]
            sums.append(float(((p.exp() - q.exp()) * (p - q)).sum(dim=1).mean()))
    for metric, value in (("jeffreys", np.mean(sums)), ("entropy", 2 * np.mean(entropies))):
        [row] = (row for row in found.select(metric=metric) if row.is_whole)
        yield row.value, float(value)


def longppl(case: Case) -> Iterator[Pair]:
    """The loss with all context, and its disagreement with the short one."""
    given = {"max_length": LENGTH, "short": SHORT, "stride": STRIDE}
    found = case.run(lengthwise.LongPpl(**given, windows=3, alpha=0.0, beta=-1e3, batch_size=3))
    losses, jeffreys = [], []
    for record in found.records.values():
        # Its places are characters.
        ids = case.ids(TEXTS[record["document"]][record["start"] : record["end"]])
        losses.append(case.plain.losses(case.view(ids[:-1]), ids[1:]))
        # The last token is a label alone, which frequencies by the length of the text show.
        whole = case.plain.log_p(case.view(ids[:-1]))
        for start in range(STRIDE, LENGTH - SHORT, STRIDE):
            end = min(start + SHORT + STRIDE, LENGTH) - 1
            p, q = whole[start + SHORT - 1 : end], case.plain.log_p(case.view(ids[start:end]))[SHORT - 1 :]
            jeffreys.append(((p.exp() - q.exp()) * (p - q)).sum(dim=1).numpy())
    for metric, values in (("loss", losses), ("jeffreys", jeffreys)):
        [row] = found.select(metric=metric)
        yield row.value, float(np.concatenate(values).mean())


def limit(case: Case) -> Iterator[Pair]:
    """The excess and the loss by position; the benefit of passages that are read again after every distance."""
    given = {"max_length": LENGTH, "reference": REFERENCE, "passage": PASSAGE, "scored": SCORED}
    found = case.run(lengthwise.Limit(**given, windows=4, batch_size=2))
    quarter, excess, whole, documents = REFERENCE // 4, [], [], []
    for record, ids in case.windows(found):
        loss, recent = case.losses(ids, 0, LENGTH)[REFERENCE:], []
        for first in range(REFERENCE, LENGTH, 3 * quarter):
            start = min(first - quarter, LENGTH - REFERENCE)
            recent.append(case.losses(ids, start, REFERENCE)[first - start :])
        whole.append(loss)
        excess.append(loss - np.concatenate(recent))
        documents += [ids[: LENGTH + 1 + 2 * PASSAGE]] if record["twice"] else []
    for metric, values in (("excess", excess), ("loss", whole)):
        for row in found.select(metric=metric):
            at = slice(row.position - REFERENCE, row.position_end - REFERENCE)
            yield row.value, float(np.mean(np.array(values)[:, at]))
    rows = found.select(metric="benefit")
    inside = next(row.distance for row in rows if row.distance >= max(LENGTH // 8, 4 * PASSAGE))
    for row in [*rows, *found.select(metric="benefit_inside")]:
        begins = 0 if row.metric == "benefit" else inside
        yield (
            row.value,
            float(np.mean([_benefit(case, ids, begins, row.distance, inside) for ids in documents])),
        )


def _benefit(case: Case, ids: list[int], begins: int, distance: int, inside: int) -> float:
    """Of the passage that begins at a place, `distance` tokens back; else other passages are at both places."""
    other = [*ids]
    other[:PASSAGE] = ids[-PASSAGE:]
    other[inside : inside + PASSAGE] = ids[-2 * PASSAGE : -PASSAGE]
    passage = ids[begins : begins + PASSAGE]
    views = [[*case.view(each[: begins + distance]), *passage[:-1]] for each in (ids, other)]
    same, different = (case.plain.losses(each, passage[-SCORED:]).mean() for each in views)
    return float(different - same)


def compare(case: Case, **side: Any) -> Iterator[Pair]:
    """The model against itself along another path: no difference."""
    verb = Comparison(
        lengths=(LENGTH,), windows=2, side_b={"model": str(case.folder), "dtype": "float32", **side}
    )
    subject = Subject(model=str(case.folder), dtype="float32", device="cpu")
    found = lengthwise.run(verb, subject, corpus_of(TEXTS))
    rows = [row for row in found.select(metric="difference") if row.is_whole]
    yield max(row.value for row in rows), 0.0


def likelihoods(case: Case, batch: int = 1) -> Iterator[Pair]:
    """log p of every answer after its prompt."""
    items, found = _answers(case, mode="likelihood", batch_size=batch)
    for item in items:
        question, said = item.content, found.records[item.key]["likelihoods"]
        for candidate, tokens in zip(question.candidates, question.answers, strict=True):
            losses = case.plain.losses([*question.ids, *tokens[:-1]], tokens)
            yield said[candidate], -float(losses.sum())


def replies(case: Case, batch: int = 1) -> Iterator[tuple[str, str, str | None]]:
    """(what is written, what is so, what transformers' `generate` writes) after every prompt."""
    items, found = _answers(case, mode="greedy", batch_size=batch)
    for item in items:
        question = item.content
        whole, clear = case.plain.greedy(question.ids, question.new_tokens)
        generated = case.plain.generated(question.ids, question.new_tokens)
        end = whole.index(EOS) if EOS in whole else None
        so, own = (
            None if each is None else case.plain.tokenizer.decode(each[:end], skip_special_tokens=True)
            for each in (whole, generated)
        )
        # Rounding decides between tokens that are as likely.
        if clear > 1e-4:
            yield found.records[item.key]["reply"], so or "", own


def _answers(case: Case, **how: Any) -> tuple[list[Any], Any]:
    """Questions of needle tasks as they are read, of which some share a context; and what was found."""
    tasks = ("needle_single", "needle_multi_key")
    verb = lengthwise.Evaluation(tasks=tasks, lengths=(PROMPT,), depths=(0.0, 100.0), samples=1, **how)
    model = case.model()
    return verb.items(model, corpus_of(TEXTS), model), case.run(verb, model)


def dry_run(case: Case) -> Iterator[Pair]:
    """The parameters of a model whose weights are not loaded."""
    cost = reading_cost(Subject(model=str(case.folder)), tokens=64, at_once=64, longest=64, cached=64)
    yield cost["parameters"], case.parameters
    assert cost["memory_bytes"] > 4 * case.parameters


def train(case: Case) -> Iterator[Pair]:
    """The cross entropy of the first step, whole and with an adapter: windows of one word are all alike."""
    from lengthwise.training import Recipe, plan
    from lengthwise.training import train as run_recipe

    text, size = " the" * 400, SHORT
    ids = case.ids(text)
    assert len({*ids}) == 1, "windows differ"
    so = float(case.losses(ids, 0, size - 1).mean())
    with TemporaryDirectory() as kept:
        folder = Path(kept)
        (folder / "text.txt").write_text(text)
        shutil.copytree(case.folder, folder / "model")
        config = folder / "model" / "config.json"
        config.write_text(json.dumps(_without_chance(json.loads(config.read_text()))))
        for name, adapter in {"whole": None, "adapter": {}}.items():
            recipe = Recipe(
                model=str(folder / "model"), length=size, steps=1, batch={"size": 1}, precision="float32",
                data={"corpus": str(folder / "text.txt"), "split": "all"}, optimizer={"learning_rate": 1e-3},
                adapter=adapter,
            )  # fmt: skip
            planned = plan(recipe)
            added = 0 if adapter is None else planned["trainable_parameters"]
            yield planned["parameters"] - added, case.parameters
            run_recipe(recipe, folder / name)
            [step] = (folder / name / "metrics.jsonl").read_text().splitlines()
            yield json.loads(step)["cross_entropy"], so


def _without_chance(settings: Any) -> Any:
    """A configuration without dropout and noise, which are drawn in training alone."""
    if not isinstance(settings, dict):
        return settings
    return {
        key: 0.0 if isinstance(value, float) and re.search("drop|jitter", key) else _without_chance(value)
        for key, value in settings.items()
    }
