"""Tracking, ordinals, chains, association and aggregation, answered by readers who see a prompt's text alone."""

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.association import CITIES
from lengthwise.evaluation.task import Question
from lengthwise.evaluation.tasks import FAMILIES, TASKS
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import as_corpus

NAMES = [
    task.name
    for family in FAMILIES
    if family.name in ("tracking", "ordinals", "chains", "association", "aggregation")
    for task in family.tasks
]
NUMBERS = dict(
    zip(("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"), range(8), strict=True)
)
LANDMARKS = {landmark: city for city, landmark in CITIES.items()}
MOVED = re.compile(r"([A-Z]\w+) (?:spent|set|had|has|was|came) [\w ]*?(?:at|from|to) the (\w+)")
LENGTHS = (3000, 4000)


@pytest.fixture(scope="module")
def questions() -> Callable[[str], list[Question]]:
    tokenizer = tiny_tokenizer()
    corpus = as_corpus([tiny_text(4000, seed=seed) for seed in range(2)])
    made: dict[str, list[Question]] = {}

    def of(name: str) -> list[Question]:
        if name not in made:
            settings = Evaluation(tasks=(name,), lengths=LENGTHS, samples=6)
            made[name] = TASKS[name].questions(settings, tokenizer, corpus)
        return made[name]

    return of


