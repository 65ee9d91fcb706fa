from dataclasses import dataclass
from html import unescape

import pytest

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise_studies.claims import tally
from lengthwise_studies.skeleton import Part, Study, produce_page


@dataclass(frozen=True)
class Size:
    """The study has one."""


@pytest.mark.parametrize(
    ("sections", "lead", "seen"),
    [
        # A page of one part says its first paragraph once, at the top.
        ([["What was done.", "What came out."]], (), {"What was done.": 1, "What came out.": 1}),
        ([["What was done."], ["More."]], (), {"What was done.": 1, "More.": 1}),
        ([["What was done."]], ("In short.",), {"What was done.": 1, "In short.": 1}),
    ],
)
def test_what_a_page_begins_with(sections, lead, seen, tmp_path):
    made = [Section(title=f"part {number}", paragraphs=said) for number, said in enumerate(sections)]
    results = Results(kind="sentences", model_name="m", config={}, rows=[])
    part = Part(run=lambda *_, **__: results, sections=lambda *_: made, scales={"default": Size()})
    page = produce_page(Study(title="A study", parts=(part,), lead=lead), tmp_path).page.read_text()
    assert {sentence: page.count(sentence) for sentence in seen} == seen


def test_the_verdicts_are_counted_before_anything_else(tmp_path):
    """Each under its own name, whatever reason follows it; of a rule that is neither, in other words."""
    verdicts = [
        "reproduced",
        "not decided (could see 0.1)",
        "not decided: too few",
        "holds",
        "holds for 3 of 10",
    ]
    table = Table(columns=("claim", "verdict"), rows=[("c", each) for each in verdicts])
    said = 'The verdicts on 5 claims: 1 "reproduced", 2 "not decided", 1 "holds", 1 in other words.'
    assert tally([table]) == [said]
    assert tally([Table(columns=("claim",), rows=[("c",)])]) == []
    made = [Section(title="part", paragraphs=["What was done."], tables=[table])]
    results = Results(kind="sentences", model_name="m", config={}, rows=[])
    part = Part(run=lambda *_, **__: results, sections=lambda *_: made, scales={"default": Size()})
    page = produce_page(Study(title="A study", parts=(part,)), tmp_path).page.read_text()
    assert unescape(page).index(said) < unescape(page).index("What was done.")
