"""BABILong: stories like those of bAbI's tasks 1 to 5, hidden in long text, with the needed facts at a chosen depth.

The context is any text. Its length is that of the whole prompt, in the model's own tokens. The statements from
the first to the last needed one are kept together at the wanted depth (0 is the first sentence of the context,
100 the last). The story's earlier statements come before them and its later ones after them, at random places.
The order of the story is kept, so a later move of the same person stays later.

Stories are generated, or real ones from a folder. People, rooms and things are those of bAbI, so its labels
apply; generated sentences and stories are our own.

Upstream bounds a region for all facts together, counts background and facts only, and words the prompt
differently. The scorer is upstream's. So compare models here with each other, and with the public leader board
only roughly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.haystack import MADE_UP, Context, background_text, made_up
from lengthwise.evaluation.scoring import only_label
from lengthwise.evaluation.task import Family, Question, Task
from lengthwise.files import named_path
from lengthwise.text.corpus import Corpus

Story = tuple[list[str], list[int], str, str]
"""Statements in order, the indices of those that the answer needs, the question, the answer."""

_PEOPLE = ("Mary", "John", "Daniel", "Sandra")
_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_THINGS = ("apple", "football", "milk")
_GIVERS = ("Bill", "Fred", "Jeff", "Mary")

LABELS: dict[int, tuple[str, ...]] = {**dict.fromkeys((1, 2, 3, 4), _ROOMS), 5: (*_GIVERS, *_THINGS)}
"""What BABILong's scorer looks for in a reply."""

_MOVES = ("{} went to the {}.", "{} walked to the {}.", "{} moved to the {}.", "{} hurried to the {}.")
_TAKES = ("{} picked up {}.", "{} took {}.", "{} got {}.")
_GIVES = ("{} gave the {} to {}.", "{} handed the {} to {}.", "{} passed the {} to {}.")
_DIRECTIONS = {"east": 1, "north": 1j, "south": -1j, "west": -1}


def _moves(rng: random.Random, statements: int, place: float, *, rooms: int, carried: bool) -> Story:
    """Someone walks through `rooms` rooms, or takes a thing and carries it there; nobody else touches it."""
    person = rng.choice(_PEOPLE)
    others = [other for other in _PEOPLE if other != person]
    subject = f"the {rng.choice(_THINGS)}" if carried else person
    pause = rng.randrange(2) if carried and statements > rooms + 2 else 0
    story: list[str] = []
    where: dict[str, str] = {}
    needed: list[int] = []
    path: list[str] = []

    def move(mover: str) -> None:
        where[mover] = rng.choice([room for room in _ROOMS if room != where.get(mover)])
        story.append(rng.choice(_MOVES).format(mover, where[mover]))

    for _ in range(round(place * max(0, statements - (rooms + carried + pause)))):
        move(rng.choice(_PEOPLE))
    if carried:
        needed.append(len(story))
        story.append(rng.choice(_TAKES).format(person, subject))
    if pause:
        move(rng.choice(others))
    for _ in range(rooms):
        needed.append(len(story))
        move(person)
        path.append(where[person])
    while len(story) < statements:
        move(rng.choice(others))
    if rooms == 1:
        return story, needed, f"Where is {subject}?", path[-1]
    return story, needed, f"Where was {subject} before the {path[-1]}?", path[-2]


def _relation(rng: random.Random, statements: int, place: float) -> Story:
    """Rooms on a grid, each beside the one before; a question about one pair."""
    count = min(statements, len(_ROOMS) - 1)
    rooms = rng.sample(_ROOMS, count + 1)
    at: complex = 0
    taken: set[complex] = {at}
    story: list[str] = []
    wanted = round(place * (count - 1))
    question = answer = ""
    for index, (room, following) in enumerate(pairwise(rooms)):
        # A walk of five steps always has a free neighbour.
        name = rng.choice([name for name, step in _DIRECTIONS.items() if at + step not in taken])
        at += _DIRECTIONS[name]
        taken.add(at)
        story.append(f"The {following} is {name} of the {room}.")
        if index == wanted:
            if rng.random() < 0.5:
                question, answer = f"What is {name} of the {room}?", following
            else:
                question, answer = f"What is the {following} {name} of?", room
    return story, [wanted], question, answer


def _given(rng: random.Random, statements: int, place: float) -> Story:
    """People hand on their things. The question is about one gift that differs from all others."""
    holders = {thing: rng.choice(_GIVERS) for thing in _THINGS}
    gifts: list[tuple[str, str, str]] = []
    wanted = round(place * (statements - 1))

    def hand_on() -> tuple[str, str, str]:
        thing = rng.choice(_THINGS)
        giver = holders[thing]
        return giver, thing, rng.choice([person for person in _GIVERS if person != giver])

    for _ in range(wanted + 1):
        gifts.append(hand_on())
        holders[gifts[-1][1]] = gifts[-1][2]
    # The question leaves out one of the three; the gift must be the only one with the other two.
    kind = rng.randrange(3)

    def rest(gift: tuple[str, str, str]) -> tuple[str, ...]:
        return tuple(part for index, part in enumerate(gift) if index != kind)

    if any(rest(gift) == rest(gifts[wanted]) for gift in gifts[:wanted]):
        return _given(rng, statements, place)
    giver, thing, receiver = asked = gifts[wanted]
    while len(gifts) < statements:
        gift = hand_on()
        if rest(gift) != rest(asked):
            gifts.append(gift)
            holders[gift[1]] = gift[2]
    question = (
        f"Who gave the {thing} to {receiver}?",
        f"What did {giver} give to {receiver}?",
        f"Who did {giver} give the {thing} to?",
    )[kind]
    return [rng.choice(_GIVES).format(*gift) for gift in gifts], [wanted], question, asked[kind]


