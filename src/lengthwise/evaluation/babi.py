"""Stories like those of bAbI's tasks 1 to 5: generated, or the real files from a folder.

A story is statements in order, a question, and which statements its answer needs. In a generated story the
needed statements are at `place` (0 makes them the first, 1 the last); statements about others fill the rest.
People, rooms and things are those of bAbI, so its labels apply; sentences and stories are our own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

from lengthwise.errors import MissingError, UsageError

_PEOPLE = ("Mary", "John", "Daniel", "Sandra")
_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_THINGS = ("apple", "football", "milk")
_GIVERS = ("Bill", "Fred", "Jeff", "Mary")

# What BABILong's scorer looks for in a reply.
LABELS: dict[int, tuple[str, ...]] = {1: _ROOMS, 2: _ROOMS, 3: _ROOMS, 4: _ROOMS, 5: (*_GIVERS, *_THINGS)}

_MOVES = ("{} went to the {}.", "{} walked to the {}.", "{} moved to the {}.", "{} hurried to the {}.")
_TAKES = ("{} picked up the {}.", "{} took the {}.", "{} got the {}.")
_GIVES = ("{} gave the {} to {}.", "{} handed the {} to {}.", "{} passed the {} to {}.")
_DIRECTIONS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


@dataclass(frozen=True)
class Story:
    """`needed` are the indices of the statements that answer the question."""

    statements: tuple[str, ...]
    needed: tuple[int, ...]
    question: str
    answer: str


def make_story(task: int, rng: random.Random, *, statements: int, place: float) -> Story:
    """A story of about `statements` statements for task 1 .. 5, its needed ones together at `place` in 0 .. 1."""
    return _MAKERS[task](rng, statements, place)


def _moved(rng: random.Random, story: list[str], where: dict[str, str], person: str) -> None:
    """The person goes to another room."""
    where[person] = rng.choice([room for room in _ROOMS if room != where.get(person)])
    story.append(rng.choice(_MOVES).format(person, where[person]))


def _one_fact(rng: random.Random, statements: int, place: float) -> Story:
    person = rng.choice(_PEOPLE)
    others = [other for other in _PEOPLE if other != person]
    before = round(place * (statements - 1))
    story: list[str] = []
    where: dict[str, str] = {}
    for _ in range(before):
        _moved(rng, story, where, rng.choice(_PEOPLE))
    _moved(rng, story, where, person)
    for _ in range(statements - 1 - before):
        _moved(rng, story, where, rng.choice(others))
    return Story(tuple(story), (before,), f"Where is {person}?", where[person])


def _carried(rng: random.Random, statements: int, place: float, *, rooms: int) -> Story:
    """Someone takes a thing and carries it through `rooms` rooms. Nobody else touches it."""
    person, thing = rng.choice(_PEOPLE), rng.choice(_THINGS)
    others = [other for other in _PEOPLE if other != person]
    story: list[str] = []
    where: dict[str, str] = {}
    between = rng.randrange(2) if statements > rooms + 2 else 0
    before = round(place * max(0, statements - (rooms + 1 + between)))
    for _ in range(before):
        _moved(rng, story, where, rng.choice(_PEOPLE))
    needed = [len(story)]
    story.append(rng.choice(_TAKES).format(person, thing))
    path: list[str] = []
    for _ in range(rooms):
        for _ in range(between):
            _moved(rng, story, where, rng.choice(others))
            between = 0
        needed.append(len(story))
        _moved(rng, story, where, person)
        path.append(where[person])
    while len(story) < statements:
        _moved(rng, story, where, rng.choice(others))
    if rooms == 1:
        return Story(tuple(story), tuple(needed), f"Where is the {thing}?", path[-1])
    question = f"Where was the {thing} before the {path[-1]}?"
    return Story(tuple(story), tuple(needed), question, path[-2])


def _relation(rng: random.Random, statements: int, place: float) -> Story:
    """Rooms on a grid, each beside the one before; a question about one pair."""
    count = min(statements, len(_ROOMS) - 1)
    rooms = rng.sample(_ROOMS, count + 1)
    at, taken = (0, 0), {(0, 0)}
    story: list[str] = []
    wanted = round(place * (count - 1))
    question = answer = ""
    for index, (room, following) in enumerate(pairwise(rooms)):
        ways = {
            name: step
            for name, step in _DIRECTIONS.items()
            if (at[0] + step[0], at[1] + step[1]) not in taken
        }
        # A walk of five steps always has a free neighbour.
        name = rng.choice(sorted(ways))
        at = (at[0] + ways[name][0], at[1] + ways[name][1])
        taken.add(at)
        story.append(f"The {following} is {name} of the {room}.")
        if index == wanted:
            if rng.random() < 0.5:
                question, answer = f"What is {name} of the {room}?", following
            else:
                question, answer = f"What is the {following} {name} of?", room
    return Story(tuple(story), (wanted,), question, answer)


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
    story = tuple(rng.choice(_GIVES).format(*gift) for gift in gifts)
    return Story(story, (wanted,), question, asked[kind])


_MAKERS = {
    1: _one_fact,
    2: partial(_carried, rooms=1),
    3: partial(_carried, rooms=2),
    4: _relation,
    5: _given,
}


@lru_cache(maxsize=8)
def read_stories(folder: str, task: int) -> tuple[Story, ...]:
    """The stories of the file `qa<task>_*_test.txt` (or `_train`, if there is no test file) in a folder.

    A story for each question: the statements before it, without earlier questions.

    Raises:
        MissingError: no such file.
        UsageError: a line that is not in bAbI's format; the error names file and line.
    """
    found = [
        path for kind in ("test", "train") for path in sorted(Path(folder).glob(f"qa{task}_*_{kind}.txt"))
    ]
    if not found:
        raise MissingError(
            f"there is no file qa{task}_*_test.txt in {folder}",
            expected="a folder of bAbI's tasks (en or en-10k)",
        )
    stories: list[Story] = []
    statements: list[str] = []
    numbers: dict[int, int] = {}
    lines = found[0].read_text(encoding="utf-8", errors="replace").split("\n")
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
                f"{found[0]}, line {number} is neither a statement nor a question: {line[:60]!r}",
                expected="'1 Mary went home.', or a number with a question, its answer (one of "
                f"{', '.join(LABELS[task])}) and the numbers of statements before it, separated by tabs",
            )
        if asked:
            stories.append(Story(tuple(statements), tuple(needed), text, asked[0]))
        else:
            numbers[int(index)] = len(statements)
            statements.append(text)
    return tuple(stories)
