"""The study of a model with 32,768 tokens: its commands are the command line's, its texts are neighbours."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.cli.main import command_line
from lengthwise_studies.context_32k.commands import SCALES, commands
from lengthwise_studies.context_32k.texts import joined


@pytest.mark.parametrize("scale", SCALES)
def test_every_command_is_one_of_the_command_line_and_has_its_own_folder(scale: str, tmp_path: Path) -> None:
    [extend, *others] = map(shlex.split, commands(SCALES[scale], tmp_path / "my texts", tmp_path))
    every = [extend[extend.index("||") + 1 :], *others]
    assert {program for program, *_ in every} == {"lengthwise"}
    assert {words[1] for words in every} == {"limit", "compare", "eval", "extend"}
    for _, *words in every:
        command_line(words).parse_args(words, exit_on_error=False, print_error=False)
    folders = [words[words.index("--out") + 1] for words in every]
    assert len(set(folders)) == len(folders)
    read = {words[2] for words in others} - {SCALES[scale].model, SCALES[scale].other}
    assert read == {folders[0]}


def test_neighbours_of_a_package_are_joined_until_they_are_long_enough() -> None:
    documents = {"a/1": "x " * 3, "a/2": "y " * 3, "a/3": "z " * 9, "b/1": "u " * 2, "b/2": "v " * 4}

    def words(text: str, *, add_special_tokens: bool) -> SimpleNamespace:
        assert not add_special_tokens
        return SimpleNamespace(input_ids=text.split())

    found = dict(joined(documents, words, 6))
    assert {name: text.split() for name, text in found.items()} == {
        "a-1-and-1-more": [*"xxx", *"yyy"],
        "a-3-and-0-more": [*"zzzzzzzzz"],
        "b-1-and-1-more": [*"uu", *"vvvv"],
    }
