"""Stories checked by readers that know nothing of how they were made."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.babilong import LABELS, STORIES, read_stories
from lengthwise.evaluation.tasks import TASKS
from lengthwise.text import Corpus

_MOVE = re.compile(r"^(\w+) \w+ to the (\w+)\.$")
_TAKE = re.compile(r"^(\w+) (?:picked up|took|got) the (\w+)\.$")
_BESIDE = re.compile(r"^The (\w+) is (\w+) of the (\w+)\.$")
_GIVE = re.compile(r"^(\w+) \w+ the (\w+) to (\w+)\.$")


BABI = Path(__file__).parents[3] / "shared" / "data" / "babi"
"""The real files, which the project does not ship."""


def questions_of(number: int, tokenizer: Any, corpus: Corpus, **settings: Any) -> list[Any]:
    name = f"babilong_qa{number}"
    return TASKS[name].questions(Evaluation(tasks=(name,), **settings), tokenizer, corpus)


def solve(task: int, statements: list[str], question: str) -> set[str]:
    """All right answers, from the statements alone."""
    return {1: _where, 2: _carried, 3: _carried, 4: _beside, 5: _given}[task](statements, question)


def _where(statements: list[str], question: str) -> set[str]:
    person = re.findall(r"Where is (\w+)\?", question)[0]
    moves = [m.groups() for m in map(_MOVE.match, statements) if m]
    return {[room for who, room in moves if who == person][-1]}


def _carried(statements: list[str], question: str) -> set[str]:
    thing = re.findall(r"Where (?:is|was) the (\w+)", question)[0]
    holder, path = None, []
    where: dict[str, str] = {}
    for text in statements:
        if move := _MOVE.match(text):
            where[move[1]] = move[2]
            if move[1] == holder:
                path.append(move[2])
        elif (take := _TAKE.match(text)) and take[2] == thing:
            assert holder is None
            holder = take[1]
    if "before" not in question:
        return {path[-1]}
    last = re.findall(r"before the (\w+)\?", question)[0]
    return {path[index - 1] for index, room in enumerate(path) if room == last and index}


def _beside(statements: list[str], question: str) -> set[str]:
    opposite = {"north": "south", "south": "north", "east": "west", "west": "east"}
    known = set()
    for text in statements:
        one, way, other = _BESIDE.match(text).groups()
        known |= {(one, way, other), (other, opposite[way], one)}
    if found := re.match(r"What is (\w+) of the (\w+)\?", question):
        return {one for one, way, other in known if (way, other) == found.groups()}
    one, way = re.match(r"What is the (\w+) (\w+) of\?", question).groups()
    return {other for first, direction, other in known if (first, direction) == (one, way)}


def _given(statements: list[str], question: str) -> set[str]:
    gifts = [_GIVE.match(text).groups() for text in statements]
    for pattern, asked in (
        (r"Who gave the (?P<thing>\w+) to (?P<to>\w+)\?", 0),
        (r"What did (?P<giver>\w+) give to (?P<to>\w+)\?", 1),
        (r"Who did (?P<giver>\w+) give the (?P<thing>\w+) to\?", 2),
    ):
        if found := re.match(pattern, question):
            known = found.groupdict()
            return {
                gift[asked]
                for gift in gifts
                if all(gift[("giver", "thing", "to").index(k)] == v for k, v in known.items())
            }
    raise AssertionError(question)


@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("place", [0.0, 0.4, 1.0])
def test_stories_have_exactly_one_right_answer(task: int, place: float) -> None:
    answers = set()
    for seed in range(60):
        statements, _, question, answer = STORIES[task](random.Random(seed), 4 + seed % 7, place)
        # Six rooms have five relations.
        assert len(statements) == min(4 + seed % 7, 5 if task == 4 else 10)
        assert solve(task, statements, question) == {answer}
        assert answer in LABELS[task]
        assert answer.lower() not in question.lower()
        answers.add(answer)
    assert len(answers) >= 5, "no answer is preferred"


@pytest.mark.parametrize("task", LABELS)
def test_the_needed_statements_are_enough_and_stand_where_wanted(task: int) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        for place in (0.0, 1.0):
            statements, needed, question, answer = STORIES[task](rng, 6, place)
            assert solve(task, [statements[i] for i in needed], question) == {answer}
            assert (needed[0] == 0) if place == 0 else (needed[-1] == len(statements) - 1)


@pytest.mark.parametrize("task", LABELS)
@pytest.mark.parametrize("depth", [0, 50, 100])
def test_in_a_long_text_the_story_keeps_its_order_and_the_answer_its_depth(task, depth, tokenizer, corpus):
    for question in questions_of(
        task, tokenizer, corpus, lengths=(2000,), depths=(depth,), samples=4, seed=1
    ):
        assert 1980 <= len(tokenizer(question.prompt).input_ids) <= 2000
        context = question.prompt.partition("<context>\n")[2].partition("\n</context>")[0]
        found = [s for s in re.split(r"(?<=\.)\s+", context) if s[0].isupper()]
        assert solve(task, found, question.about) == set(question.golds)
        assert question.golds[0] in question.candidates
        assert not any(label.lower() in question.about.lower() for label in question.candidates)
        assert question.reached * 100 == pytest.approx(depth, abs=6)


def test_examples_are_solved_and_the_instruction_comes_first(tokenizer: Any, corpus: Corpus) -> None:
    [question] = questions_of(1, tokenizer, corpus, lengths=(1500,), depths=(50,), samples=1, seed=0)
    head = question.prompt.partition("<context>")[0]
    for body, asked, answer in re.findall(r"<example>\n(.+)\n\nQuestion: (.+)\nAnswer: (\w+)\n", head):
        assert solve(1, re.split(r"(?<=\.) ", body), asked) == {answer}
    assert question.prompt.endswith("\nAnswer:")


MADE_UP = """\
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel went back to the hallway.
5 Mary went to the office.
6 Where is Mary? \toffice\t5
1 Sandra went to the garden.
2 Where is Sandra? \tgarden\t1
"""


def test_real_stories_are_read(tmp_path: Path, tokenizer: Any, corpus: Corpus) -> None:
    (tmp_path / "qa1_single-supporting-fact_test.txt").write_text(MADE_UP)
    stories = read_stories(str(tmp_path), 1)
    assert [(len(statements), needed, answer) for statements, needed, _, answer in stories] == [
        (2, [0], "bathroom"),
        (4, [3], "office"),
        (1, [0], "garden"),
    ]
    assert stories[0][2] == "Where is Mary?"
    questions = questions_of(
        1, tokenizer, corpus, lengths=(1200,), depths=(0, 100), samples=3, seed=0, stories=str(tmp_path)
    )
    known = {text for statements, *_ in stories for text in statements}
    for question in questions:
        context = question.prompt.partition("<context>\n")[2]
        [statements] = [
            s for s, _, asked, answer in stories if (asked, [answer]) == (question.about, question.golds)
        ]
        places = [context.index(text) for text in statements]
        assert places == sorted(places)
        assert sum(text in context for text in known) == len(statements)


@pytest.mark.parametrize(
    "line", ["Mary moved.", "2 Where? \thall", "2 Where? \thall\t7", "2 Where? \thall\t1"]
)
def test_malformed_stories_name_file_and_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "qa2_two_test.txt").write_text(f"1 Mary went to the hall.\n{line}\n")
    with pytest.raises(UsageError, match=r"qa2_two_test\.txt, line 2"):
        read_stories(str(tmp_path), 2)


@pytest.mark.parametrize("lines", ["", "\n", "1 Mary moved.\n", "1 Mary moved.\n2 Where is Mary? garden 1\n"])
def test_a_file_without_a_question_is_named(tmp_path: Path, lines: str) -> None:
    """Greater lengths, which a file of long stories needs, would not help."""
    (tmp_path / "qa2_two_test.txt").write_text(lines)
    with pytest.raises(UsageError, match=r"qa2_two_test\.txt holds no question"):
        read_stories(str(tmp_path), 2)


def test_several_files_of_one_task_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"qa1_{name}_test.txt").write_text(MADE_UP)
    (tmp_path / "qa1_a_train.txt").write_text(MADE_UP)
    with pytest.raises(UsageError, match=r"qa1_a_test\.txt, qa1_b_test\.txt"):
        read_stories(str(tmp_path), 1)


def test_the_folder_of_stories_is_named_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell does not expand `--stories=~/babi`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "babi").mkdir()
    (tmp_path / "babi" / "qa1_a_test.txt").write_text(MADE_UP)
    assert read_stories("~/babi", 1)
    for bad in ("", "x" * 300):
        with pytest.raises(UsageError, match="stories"):
            read_stories(bad, 1)


def test_no_stories(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="qa3_"):
        read_stories(str(tmp_path), 3)


@pytest.mark.skipif(not BABI.is_dir(), reason="the real bAbI files are not in ../shared/data/babi")
@pytest.mark.parametrize("task", LABELS)
def test_the_real_files_of_babi(task: int) -> None:
    stories = read_stories(str(BABI), task)
    # en-10k: a thousand questions in each test file.
    assert len(stories) == 1000
    assert {answer for *_, answer in stories} == set(LABELS[task])
    assert {len(needed) for _, needed, *_ in stories} == {{1: 1, 2: 2, 3: 3, 4: 1, 5: 1}[task]}
    for statements, needed, asked, answer in stories:
        assert answer.lower() not in asked.lower()
        assert max(needed) < len(statements)