STORIES = {
    1: partial(_moves, rooms=1, carried=False),
    2: partial(_moves, rooms=1, carried=True),
    3: partial(_moves, rooms=2, carried=True),
    4: _relation,
    5: _given,
}
"""Makes a story of about so many statements, its needed ones together at `place`: 0 first, 1 last."""


@lru_cache(maxsize=8)
def read_stories(folder: str, task: int) -> list[Story]:
    """The stories of the file `qa<task>_*_test.txt` (or `_train`, if there is no test file) in a folder.

    A story for each question: the statements before it, without earlier questions.

    Raises:
        MissingError: no such file.
        UsageError: several such files; a line that is not in bAbI's format, by file and line; no question; as
            `named_path`.
    """
    home = named_path(folder, what="stories")
    by_kind = (sorted(home.glob(f"qa{task}_*_{kind}.txt")) for kind in ("test", "train"))
    paths = next(filter(None, by_kind), [])
    if not paths:
        raise MissingError(
            f"there is no file qa{task}_*_test.txt in {folder}",
            expected="a folder of bAbI's tasks (en or en-10k)",
        )
    if len(paths) > 1:
        raise UsageError(
            f"{folder} has several files of qa{task}: {', '.join(path.name for path in paths)}",
            expected="one file of each task",
        )
    stories: list[Story] = []
    statements: list[str] = []
    numbers: dict[int, int] = {}
    lines = paths[0].read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        index, _, rest = line.partition(" ")
        text, *asked = map(str.strip, rest.split("\t"))
        needed: list[int] = []
        try:
            if int(index) == 1:
                statements, numbers = [], {}
            if asked:
                needed = sorted(numbers[int(each)] for each in asked[1].split())
            valid = text and (not asked or (needed and asked[0] in LABELS[task]))
        except (ValueError, LookupError):
            valid = False
        if not valid:
            raise UsageError(
                f"{paths[0]}, line {number} is neither a statement nor a question: {line[:60]!r}",
                expected="'1 Mary went home.', or a number with a question, its answer (one of "
                f"{', '.join(LABELS[task])}) and the numbers of statements before it, separated by tabs",
            )
        if asked:
            stories.append((statements.copy(), needed, text, asked[0]))
        else:
            numbers[int(index)] = len(statements)
            statements.append(text)
    if not stories:
        raise UsageError(
            f"{paths[0]} holds no question", expected="lines with tabs before answer and statements"
        )
    return stories


def _contexts(number: int, settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """A context for each depth. A sample has the same background at every depth."""
    seeded = f"{settings.seed}/qa{number}/{sample}"
    background = background_text(corpus, random.Random(f"{seeded}/background"), tokens=length)
    # Statements of a story: each has 64 tokens of the prompt at least.
    most = max(4, length // 64)
    for percent in sorted(settings.depths):
        depth = percent / 100
        rng = random.Random(seeded)
        if settings.stories is None:
            count = rng.randint(4, min(10, most))
            statements, needed, asked, answer = STORIES[number](rng, count, depth)
        else:
            fitting = [one for one in read_stories(settings.stories, number) if len(one[0]) <= most]
            if not fitting:
                raise UsageError(
                    f"no story of qa{number} in {settings.stories} has at most {most} statements",
                    fix="use greater lengths",
                )
            statements, needed, asked, answer = rng.choice(fitting)
        first, last = needed[0], needed[-1]
        rng = random.Random(f"{seeded}/places")
        before = sorted(rng.uniform(0, depth) for _ in range(first))
        after = sorted(rng.uniform(depth, 1) for _ in range(len(statements) - last - 1))
        depths = [*before, *[depth] * (last - first + 1), *after]
        question = Question(
            prompt=f"\n</context>\n\nQuestion: {asked}\nAnswer:",
            golds=[answer],
            # Upstream never counts a label of the question as an answer.
            candidates=[label for label in LABELS[number] if label.lower() not in asked.lower()],
            about=asked,
            new_tokens=20,
            depth=percent,
            fact=last,
        )
        yield background, list(zip(statements, depths, strict=True)), [question]


def _task(number: int, what: str, hidden: str) -> Task:
    rng = random.Random(f"examples/qa{number}")
    examples = ""
    for _ in range(2):
        statements, _, asked, answer = STORIES[number](rng, 4, rng.random())
        examples += (
            f"<example>\n{' '.join(statements)}\n\nQuestion: {asked}\nAnswer: {answer}\n</example>\n\n"
        )
    return made_up(
        f"babilong_qa{number}",
        partial(_contexts, number),
        head=f"The context below is a long text. Hidden in it are sentences about {hidden}. "
        f"Answer the question at the end from these sentences alone, with one word.\n\n{examples}<context>\n",
        what=f"bAbI {number} in long text: {what}",
        version=2,
        metric="accuracy",
        score=only_label,
        takes=MADE_UP | {"depths", "stories"},
        ranks=True,
        is_over=lambda reply: "." in reply,
    )


_CARRYING = "people who go from room to room and carry things along"

BABILONG = Family(
    "babilong",
    (
        _task(
            1,
            "where someone is",
            "where people are. The last place that a person went to is where the person is",
        ),
        _task(2, "where a thing is that someone carried", _CARRYING),
        _task(3, "where a thing was before", _CARRYING),
        _task(4, "which room lies beside which", "which room lies in which direction of another"),
        _task(5, "who gave what to whom", "who gives what to whom"),
    ),
    mean="accuracy",
)
