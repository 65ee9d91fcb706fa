import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.testing import tiny_tokenizer
from lengthwise.text import as_corpus, load_corpus, tokenize


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pairs(spec: object, **options) -> list[tuple[str, str]]:
    corpus = load_corpus(str(spec), **({"split": "all"} | options))
    return list(corpus.documents.items())


@pytest.mark.parametrize("spec", ["./nothing", "/no/such/folder", "nothing.txt", "missing/"])
def test_missing_path(spec: str):
    with pytest.raises(MissingError):
        load_corpus(spec)


def test_unknown_name_and_split_name_the_nearest():
    with pytest.raises(UsageError, match="'books'"):
        load_corpus("boks")
    with pytest.raises(UsageError, match="'test'"):
        load_corpus("books", split="tets")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("there", [False, True])
def test_an_embedded_name_that_is_a_folder_too_is_said(there, tmp_path, monkeypatch, caplog):
    from lengthwise.checkpoints import embedded_models
    from lengthwise.checkpoints.resolve import resolve
    from lengthwise.text.embedded_texts import EMBEDDED_CORPORA

    embedded = {"read": lambda _: ({"a": "embedded"}, {}), "split_rule": "fixed"}
    monkeypatch.setitem(EMBEDDED_CORPORA, "code", embedded)
    monkeypatch.setattr(embedded_models, "build_embedded", lambda _: tmp_path / "made")
    monkeypatch.chdir(tmp_path)
    for name in ("code", "tiny-books") if there else ():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("one's own")
    for _ in range(2):
        assert pairs("code") == [("a", "embedded")]
        assert resolve("tiny-books").location == str(tmp_path / "made")
    if there:
        assert pairs("./code") == [("a.txt", "one's own")]
        assert resolve("./tiny-books").location == "tiny-books"
    assert [record.args for record in caplog.records] == [
        (name, name) for name in ("code", "tiny-books") * there
    ]


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    """A local data set in the hub's layout: two configs, one of which has a test split."""
    folder = tmp_path / "data-set"
    write_jsonl(folder / "full" / "train.jsonl", [{"text": f"train {i}"} for i in range(3)])
    write_jsonl(folder / "full" / "test.jsonl", [{"text": f"test {i}"} for i in range(2)])
    write_jsonl(folder / "one" / "train.jsonl", [{"text": f"row {i}"} for i in range(40)])
    (folder / "README.md").write_text(
        "---\nconfigs:\n"
        "- config_name: full\n  data_files:\n"
        "  - {split: train, path: full/train.jsonl}\n  - {split: test, path: full/test.jsonl}\n"
        "- config_name: one\n  data_files:\n  - {split: train, path: one/train.jsonl}\n---\n"
    )
    return folder


@pytest.fixture
def _own_datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))


