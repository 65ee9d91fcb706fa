"""Made-up tasks: prompts of a wanted number of the model's own tokens, with facts among sentences of any text.

Facts are placed between sentences of the background, in the order given. The depth of a fact is the share of
the context's other tokens that come before it; each fact gets as near to its depth as whole sentences allow.
The background is text in its own order from a random place. Its last sentence is cut, so that the whole prompt
has the wanted length.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.prompts import prompt_ids
from lengthwise.evaluation.scoring import only_label
from lengthwise.evaluation.task import ANY_TASK, DoesNotFit, Question, Task
from lengthwise.measure.measurement import in_groups
from lengthwise.settings import TextOptions
from lengthwise.text.corpus import Corpus

# The stops of Chinese and Japanese have no space after them.
_END = re.compile(r"""(?<=[.!?])["')\]]*\s+|(?<=[\u3002\uff01\uff1f])(?=\S)""")
_LONGEST_SENTENCE = 60
"""Words. Longer sentences (verse, lists) are cut, so that a fact can be placed anywhere."""
_LONGEST_WORD = 200
"""Characters. Longer words (text without spaces) are split into pieces of `_PIECE`, so that they can be cut."""
_PIECE = 20
_CHARACTERS_PER_TOKEN = 8
_AT_ONCE = 100
"""Sentences that are tokenised together."""
_LEAST_BACKGROUND = 16
"""Tokens. With fewer there is nothing to search in."""
_SAMPLES = 10
"""At each length and depth by default."""

MADE_UP = ANY_TASK | {"lengths", "text", "seed", *TextOptions.model_fields}
"""Settings that each made-up task takes."""

Fact = tuple[str, float]
"""A sentence and its depth in 0 .. 1."""
Context = tuple[Sequence[str], Sequence[Fact], Sequence[Question]]
"""Sentences of the background, facts in order of their depth, questions with the prompt after the context."""
Told = tuple[Sequence[Fact], Sequence[Question]]
"""Facts in order of their depth, and questions on them."""


def background_text(corpus: Corpus, rng: random.Random, *, tokens: int) -> list[str]:
    """Sentences for at least `tokens` tokens, in order from a random sentence of a random document.

    The next document follows; a short corpus repeats.
    """
    wanted = tokens * _CHARACTERS_PER_TOKEN
    texts = list(corpus.documents.values())
    index = rng.randrange(len(texts))
    text = texts[index]
    # Anywhere in the document, if it is long enough to hold all that is wanted from there.
    start = rng.randrange(max(1, len(text) - wanted)) if len(text) > wanted else 0
    first = _END.search(text, start) if start else None
    found = _sentences(text[first.end() if first else start :][: 2 * wanted])
    size = sum(map(len, found))
    while size < wanted:
        index = (index + 1) % len(texts)
        text = texts[index]
        # A document may begin with more white space than is read of it; it has text behind.
        more = _sentences(text[: 2 * wanted]) or _sentences(text.lstrip()[: 2 * wanted])
        found += more
        size += sum(map(len, more))
    return found


def made_up(
    name: str,
    contexts: Callable[[Any, Corpus, int, int], Iterable[Context]],
    *,
    head: str = "",
    takes: frozenset[str] = MADE_UP | {"depths"},
    **options: Any,
) -> Task:
    """A task whose prompts are made for a wanted length, from any text.

    `contexts` gives those of one sample: (settings, corpus, length in tokens, number of the sample). Every prompt
    begins with `head`.
    """

    def questions(settings: Any, tokenizer: Any, corpus: Corpus) -> list[Question]:
        characters = sum(map(len, corpus.documents.values()))
        if max(settings.lengths) > characters:
            raise UsageError(
                f"--lengths is {max(settings.lengths)} tokens, and the text {corpus.name} has {characters} characters"
                + (f": {corpus.part}" if corpus.part else ""),
                expected=f"at most {characters}",
                fix="use a shorter length, or more text",
            )
        found, short = list[Question](), list[DoesNotFit]()
        for length, sample in product(sorted(set(settings.lengths)), range(settings.samples or _SAMPLES)):
            unit = f"s{sample:03d}"
            for background, facts, asked in contexts(settings, corpus, length, sample):
                several = len(asked) > 1
                parts = [
                    f"/d{each.depth:g}" if each.depth is not None else f"/q{index}" * several
                    for index, each in enumerate(asked)
                ]
                keys = [f"{name}/L{length}{part}/{unit}" for part in parts]
                try:
                    context = build_haystack(
                        tokenizer, asked, head=head, background=background, facts=facts, length=length
                    )
                except DoesNotFit as error:
                    short.append(error)
                    continue
                found += [
                    replace(question, key=key, unit=unit, context=keys[0])
                    for question, key in zip(context, keys, strict=True)
                ]
        if short:
            most = max(max(each.tokens.values()) for each in short)
            try:
                # A longer prompt may hold more facts.
                questions(settings.model_copy(update={"lengths": (most,)}), tokenizer, corpus)
            except DoesNotFit as error:
                most = max(error.tokens.values())
            # The shortest length comes first.
            raise DoesNotFit(short[0].limit, {name: most}, short[0].how)
        return found

    return Task(name=name, questions=questions, takes=takes, **options)


