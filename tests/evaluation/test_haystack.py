import random
import re
from typing import Any

import pytest

from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.haystack import background_text, build_haystack
from lengthwise.evaluation.needle import NEEDLE
from lengthwise.evaluation.task import DoesNotFit, Question
from lengthwise.evaluation.tasks import TASKS
from lengthwise.testing import tiny_text
from lengthwise.text import Corpus, as_corpus

HEAD, TAIL = "Read this.\n\n", "\n\nWhat is it?"
DEPTHS = (0, 25, 50, 75, 100)


def tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text).input_ids)


def built(
    tokenizer: Any, corpus: Corpus, facts: Any, *, length: int, seed: int, head: str = "", tail: str = ""
) -> tuple[str, float | None]:
    """The prompt of one question, and the depth that the first fact got."""
    background = background_text(corpus, random.Random(seed), tokens=length)
    end = Question(prompt=tail, golds=[], fact=0 if facts else None)
    [question] = build_haystack(
        tokenizer, [end], head=head, background=background, facts=facts, length=length
    )
    return question.prompt, question.reached


@pytest.mark.parametrize("length", [150, 400, 1111])
@pytest.mark.parametrize("depth", [0.0, 0.3, 0.5, 1.0])
def test_length_in_tokens_and_depth(tokenizer: Any, corpus: Corpus, length: int, depth: float) -> None:
    fact = ("QXZ is the word.", depth)
    prompt, reached = built(tokenizer, corpus, [fact], length=length, seed=1, head=HEAD, tail=TAIL)
    assert length - 12 <= tokens(tokenizer, prompt) <= length
    assert prompt.startswith(HEAD)
    assert prompt.endswith(TAIL)
    context = prompt[len(HEAD) : -len(TAIL)]
    before, _, after = context.partition(fact[0])
    share = tokens(tokenizer, before) / (tokens(tokenizer, before) + tokens(tokenizer, after))
    # A sentence of the text has up to forty tokens of this tokenizer.
    assert share == pytest.approx(depth, abs=25 / length)
    assert reached == pytest.approx(share, abs=4 / length)


def test_several_facts_keep_their_order_even_at_one_place(tokenizer: Any, corpus: Corpus) -> None:
    facts = [(f"fact {index}.", place) for index, place in enumerate((0.0, 0.0, 0.5, 0.5, 1.0, 1.0))]
    prompt, _ = built(tokenizer, corpus, facts, length=600, seed=2)
    assert re.findall(r"fact (\d)", prompt) == list("012345")
    assert prompt.startswith("fact 0. fact 1.")
    assert prompt.endswith("fact 4. fact 5.")


def test_tails_share_one_context_that_fits_the_longest(tokenizer: Any, corpus: Corpus) -> None:
    background = background_text(corpus, random.Random(3), tokens=300)
    tails = [" a?", " what is the number of the queen?"]
    ends = [Question(prompt=tail, golds=[]) for tail in tails]
    questions = build_haystack(
        tokenizer, ends, head="", background=background, facts=[("x.", 0.5)], length=300
    )
    prompts = [question.prompt for question in questions]
    assert prompts[0].removesuffix(tails[0]) == prompts[1].removesuffix(tails[1])
    assert 288 <= tokens(tokenizer, prompts[1]) <= 300


def test_too_short_a_length_says_what_is_needed(tokenizer: Any, corpus: Corpus) -> None:
    with pytest.raises(DoesNotFit) as error:
        built(tokenizer, corpus, [], length=20, seed=1, head=HEAD, tail=TAIL)
    [least] = error.value.tokens.values()
    built(tokenizer, corpus, [], length=least, seed=1, head=HEAD, tail=TAIL)


@pytest.mark.parametrize("name", ["needle_single", "needle_multi_key"])
@pytest.mark.parametrize("sentence", ["\u738b\u5728\u82b1\u56ed\u91cc\u8d70\u8def\u3002", "q" * 190 + ". "])
def test_a_sentence_that_cannot_be_cut_is_no_prompt_without_a_background(
    tokenizer: Any, name: str, sentence: str
) -> None:
    corpus = as_corpus([sentence * 900])
    with pytest.raises(DoesNotFit) as error:
        made(name, tokenizer, corpus, lengths=(64,))
    enough = error.value.tokens[name]
    for length in (*range(64, enough, 48), enough):
        try:
            questions = made(name, tokenizer, corpus, lengths=(length,))
        except DoesNotFit:
            assert length < enough
        else:
            assert all(sentence[:8] in question.prompt for question in questions)


