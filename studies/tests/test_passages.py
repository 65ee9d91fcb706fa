"""Passages with marked tokens."""

from lengthwise_studies.sparsity.passages import passage_html


def test_a_passage_escapes_its_text_and_leaves_out_the_rest():
    pieces = [f" w{index}" for index in range(60)]
    pieces[30] = "<script>alert(1)</script>"
    html = passage_html(pieces=pieces, marked={30: 'a "title"'}, near=55, caption="<i>")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert 'title="a &#34;title&#34;"' in html
    assert "<sub>1</sub>" in html
    assert " w19" not in html
    assert " w20" in html
    assert " w41" not in html
    assert html.count("…") == 2
    assert '<span class="near"> w55 w56 w57 w58</span>' in html
    assert "<strong> w59</strong>" in html


def test_a_marked_blank_is_seen():
    html = passage_html(pieces=["a", " \n", "b", " "], marked={1: "x"}, near=2, caption="")
    assert '<mark title="x">\u2423\u21b5<sub>1</sub></mark>\n' in html
    assert "<strong>\u2423</strong>" in html