def labelled_task(
    name: str,
    tell: Callable[[random.Random, Sequence[float]], Told],
    *,
    seed: str,
    takes: frozenset[str] = MADE_UP,
    **options: Any,
) -> Task:
    """A made-up task whose answers are labels of its prompt. A sample is one context, with the same facts everywhere.

    `tell` draws the facts and the questions, at depths in per cent. `seed` keeps its draws apart from other tasks'.
    """

    def contexts(settings: Any, corpus: Corpus, length: int, sample: int) -> Iterable[Context]:
        rng = random.Random(f"{settings.seed}/{seed}/{sample}")
        facts, questions = tell(rng, sorted(settings.depths))
        yield background_text(corpus, rng, tokens=length), facts, questions

    how: dict[str, Any] = {"metric": "accuracy", "score": only_label, "is_over": lambda reply: "." in reply}
    return made_up(name, contexts, takes=takes, ranks=True, **how, **options)


def labelled(question: str, answer: str, gold: str, labels: Iterable[str], **more: Any) -> Question:
    """A question that one of some labels answers; `answer` begins the reply, and `more` are fields of it."""
    return Question(
        prompt=f"\n\nQuestion: {question}\nAnswer: {answer}",
        golds=[gold],
        candidates=sorted(labels),
        **{"new_tokens": 12, **more},
    )


def quarter(place: float) -> str:
    """The quarter of the context that a place in 0 .. 1 is in, as a bucket of the tables."""
    return ("first", "second", "third", "last")[min(3, int(4 * place))] + " quarter"


def build_haystack(
    tokenizer: Any,
    questions: Sequence[Question],
    *,
    head: str,
    background: Sequence[str],
    facts: Sequence[Fact],
    length: int,
) -> list[Question]:
    """Questions on one context, each with a prompt of at most `length` tokens. The longest has nearly as many.

    The prompt of each given question is what follows the context; `head` comes before it. Of the background's
    sentences as many are used as fit. Facts are in order of their depth. DoesNotFit if `length` does not hold head,
    facts, the longest end and a little text.
    """
    assert all(a[1] <= b[1] for a, b in pairwise(facts)), "facts are out of order"
    sizes = _sizes(tokenizer, [text for text, _ in facts])
    tails = [question.prompt for question in questions]
    frames = [len(prompt_ids(tokenizer, head + tail)) for tail in tails]
    frame = max(frames)
    longest = tails[frames.index(frame)]
    room = length - frame - sum(sizes)
    if room < _LEAST_BACKGROUND:
        least = length - room + _LEAST_BACKGROUND
        raise DoesNotFit(length, {"the task": least}, "--lengths {} or more")
    sentences = _cut_to(tokenizer, background, room)
    while True:
        if not sentences:
            # A first sentence without spaces, as of Chinese, has no word to be cut at.
            least = length + max(_LEAST_BACKGROUND, sum(_sizes(tokenizer, background[:1])) - room)
            raise DoesNotFit(length, {"the task": least}, "--lengths {} or more")
        context, reached = _context(tokenizer, sentences, facts, sizes)
        over = len(prompt_ids(tokenizer, head + context + longest)) - length
        if over <= 0:
            break
        *sentences, last = sentences
        words = last.split(" ")[: -max(1, over // 2)]
        sentences += [_ended(words)] if words else []
    return [
        replace(
            question,
            prompt=head + context + question.prompt,
            length=length,
            reached=None if question.fact is None else reached[question.fact],
        )
        for question in questions
    ]


def _context(
    tokenizer: Any, sentences: Sequence[str], facts: Sequence[Fact], sizes: Sequence[int]
) -> tuple[str, list[float]]:
    before = [0, *accumulate(_sizes(tokenizer, sentences))]
    whole = before[-1] + sum(sizes)
    pieces: list[str] = []
    reached: list[float] = []
    taken, passed = 0, 0
    for (text, depth), size in zip(facts, sizes, strict=True):
        wanted = depth * (whole - size) - passed
        slot = min(range(taken, len(before)), key=lambda slot, wanted=wanted: abs(before[slot] - wanted))
        pieces += [*sentences[taken:slot], text]
        reached.append((before[slot] + passed) / (whole - size))
        taken, passed = slot, passed + size
    pieces += sentences[taken:]
    return " ".join(pieces), reached


def _cut_to(tokenizer: Any, sentences: Sequence[str], room: int) -> list[str]:
    """As many sentences as fit into `room` tokens, the last one cut."""
    kept: list[str] = []
    used = 0
    for some in in_groups(sentences, _AT_ONCE):
        for sentence, size in zip(some, _sizes(tokenizer, some), strict=True):
            if used + size > room:
                words = sentence.split(" ")
                fitting = int(len(words) * (room - used) / size)
                return [*kept, _ended(words[:fitting])] if fitting else kept
            kept.append(sentence)
            used += size
    return kept


def _ended(words: Sequence[str]) -> str:
    """A cut sentence with a full stop, so that it does not run into a fact."""
    text = " ".join(words).rstrip(",;:-")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _sentences(text: str) -> list[str]:
    found: list[str] = []
    for sentence in _END.split(text):
        words = [
            "".join(piece)
            for word in sentence.split()
            for piece in in_groups(word, _LONGEST_WORD if len(word) <= _LONGEST_WORD else _PIECE)
        ]
        found += [" ".join(some) for some in in_groups(words, _LONGEST_SENTENCE)]
    return found


def _sizes(tokenizer: Any, sentences: Sequence[str]) -> list[int]:
    """Tokens of each sentence after another one."""
    if not sentences:
        return []
    encoded = tokenizer([f" {sentence}" for sentence in sentences], add_special_tokens=False, verbose=False)
    return [len(ids) for ids in encoded["input_ids"]]
