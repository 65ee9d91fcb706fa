from __future__ import annotations

from lengthwise.testing import save_tiny_model

SIZES = ("--max-length", 96, "--short", 32, "--stride", 32, "--windows", 4)


def test_key_tokens_of_an_earlier_run(lengthwise, model, text, tmp_path):
    save_tiny_model(tmp_path / "other", seed=1)
    assert lengthwise("longppl", model, *text, *SIZES, "--out", "first").code == 0
    again = ("longppl", "other", *text, "--key-tokens", "first")
    assert lengthwise(*again, *SIZES, "--out", "second").code == 0
    assert lengthwise("difference", "first", "second").code == 0
    done = lengthwise(*again, *SIZES[:-2], "--windows", 3)
    assert done.code == 2
    assert "found with another windows" in done.err
    assert "fix: --max-length 96 --short 32 --stride 32 --windows 4 --seed 0" in done.err
    done = lengthwise(*again, *SIZES, "--evaluator", model)
    assert done.code == 2
    assert "--evaluator" in done.err
    plan = lengthwise(*again, *SIZES, "--dry-run", "--json").json
    assert plan["tokens_to_run"] == 4 * 96
