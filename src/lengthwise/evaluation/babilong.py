"""BABILong: bAbI's stories hidden in long text, with the needed facts at a chosen depth.

The context is any text; its length is counted in the model's own tokens and is that of the whole prompt. The
stretch of the story from its first to its last needed statement stands together at the wanted depth (0 is the
first sentence of the context, 100 the last). Statements before it in the story stand before it, those after it
after it, at random places: the story's order is kept, so a later move of the same person stays later.

Upstream bounds a region for all facts together, counts background and facts only, and words the prompt
otherwise; the scorer is upstream's. So numbers are comparable between models here, and only roughly with the
public leader board.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.babi import LABELS, Story, make_story, read_stories
from lengthwise.evaluation.haystack import Fact, background_text, build_haystack
from lengthwise.evaluation.questions import Question
from lengthwise.text import Corpus

NEW_TOKENS = 20
_MOST_STATEMENTS = 10
"""In a story of our own world."""
_TOKENS_PER_STATEMENT = 64
"""At most one statement for so many tokens of the prompt."""

_INSTRUCTION = {
    1: "where people are. The last place that a person went to is where the person is",
    2: "people who go from room to room and carry things along",
    3: "people who go from room to room and carry things along",
    4: "which room lies in which direction of another",
    5: "who gives what to whom",
}


def babilong(
    task: int,
    tokenizer: Any,
    corpus: Corpus,
    *,
    length: int,
    depths: Sequence[float],
    samples: int,
    seed: int,
    stories: str | None = None,
) -> list[Question]:
    """Questions of task qa1 .. qa5, one for each depth and sample.

    A sample has the same background at every length and depth. `stories` is a folder
    of bAbI's own files; without it the stories are of our own world.
    """
    head = _head(task)
    found: list[Question] = []
    for sample in range(samples):
        seeded = f"{seed}/qa{task}/{sample}"
        background = background_text(corpus, random.Random(f"{seeded}/background"), tokens=length)
        for depth in depths:
            story = _story(task, random.Random(seeded), depth / 100, length, stories)
            facts, marked = _placed(story, depth / 100, random.Random(f"{seeded}/places"))
            stack = build_haystack(
                tokenizer, head=head, tails=[_tail(story)], background=background, facts=facts, length=length
            )
            key = f"babilong_qa{task}/L{length}/d{depth:g}/s{sample:03d}"
            asked = story.question.lower()
            found.append(
                Question(
                    key=key,
                    unit=f"s{sample:03d}",
                    context=key,
                    prompt=stack.prompts[0],
                    golds=[story.answer],
                    # Upstream never counts a label of the question as an answer.
                    candidates=[label for label in LABELS[task] if label.lower() not in asked],
                    about=story.question,
                    new_tokens=NEW_TOKENS,
                    length=length,
                    depth=depth,
                    reached=stack.reached[marked],
                )
            )
    return found


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
    """The statements with their depths, in order, and which one is the last of those needed."""
    first, last = story.needed[0], story.needed[-1]
    before = sorted(rng.uniform(0, depth) for _ in range(first))
    after = sorted(rng.uniform(depth, 1) for _ in range(len(story.statements) - last - 1))
    depths = [*before, *[depth] * (last - first + 1), *after]
    return [Fact(text, place) for text, place in zip(story.statements, depths, strict=True)], last


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


def _tail(story: Story) -> str:
    return f"\n</context>\n\nQuestion: {story.question}\nAnswer:"
