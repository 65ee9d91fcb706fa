from dataclasses import dataclass

import pytest

from lengthwise.report.html import Section
from lengthwise.results import Results
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
