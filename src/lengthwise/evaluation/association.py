"""Association: the question shares no word with the sentence that answers it (as in NoLiMa).

association_landmark  a person has a flat beside a landmark; the question names its city
association_city      a person has a flat in a city; the question names its landmark
association_literal   a person has a flat in a city; the question names it too: the same without an association

A context holds eight people in eight cities, evenly spread, and is read once and asked about all of them. Ranked are
the eight people. The third task is the control: what a model answers there and not in the others is the association
that it misses, not the length. A sample has the same people at every length; the background may begin elsewhere.
"""

from __future__ import annotations

import random
from functools import partial

from lengthwise.evaluation.haystack import Told, labelled, labelled_task, quarter
from lengthwise.evaluation.task import Family

_HEAD = (
    "Some people have moved to new places in the text below. "
    "Keep in mind where each of them lives now; you will be asked at the end.\n\n"
)
_PEOPLE = (
    "Agatha", "Bruno", "Celia", "Dorian", "Esther", "Gustav", "Helena", "Ivor", "Judith", "Konrad", "Lydia",
    "Magnus",
)  # fmt: skip
CITIES = {
    "Agra": "Taj Mahal", "Amsterdam": "Rijksmuseum", "Athens": "Acropolis", "Barcelona": "Sagrada Familia",
    "Berlin": "Brandenburg Gate", "Brussels": "Atomium", "Budapest": "Chain Bridge",
    "Cape Town": "Table Mountain", "Copenhagen": "Little Mermaid", "Dresden": "Semper Opera",
    "Dubai": "Burj Khalifa", "Edinburgh": "Arthur's Seat", "Florence": "Uffizi", "Istanbul": "Hagia Sophia",
    "Jerusalem": "Wailing Wall", "Krakow": "Wawel Castle", "Kuala Lumpur": "Petronas Towers",
    "Lisbon": "Belem Tower", "London": "Big Ben", "Los Angeles": "Hollywood sign", "Madrid": "Prado",
    "Milan": "La Scala", "Moscow": "Kremlin", "New York": "Statue of Liberty", "Paris": "Eiffel Tower",
    "Philadelphia": "Liberty Bell", "Prague": "Charles Bridge", "Rio de Janeiro": "Christ the Redeemer",
    "Rome": "Colosseum", "Saint Petersburg": "Hermitage", "San Antonio": "Alamo",
    "San Francisco": "Golden Gate Bridge", "Seattle": "Space Needle", "Sydney": "Bondi Beach",
    "Toronto": "CN Tower", "Venice": "Rialto Bridge", "Vienna": "Schonbrunn Palace",
    "Washington": "White House",
}  # fmt: skip
"""Cities with a landmark that has no word in common with the city's name."""

_TOLD = {"landmark": "The flat beside the {} now belongs to {}.", "city": "The flat in {} now belongs to {}."}
_ASKED = {
    "landmark": ("Who sees the {} from the window?", "The one who sees the {} from the window is"),
    "city": ("Who is a citizen of {}?", "The citizen of {} is"),
    "literal": ("To whom does the flat in {} belong?", "The flat in {} now belongs to"),
}


def _tell(told: str, asked: str, rng: random.Random, _: object) -> Told:
    """A question about each person; `told` is what the sentences name, `asked` the question."""
    people = rng.sample(_PEOPLE, 8)
    cities = rng.sample(sorted(CITIES), len(people))
    places = [(index + 0.5) / len(people) for index in range(len(people))]
    names = {"city": cities, "landmark": [CITIES[city] for city in cities], "literal": cities}
    question, answer = _ASKED[asked]
    questions = [
        labelled(
            question.format(name), answer.format(name), person, people, about=name, bucket=quarter(place)
        )
        for person, name, place in zip(people, names[asked], places, strict=True)
    ]
    facts = [
        (_TOLD[told].format(name, person), place)
        for person, name, place in zip(people, names[told], places, strict=True)
    ]
    return facts, questions


_TASKS = (
    ("landmark", "landmark", "city", "who lives beside the landmark of a city"),
    ("city", "city", "landmark", "who lives in a landmark's city"),
    ("literal", "city", "literal", "who lives in a city, literally"),
)
"""Name, what sentences name, what questions name, and what is asked in words."""

ASSOCIATION = Family(
    "association",
    tuple(
        labelled_task(
            f"association_{name}",
            partial(_tell, told, asked),
            seed="association",
            head=_HEAD,
            version=1,
            what=what,
        )
        for name, told, asked, what in _TASKS
    ),
)