def ideal(question: Question) -> str:
    """The answer, from the text of the prompt alone."""
    context, asked = question.prompt.split("\n\nQuestion: ")
    if asked.startswith("Where is"):
        return [place for who, place in MOVED.findall(context) if who == question.about][-1]
    if "note" in asked:
        number, subject = re.findall(r"the (\w+) note about the (\w+)\?", asked)[0]
        return re.findall(rf"note about the {subject} that begins with the word (\w+)", context)[
            NUMBERS[number]
        ]
    if "variable" in asked:
        values = dict(re.findall(r"variable (\w+) has the value (\d+)", context))
        for name, before in re.findall(r"variable (\w+) gets the value of the variable (\w+)", context):
            values[name] = values[before]
        return values[re.findall(r"the variable (\w+)\?", asked)[0]]
    if "harbour" in asked:
        harbour = re.findall(r"harbour of (\w+)", asked)[0]
        if "flag" in asked:
            flown = re.findall(rf"{harbour} flew a (\w+) flag", context)
            return Counter(flown).most_common(1)[0][0]
        count = context.count(f"called at the harbour of {harbour}.")
        return ("one or two", "three or four", "five or six", "seven or eight")[(count - 1) // 2]
    homes = {
        LANDMARKS.get(place, place): person
        for place, person in re.findall(r"The flat (?:beside the|in) ([^.]+) now belongs to (\w+)\.", context)
    }
    place = re.findall(r"(?:sees the|citizen of|flat in) (.+?)(?: from the window| belong)?\?", asked)[0]
    return homes[LANDMARKS.get(place, place)]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_answers_every_question(questions: Callable[[str], list[Question]], name: str) -> None:
    task = TASKS[name]
    for question in questions(name):
        assert [ideal(question)] == question.golds
        assert question.golds[0] in question.candidates
        assert task.score(question, f" {ideal(question)}.") == 1
        wrong = next(each for each in question.candidates if each not in question.golds)
        assert task.score(question, f" {wrong}.") == 0
        if name != "aggregation_count":
            assert all(each in question.prompt for each in question.candidates)


@pytest.mark.parametrize("name", NAMES)
def test_one_reading_serves_all_questions_of_a_context(questions, name):
    first = [question for question in questions(name) if (question.length, question.unit) == (3000, "s000")]
    assert len(first) == {"ordinals": 8, "association": 8, "tracking": 5}.get(name.split("_")[0], 4)
    assert len({question.context for question in first}) == 1
    assert len({question.key for question in first}) == len(first)
    assert len({question.prompt.partition("\n\nQuestion:")[0] for question in first}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_longer_prompt_has_more_background_alone(questions, name):
    places = "By evening [A-Z]|[A-Z][a-z]+ (?:spent|set|had|has|came)"
    facts = f"Here is a note|The variable|The harbour of|A ship called|The flat|{places}"
    fact = re.compile(rf"(?:{facts})[^.]*\.")
    short, long = ([q for q in questions(name) if q.length == length] for length in LENGTHS)
    for one, other in zip(short, long, strict=True):
        (text, asked), (longer, also) = (each.prompt.split("\n\nQuestion: ") for each in (one, other))
        assert asked == also
        assert fact.findall(text) == fact.findall(longer) != []
        assert len(longer) > len(text)
        assert (one.bucket, one.golds, one.candidates) == (other.bucket, other.golds, other.candidates)


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_without_the_context_is_at_chance(questions, name):
    """Preferring any label, in alphabetical order or as listed, answers as often as guessing."""
    own = questions(name)
    chance = sum(1 / len(question.candidates) for question in own) / len(own)
    rng = random.Random(0)
    order = {
        label: rng.random() for label in sorted({each for question in own for each in question.candidates})
    }
    right = sum(max(question.candidates, key=order.__getitem__) in question.golds for question in own) / len(
        own
    )
    deviation = (chance * (1 - chance) / len(own)) ** 0.5
    assert right == pytest.approx(chance, abs=4 * deviation)


def test_the_last_look_alike_is_right_once(questions: Callable[[str], list[Question]]) -> None:
    """Copying the latest note on a subject, the usual mistake, answers one question of `alike`."""
    for alike in (2, 4, 8):
        own = questions(f"ordinals_{alike}")
        right = 0
        for question in own:
            context, asked = question.prompt.split("\n\nQuestion: ")
            subject = re.findall(r"about the (\w+)\?", asked)[0]
            right += (
                re.findall(rf"about the {subject} that begins with the word (\w+)", context)[-1]
                in question.golds
            )
        assert right * alike == len(own)


def test_the_number_before_the_last_hop_is_right_once(questions: Callable[[str], list[Question]]) -> None:
    """Taking the number that was told last before the asked name answers one question of a context."""
    for hops in (1, 2, 4):
        own = questions(f"chains_{hops}")
        right = 0
        for question in own:
            told = question.prompt.partition(f"The variable {question.about} gets")[0]
            right += re.findall(r"has the value (\d+)", told)[-1] in question.golds
        assert right * 4 == len(own)


def test_hops_lead_away_from_the_value(questions: Callable[[str], list[Question]]) -> None:
    for hops in (0, 1, 2, 4):
        for question in questions(f"chains_{hops}"):
            context, asked = question.prompt.split("\n\nQuestion: ")
            name, steps = re.findall(r"the variable (\w+)\?", asked)[0], 0
            while found := re.findall(rf"variable {name} gets the value of the variable (\w+)", context):
                [name] = found
                steps += 1
            assert steps == hops


def test_the_question_shares_no_word_with_its_needle(questions: Callable[[str], list[Question]]) -> None:
    for name in ("association_landmark", "association_city"):
        for question in questions(name):
            context, asked = question.prompt.split("\n\nQuestion: ")
            [person] = question.golds
            needle = re.findall(rf"The flat[^.]* belongs to {person}\.", context)[0]
            words, others = (set(re.findall(r"\w{4,}", text.lower())) for text in (needle, asked))
            assert not words & others


def test_most_common_is_clear(questions: Callable[[str], list[Question]]) -> None:
    """Copying one of the sentences on a harbour, each as likely, is right in half of the questions."""
    for question in questions("aggregation_commonest"):
        flown = re.findall(rf"{question.about} flew a (\w+) flag", question.prompt)
        assert sorted(Counter(flown).values()) == [1, 2, 2, 5]


@pytest.mark.parametrize(("name", "moves"), [("tracking_one_move", 1), ("tracking_two_moves", 2)])
def test_the_last_place_of_a_person_is_at_the_depth(questions, name, moves):
    for question in questions(name):
        told = MOVED.findall(question.prompt)
        own = [place for who, place in told if who == question.about]
        assert len(set(own)) == len(own) == moves
        assert sorted(place for _, place in told) == question.candidates
        assert 100 * question.reached == pytest.approx(question.depth, abs=2)


EVENLY = {
    "ordinals": "note about the",
    "association": "now belongs to",
    "aggregation": "flew a|called at the harbour",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name.split("_")[0] in EVENLY])
def test_sentences_stand_evenly_in_the_text(questions, name):
    """The k-th of n at (k + 1/2) / n of it, but for whole sentences and the words before the text."""
    for question in questions(name):
        context = question.prompt.split("\n\nQuestion: ")[0]
        begins = [found.start() / len(context) for found in re.finditer(EVENLY[name.split("_")[0]], context)]
        evenly = [(index + 0.5) / len(begins) for index in range(len(begins))]
        assert begins == pytest.approx(evenly, abs=0.06)