@pytest.mark.usefixtures("_own_datasets_cache")
class TestHub:
    def test_own_splits_are_kept(self, hub_folder: Path):
        spec = f"hf://{hub_folder}:full"
        test = load_corpus(spec, split="test")
        assert list(test.documents.values()) == ["test 0", "test 1"]
        assert "own split 'test'" in test.split_rule
        assert [text for _, text in pairs(spec, split="train")] == ["train 0", "train 1", "train 2"]
        assert len(pairs(spec)) == 5

    def test_named_split_is_used_as_given(self, hub_folder: Path):
        corpus = load_corpus(f"hf://{hub_folder}:full@train")
        assert [*corpus.documents.values()] == ["train 0", "train 1", "train 2"]
        assert (corpus.split, "as given" in corpus.split_rule) == ("all", True)

    @pytest.mark.parametrize("named", ["train", "test"])
    @pytest.mark.parametrize("split", ["train", "test", "all"])
    def test_a_split_beside_a_named_one_is_refused(self, named: str, split: Any, hub_folder: Path):
        with pytest.raises(UsageError, match=f"split is '{split}'.* names its split '{named}'"):
            load_corpus(f"hf://{hub_folder}:full@{named}", split=split)

    def test_a_single_split_is_split_by_hash(self, hub_folder: Path):
        spec = f"hf://{hub_folder}:one"
        train, test = pairs(spec, split="train"), pairs(spec, split="test")
        assert len(train) + len(test) == 40
        assert 1 <= len(test) <= 12

    def test_unknown_split_config_and_field(self, hub_folder: Path):
        with pytest.raises(UsageError, match=r"'tset'(.|\n)*'test'"):
            load_corpus(f"hf://{hub_folder}:full@tset")
        with pytest.raises(UsageError, match="'fulll'"):
            load_corpus(f"hf://{hub_folder}:fulll")
        with pytest.raises(UsageError, match="'body'"):
            load_corpus(f"hf://{hub_folder}:full", text_field="body")

    def test_data_set_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch):
        import datasets.config
        import huggingface_hub.constants

        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        for spec in ("hf://no-such-owner/no-such-data", "no-such-owner/no-such-data"):
            with pytest.raises(MissingError, match="no-such-owner/no-such-data"):
                load_corpus(spec)

    def test_what_a_server_refuses_is_said(self, monkeypatch: pytest.MonkeyPatch):
        """A mirror that knows the data set's files, and not the data set."""
        import datasets.config
        import huggingface_hub.constants

        class Mirror(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404)
                missing = "Repo" if self.path.startswith("/api/") else "Entry"
                self.send_header("X-Error-Code", f"{missing}NotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_HEAD = do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            monkeypatch.setattr(datasets.config, "HF_ENDPOINT", url)
            for place in (huggingface_hub.constants, datasets.config):
                monkeypatch.setattr(place, "HF_HUB_OFFLINE", False)
            # datasets 3 says itself that there is none.
            with pytest.raises((UsageError, MissingError), match=r"'some/data' cannot be (read|loaded)"):
                load_corpus("hf://some/data")
            server.shutdown()

    def test_code_of_a_data_set_is_not_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Nor does `datasets` ask on standard input, where a script may answer anything."""
        monkeypatch.setattr("builtins.input", lambda _: "y")
        ran = tmp_path / "ran"
        folder = write_jsonl(tmp_path / "scripted" / "train.jsonl", [{"text": "a"}]).parent
        (folder / "scripted.py").write_text(f"import os\nos.mkdir({str(ran)!r})\n")
        with pytest.raises(UsageError) as caught:
            load_corpus(f"hf://{folder}")
        assert "code of its own" in caught.value.problem
        assert not ran.exists()

    def test_damaged_file_is_named(self, hub_folder: Path):
        (hub_folder / "one" / "train.jsonl").write_text('{"text": "one"}\n{"text": \n')
        with pytest.raises(UsageError, match="JSON"):
            load_corpus(f"hf://{hub_folder}:one")

    def test_spec_without_a_name(self):
        with pytest.raises(UsageError):
            load_corpus("hf://:config@train")


class TestAsCorpusAndTokenize:
    def test_texts_are_used_as_given(self):
        corpus = as_corpus(["one two", "three"])
        assert list(corpus.documents.items()) == [("text:1", "one two"), ("text:2", "three")]
        assert corpus.split == "all"

    def test_a_path_a_corpus_and_documents(self, tmp_path: Path, cache: Path):
        (tmp_path / "a.txt").write_text("the king")
        tokenizer = tiny_tokenizer()
        corpus = as_corpus(tmp_path / "a.txt", split="all")
        assert corpus == as_corpus(corpus) == load_corpus(str(tmp_path / "a.txt"), split="all")
        documents = tokenize(corpus, tokenizer)
        assert documents[0].ids.tolist() == tokenizer("the king").input_ids
        assert tokenize(documents, tokenizer) is documents

    def test_texts_leave_nothing_in_the_cache_nor_does_what_is_not_to_be_kept(
        self, tmp_path: Path, cache: Path
    ):
        (tmp_path / "a.txt").write_text("the king")
        tokenize(["the king"], tiny_tokenizer())
        tokenize(as_corpus(tmp_path / "a.txt"), tiny_tokenizer(), cache=False)
        assert not cache.exists()

    @pytest.mark.parametrize("thing", [3, [3], {"a": "b"}, [], [" "]])
    def test_what_is_no_text(self, thing: object):
        with pytest.raises(UsageError):
            as_corpus(thing)  # type: ignore[arg-type]
