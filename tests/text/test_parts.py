"""Of a large text no more is tokenized than the windows need, and the answer says so."""

import pytest

from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.text import tokens as module

LINE = " ".join([tiny_text(4_000)] * 6)


@pytest.mark.parametrize(("kind", "some"), [("one line", 8), ("many rows", 100)])
def test_a_verb_tokenizes_what_its_windows_need(kind, some, lengthwise, tmp_path, monkeypatch):
    """Windows of which the first part has enough, then of which it has too few, and all of the text."""
    model, text = save_tiny_model(tmp_path / "model"), tmp_path / "text.txt"
    text.write_text(LINE)
    if kind == "many rows":
        text = tmp_path / "text.jsonl"
        text.write_text(
            "".join(f'{{"text": "{tiny_text(60, seed=n)}"}}\n'.replace(".\n ", ". ") for n in range(400))
        )
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    whole = lengthwise("ppl", model, "--text", text, "--lengths", 32, "--windows", 2, "--json").json
    monkeypatch.setattr(module, "FIRST", 6_400)
    tokens, found = [], []
    for windows in (2, some, 100_000):
        done = lengthwise(
            "ppl", model, "--text", text, "--lengths", 32, "--windows", windows, "--dry-run", "--json"
        )
        tokens.append(done.json["text_tokens"])
        found.append(done.json["tokens_to_run"] // 32)
    assert tokens[0] < tokens[1] < tokens[2] == whole["provenance"]["text"]["tokens"]
    assert found[:2] == [2, some]
    assert found[2] > some
    run = lengthwise("ppl", model, "--text", text, "--lengths", 32, "--windows", 2, "--json").json
    assert run["provenance"]["text"]["tokens"] == tokens[0]
    assert (
        run["provenance"]["text"]["corpus_fingerprint"] == whole["provenance"]["text"]["corpus_fingerprint"]
    )
    assert any("need no more of the text" in note for note in run["notes"])
    assert not any("need no more of the text" in note for note in whole["notes"])