def test_a_short_corpus_begins_again(tokenizer: Any) -> None:
    short = as_corpus(["One two. Three."])
    text = background_text(short, random.Random(0), tokens=50)
    assert text[:4] == ["One two.", "Three.", "One two.", "Three."]
    assert sum(map(len, text)) >= 50


@pytest.mark.parametrize(
    ("text", "off"),
    # Sentences of Chinese, whose stop has no space after it; and letters without any stop.
    [("\u738b\u5728\u82b1\u56ed\u91cc\u8d70\u8def\u3002" * 900, 0.1), ("abcdefg" * 3000, 0.5)],
)
def test_text_without_spaces_fills_the_length(tokenizer: Any, text: str, off: float) -> None:
    corpus = as_corpus([text])
    prompt, reached = built(tokenizer, corpus, [("x.", 0.5)], length=800, seed=1)
    assert 700 <= tokens(tokenizer, prompt) <= 800
    assert reached == pytest.approx(0.5, abs=off)


def test_background_begins_with_a_sentence_of_a_random_place() -> None:
    text = tiny_text(5000)
    long = as_corpus([text])
    found = {background_text(long, random.Random(seed), tokens=50)[0] for seed in range(8)}
    assert len(found) > 4
    sentences = {" ".join(s.split()) for s in re.split(r"(?<=\.)\s+", text)}
    assert found <= sentences


def made(name: str, tokenizer: Any, corpus: Corpus, **overrides: Any) -> list[Any]:
    settings = Evaluation(tasks=(name,), **({"lengths": (512,), "samples": 2} | overrides))
    return TASKS[name].questions(settings, tokenizer, corpus)


def test_single_needles(tokenizer: Any, corpus: Corpus) -> None:
    questions = made("needle_single", tokenizer, corpus)
    assert len({question.key for question in questions}) == len(questions) == 2 * len(DEPTHS)
    for question in questions:
        [gold] = question.golds
        assert question.prompt.count(gold) == 1
        assert [other for other in question.candidates if other in question.prompt] == [gold]
        assert len(set(question.candidates)) == 8
        assert question.reached * 100 == pytest.approx(question.depth, abs=8)
        key = re.findall(r"Answer: The locker number of the (.+) is$", question.prompt)[0]
        assert f"The locker number of the {key} is {gold}." in question.prompt
    # Paired: the same needle at all depths of a sample.
    assert len({tuple(question.golds) for question in questions if question.unit == "s000"}) == 1


@pytest.mark.parametrize("depths", [DEPTHS, (50,)])
def test_multi_key_needles(tokenizer: Any, corpus: Corpus, depths: tuple[float, ...]) -> None:
    questions = made("needle_multi_key", tokenizer, corpus, depths=depths, samples=1)
    assert [question.depth for question in questions] == list(depths)
    assert len({question.context for question in questions}) == 1
    contexts = {question.prompt.partition("\n\nQuestion:")[0] for question in questions}
    assert len(contexts) == 1, "one context for all depths"
    [context] = contexts
    for question in questions:
        key = re.findall(r"Answer: The locker number of the (.+) is$", question.prompt)[0]
        assert f"The locker number of the {key} is {question.golds[0]}." in context
        assert all(number in context for number in question.candidates)
        assert question.golds[0] in question.candidates
        assert len(question.candidates) == max(4, len(depths))
    places = [context.index(question.golds[0]) for question in questions]
    assert places == sorted(places)


def test_multi_value_needles(tokenizer: Any, corpus: Corpus) -> None:
    first, second = made("needle_multi_value", tokenizer, corpus)
    assert all(first.prompt.count(number) == 1 for number in first.golds)
    assert len(set(first.golds)) == 3
    assert first.golds != second.golds
    assert first.depth is None


@pytest.mark.parametrize("kind", [task.name for task in NEEDLE.tasks])
def test_the_seed_decides(kind: str, tokenizer: Any, corpus: Corpus) -> None:
    again = made(kind, tokenizer, corpus)
    assert made(kind, tokenizer, corpus) == again
    assert made(kind, tokenizer, corpus, seed=1) != again
    assert made(kind, tokenizer, corpus, samples=3)[: len(again)] == again
