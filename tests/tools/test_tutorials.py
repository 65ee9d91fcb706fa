"""The tutorials run as they are printed, on a tiny model."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

import lengthwise
from lengthwise.cli.main import run
from tools import tutorials as pages

# PEFT asks transformers for a property under its old name; TRL sets an argument under its old name. Without a GPU
# torch says that it pins no memory.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning"),
]


@pytest.fixture
def command(offline: None, cache: Path, start_ranks: Callable[..., str]) -> Callable[[list[str]], str]:
    """`lengthwise ...` in this process; `torchrun ...` as forks with torchrun's variables."""

    def call(words: list[str]) -> str:
        if words[0] == "torchrun":
            assert words[1:5] == ["--nproc-per-node", "2", "-m", "lengthwise"]
            return start_ranks(Path(lengthwise.__file__).with_name("__main__.py"), *words[5:])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert run(words[1:]) == 0, words
        return printed.getvalue()

    return call


@pytest.mark.parametrize("page", pages.PAGES, ids=[page.stem for page in pages.PAGES])
def test_it_runs_in_small(page: Path, command: Callable[[list[str]], str], tmp_path: Path) -> None:
    if page.stem == "own-loop":
        pytest.importorskip("trl")
    (tmp_path / "page").mkdir()
    pages.make_small(tmp_path / "page")
    pages.PageRun(page, tmp_path / "page", command, small=True)()


def test_what_a_page_says_is_run_and_written(tmp_path: Path) -> None:
    """Blocks in order with one set of names, marks kept, outputs filled; a stale replacement is found."""
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- in small: 5 => 7 -->\n"
        "```python\nnumber = 5\n```\n"
        "<!-- not run: no -->\n```bash\nexit 1\n```\n"
        "<!-- small only: yes -->\n```python\nnumber += 1\n```\n"
        "```python\nprint(number)\n```\n\n<!-- output -->\nold\n<!-- /output -->\n"
        "```bash\nlengthwise a 'b c' \\\n  d\necho more\n```\n\n<!-- output -->\n<!-- /output -->\n"
    )
    called: list[list[str]] = []

    def command(words: list[str]) -> str:
        called.append(words)
        return "said\n"

    written = pages.PageRun(page, tmp_path, command, small=False)()
    assert called == [["lengthwise", "a", "b c", "d"]]
    assert "<!-- output -->\n```text\n5\n```\n<!-- /output -->" in written
    assert "```text\nsaid\nmore\n```" in written
    page.write_text(written)
    small = pages.PageRun(page, tmp_path, command, small=True)
    assert small() == written
    assert small._names["number"] == 8
    page.write_text(written.replace("5 => 7", "6 => 7"))
    with pytest.raises(AssertionError):
        pages.PageRun(page, tmp_path, command, small=True)()
