"""What an error tells to do can be done with the verb that prints it."""

import ast
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lengthwise as package
from lengthwise.cli.main import VERBS, fitting, options_in, options_of
from lengthwise.files import cannot_write
from lengthwise.testing import save_tiny_model
from tests.cli.small_runs import refused

OWN = sorted({*VERBS} - {"reproduce"})


def literals() -> Iterator[str]:
    """The text of every `fix` in the package; what is computed in it is left out."""
    for file in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for given in node.keywords if isinstance(node, ast.Call) else ():
                if given.arg == "fix":
                    yield "".join(
                        each.value
                        for each in ast.walk(given.value)
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    )


@cache
def known() -> frozenset[str]:
    return frozenset[str]().union(*map(options_of, OWN))


FIXES = sorted({text for text in literals() if options_in(text)})


def test_every_option_that_a_fix_names_is_of_a_verb() -> None:
    assert len(FIXES) > 30
    assert set().union(*map(options_in, FIXES)) <= known()


@pytest.mark.parametrize(
    "fix",
    [
        "start vLLM with --max-logprobs -1",
        "start the server with a greater maximum (vLLM: --max-model-len), without truncation",
        "on a machine with the hub: hf download --repo-type dataset NAME",
        "torchrun --nproc-per-node 4",
    ],
)
def test_options_of_other_programs_stay(fix: str) -> None:
    assert fitting(fix, frozenset()) == fix


@pytest.mark.parametrize("verb", OWN)
def test_no_verb_tells_to_give_an_option_that_it_has_not(verb: str) -> None:
    own = options_of(verb)
    for text in FIXES:
        fix = fitting(text, own)
        assert fix is None or options_in(fix) <= own
        assert fix == text or options_in(text) - own


def test_what_is_left_is_a_sentence() -> None:
    own = known() - {"--overwrite", "--resume"}
    for text, left in {
        "--resume continues it, --overwrite starts again, or choose another --out": "choose another --out",
        "restore them, or start again with --overwrite or another --out": "restore them or another --out",
        "measure again, with --overwrite or another --out": "measure again or another --out",
    }.items():
        assert fitting(text, own) == left
    # `cp` has no --out.
    fix = cannot_write(Path("x"), OSError()).fix
    assert fix is not None
    assert fitting(fix, frozenset()) == "free space (earlier files are kept)"


def test_card_does_not_tell_to_overwrite(lengthwise, model, text):
    """`card` resumes a run of `limit` with the same settings, and refuses others: it has no --overwrite."""
    pytest.importorskip("matplotlib")
    words = ("card", model, *text, "--max-length", 256, "--windows", 2, "--out", "made")
    assert lengthwise(*words, "--reference", 32).code == 0
    message = refused(lengthwise(*words, "--reference", 64), 2, "other settings", "another --out")
    assert "--overwrite" not in message
    # Of another model under its name.
    own = shutil.copytree(model, "own")
    words = ("card", own, *words[2:-1], "other")
    assert lengthwise(*words, "--reference", 32).code == 0
    save_tiny_model(own, seed=1)
    message = refused(lengthwise(*words, "--reference", 32), 2, "files changed", "another --out")
    assert "--overwrite" not in message
    words = ("card", model, *words[2:-1], "made")
    # Of samples that another version kept.
    results = Path("made/limit/results.json")
    results.write_text(json.dumps(json.loads(results.read_text()) | {"partial": True}))
    lines = Path("made/limit/samples.jsonl")
    lines.write_text(lines.read_text().replace('"checksum"', '"sum"'))
    assert "--overwrite" not in refused(lengthwise(*words, "--reference", 32), 1)
