"""Ordinals: which of several look-alikes comes first, second, third (as in MRCR).

ordinals_2, ordinals_4, ordinals_8  as many notes on one subject; the question asks for the first word of one of them

A context holds eight notes, evenly spread: four subjects with two notes each, two with four, or one with eight. It is
read once and asked about every note. Ranked are the words of all notes on the subject, so a reader who finds the
subject and not the place guesses among them. A sample has the same notes at every length; the background may begin
elsewhere.
"""

from __future__ import annotations

import random
from functools import partial

from lengthwise.evaluation.haystack import Told, labelled, labelled_task, quarter
from lengthwise.evaluation.task import Family

_NOTES = 8

_HEAD = (
    "Somebody left notes in the text below, several on the same subject. "
    "Keep in mind how each of them begins, and in which order they come; you will be asked at the end.\n\n"
)
_SUBJECTS = (
    "cellar", "comet", "dentist", "garden", "harvest", "orchestra", "puppet", "snowfall", "tunnel", "violin",
)  # fmt: skip
_WORDS = (
    "amber", "basket", "copper", "dragon", "engine", "feather", "ginger", "hammer", "island", "jacket", "kettle",
    "ladder", "marble", "needle", "orange", "pepper", "ribbon", "saddle", "timber", "velvet", "walnut", "yellow",
)  # fmt: skip
_ORDER = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def _tell(alike: int, rng: random.Random, _: object) -> Told:
    """A question about each note."""
    subjects = rng.sample(_SUBJECTS, _NOTES // alike) * alike
    rng.shuffle(subjects)
    words = rng.sample(_WORDS, _NOTES)
    places = [(index + 0.5) / _NOTES for index in range(_NOTES)]
    questions = []
    for index, (subject, word) in enumerate(zip(subjects, words, strict=True)):
        own = [other for on, other in zip(subjects, words, strict=True) if on == subject]
        note = f"the {_ORDER[own.index(word)]} note about the {subject}"
        questions.append(
            labelled(
                f"Which word is at the beginning of {note}?",
                f"T{note[1:]} begins with the word",
                word,
                own,
                about=note,
                bucket=quarter(places[index]),
            )
        )
    facts = [
        (f"Here is a note about the {subject} that begins with the word {word}.", place)
        for subject, word, place in zip(subjects, words, places, strict=True)
    ]
    return facts, questions


ORDINALS = Family(
    "ordinals",
    tuple(
        labelled_task(
            f"ordinals_{alike}",
            partial(_tell, alike),
            seed=f"ordinals/{alike}",
            head=_HEAD,
            version=1,
            what=f"which of {alike} notes on a subject comes when",
        )
        for alike in (2, 4, 8)
    ),
)
