from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex
from tokenizers.normalizers import Replace

import lengthwise
from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.prompts import answer_tokens, fit, unfinished_thoughts
from lengthwise.evaluation.task import Question
from lengthwise.evaluation.tasks import TASKS
from lengthwise.measure.measurement import Item
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus
from tests.tiny_folders import writing

TEXT = tiny_text(60)


def size(tokenizer: Any) -> int:
    return len(tokenizer(TEXT).input_ids)


def test_a_prompt_that_fits_is_not_touched(tokenizer: Any) -> None:
    whole = tuple(tokenizer(TEXT).input_ids)
    assert fit(tokenizer, TEXT, len(whole), None) == fit(tokenizer, TEXT, None, None) == (whole, 0)


@pytest.mark.parametrize("limit", [20, 21])
def test_the_middle_is_cut_as_longbench_cuts_it(tokenizer: Any, limit: int) -> None:
    found, cut = fit(tokenizer, TEXT, limit, "middle")
    ids = tokenizer(TEXT).input_ids
    half = int(limit / 2)
    joined = tokenizer.decode(ids[:half]) + tokenizer.decode(ids[-half:])
    assert list(found) == tokenizer(joined).input_ids
    assert cut == len(ids) - 2 * half
    assert tokenizer.decode(found) == joined


def test_the_beginning_is_cut(tokenizer: Any) -> None:
    ids, cut = fit(tokenizer, TEXT, 20, "left")
    assert list(ids) == tokenizer(TEXT).input_ids[-20:]
    assert cut == size(tokenizer) - 20


def test_over_the_limit_without_a_truncation_nothing_is_cut(tokenizer: Any) -> None:
    assert fit(tokenizer, TEXT, 20, None) == (tuple(tokenizer(TEXT).input_ids), size(tokenizer) - 20)


@pytest.mark.parametrize("truncation", ["middle", "left"])
def test_the_chat_template_is_put_around_what_is_left(truncation: Any) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>"
    plain, cut = fit(tokenizer, TEXT, 20, truncation)
    chat, cut_with_chat = fit(tokenizer, TEXT, 20, truncation, chat=True)
    assert tokenizer.decode(chat) == f"<user>{tokenizer.decode(plain)}<answer>"
    assert cut_with_chat == cut


TEMPLATES = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}": True,
    "You help. {{ strftime_now('%Y') }}{% for m in messages %} {{ m.content }}{% endfor %}<think>": True,
    "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}<answer>": False,
    "{{ messages[0].content[:40] }}": False,
    "{{ raise_exception('no user') }}": False,
}
"""Chat templates; whether they write all that a user says."""


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_writes_the_whole_prompt_or_is_refused(template: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    if not TEMPLATES[template]:
        with pytest.raises(UsageError, match="template"):
            fit(tokenizer, TEXT, None, None, chat=True)
        return
    ids, _ = fit(tokenizer, TEXT, None, None, chat=True)
    assert TEXT.strip() in tokenizer.decode(ids)
    assert ("2024" in tokenizer.decode(ids)) == ("strftime" in template), "the same on every day"


def test_one_place_applies_chat_templates_with_one_date() -> None:
    home = Path(lengthwise.__file__).parent
    assert [p.name for p in home.rglob("*.py") if ".apply_chat_template(" in p.read_text()] == ["chats.py"]


@pytest.mark.parametrize("before", ["", "<think>"])
def test_replies_that_end_inside_a_thought_are_counted(before: str) -> None:
    """Whether the reply or the chat template has begun it."""
    tokenizer = tiny_tokenizer()
    replies = ["<think> the king", "<think> the king </think> the river", "the river"]
    ids = tuple(tokenizer(f"{TEXT}{before}").input_ids)
    sizes: dict[str, Any] = {"tokens": 1, "longest": 1, "stretch": 0}
    items = [
        Item(
            key=reply, facts={"task": "trec"}, content=Question(prompt="", golds=[], key="", ids=ids), **sizes
        )
        for reply in replies
    ]
    records = {reply: {"reply": reply} for reply in replies}
    [note] = unfinished_thoughts(tokenizer, items, records)
    assert note.startswith(f"{2 if before else 1} of 3 replies of trec")
    assert unfinished_thoughts(tokenizer, items, {key: {"score": 1.0} for key in records}) == []


@pytest.mark.parametrize("before", ["", "<|begin|> "])
@pytest.mark.parametrize("limit", [None, 20])
def test_a_prompt_goes_on_where_the_tokenizer_would_end_a_text(before: str, limit: int | None) -> None:
    plain, ending = (writing(f"{before}$A{after}") for after in ("", " <|end|>"))
    assert ending(TEXT).input_ids[-1] == plain.eos_token_id
    assert fit(ending, TEXT, limit, "middle") == fit(plain, TEXT, limit, "middle")


def test_answers_as_they_stand_after_the_prompt(tokenizer: Any) -> None:
    prompt = "Answer:"
    ids = answer_tokens(tokenizer, prompt, " garden")
    assert [*tokenizer(prompt).input_ids, *ids] == tokenizer(f"{prompt} garden").input_ids


def test_an_answer_that_would_merge_with_the_prompt_is_taken_alone(tokenizer: Any) -> None:
    prompt, answer = "the kin", "g"
    before, both = tokenizer(prompt).input_ids, tokenizer(prompt + answer).input_ids
    assert both[: len(before)] != before
    assert answer_tokens(tokenizer, prompt, answer) == tuple(tokenizer(answer).input_ids)


def test_answers_that_the_tokenizer_makes_alike_are_not_ranked(corpus: Corpus) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = Replace(Regex("[0-9]"), "0")
    settings: dict[str, Any] = {"tasks": ("needle_single",), "lengths": (256,), "samples": 1}
    ranked = Evaluation(mode="likelihood", **settings)
    with pytest.raises(UsageError, match="the same ones"):
        TASKS["needle_single"].items(ranked, tokenizer, corpus)
    assert TASKS["needle_single"].items(ranked, tiny_tokenizer(), corpus)
