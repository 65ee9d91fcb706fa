"""BABILong: bAbI's stories hidden in long text, with the needed facts at a chosen depth.

The context is any text. Its length is that of the whole prompt, in the model's own tokens. The statements from
the first to the last needed one are kept together at the wanted depth (0 is the first sentence of the context,
100 the last). The story's earlier statements come before them and its later ones after them, at random places.
The order of the story is kept, so a later move of the same person stays later.

Upstream bounds a region for all facts together, counts background and facts only, and words the prompt
differently. The scorer is upstream's. So compare models here with each other, and with the public leader board
only roughly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.babi import LABELS, Story, make_story, read_stories
from lengthwise.evaluation.haystack import Fact, background_text
from lengthwise.evaluation.task import MADE_UP, Family, Haystack, MadeUpTask, Question, only_label

if TYPE_CHECKING:
    from lengthwise.text import Corpus

NEW_TOKENS = 20
_MOST_STATEMENTS = 10
"""In a generated story."""
_TOKENS_PER_STATEMENT = 64
"""Tokens of the prompt for each statement, at least."""

_INSTRUCTION = {
    1: "where people are. The last place that a person went to is where the person is",
    2: "people who go from room to room and carry things along",
    3: "people who go from room to room and carry things along",
    4: "which room lies in which direction of another",
    5: "who gives what to whom",
}


def _haystacks(number: int, settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Haystack]:
    """A context for each depth. A sample has the same background at every depth."""
    seeded = f"{settings.seed}/qa{number}/{sample}"
    background = background_text(corpus, random.Random(f"{seeded}/background"), tokens=length)
    for depth in sorted(settings.depths):
        story = _story(number, random.Random(seeded), depth / 100, length, settings.stories)
        facts, marked = _placed(story, depth / 100, random.Random(f"{seeded}/places"))
        about = story.question.lower()
        question = Question(
            prompt=f"\n</context>\n\nQuestion: {story.question}\nAnswer:",
            golds=[story.answer],
            # Upstream never counts a label of the question as an answer.
            candidates=[label for label in LABELS[number] if label.lower() not in about],
            about=story.question,
            new_tokens=NEW_TOKENS,
            depth=depth,
            fact=marked,
        )
        yield Haystack(_head(number), background, facts, [question])


def _story(task: int, rng: random.Random, place: float, length: int, folder: str | None) -> Story:
    most = max(4, length // _TOKENS_PER_STATEMENT)
    if folder is None:
        return make_story(task, rng, statements=rng.randint(4, min(_MOST_STATEMENTS, most)), place=place)
    fitting = [story for story in read_stories(folder, task) if len(story.statements) <= most]
    if not fitting:
        raise UsageError(
            f"no story of qa{task} in {folder} has at most {most} statements", fix="use greater lengths"
        )
    return rng.choice(fitting)


def _placed(story: Story, depth: float, rng: random.Random) -> tuple[list[Fact], int]:
    """The statements with their depths, in order, and the index of the last needed one."""
    first, last = story.needed[0], story.needed[-1]
    before = sorted(rng.uniform(0, depth) for _ in range(first))
    after = sorted(rng.uniform(depth, 1) for _ in range(len(story.statements) - last - 1))
    depths = [*before, *[depth] * (last - first + 1), *after]
    return list(zip(story.statements, depths, strict=True)), last


def _head(task: int) -> str:
    rng = random.Random(f"examples/qa{task}")
    examples = []
    for _ in range(2):
        story = make_story(task, rng, statements=4, place=rng.random())
        asked = f"Question: {story.question}\nAnswer: {story.answer}"
        examples.append(f"<example>\n{' '.join(story.statements)}\n\n{asked}\n</example>")
    listed = "\n\n".join(examples)
    return (
        f"The context below is a long text. Hidden in it are sentences about {_INSTRUCTION[task]}. "
        "Answer the question at the end from these sentences alone, with one word.\n\n"
        f"{listed}\n\n<context>\n"
    )


def _task(number: int, what: str) -> MadeUpTask:
    return MadeUpTask(
        name=f"babilong_qa{number}",
        what=f"bAbI {number} in long text: {what}",
        version=2,
        metric="accuracy",
        score=only_label,
        haystacks=partial(_haystacks, number),
        takes=MADE_UP | {"depths", "stories"},
        ranks=True,
        is_over=lambda reply: "." in reply,
    )


BABILONG = Family(
    "babilong",
    (
        _task(1, "where someone is"),
        _task(2, "where a thing is that someone carried"),
        _task(3, "where a thing was before"),
        _task(4, "which room lies beside which"),
        _task(5, "who gave what to whom"),
    ),
    mean="accuracy",
)
