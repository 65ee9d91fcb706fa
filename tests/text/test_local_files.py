"""Files as people have them, through the public doors: every kind that is read, and what is left out, by kind."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.settings import TextOptions
from lengthwise.testing import tiny_text
from lengthwise.text import left_out_note, load_corpus
from lengthwise.text.corpus import EMPTY

TEXT = 'Grüße, "kot"; 東京\nline two'
ROWS = [{"n": 1, "text": TEXT}, {"n": 2, "text": "two"}]
JSONL = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
CSV = "n,text\n" + "\n".join(f'{row["n"]},"{str(row["text"]).replace(chr(34), chr(34) * 2)}"' for row in ROWS)


def parquet(columns: dict[str, list[Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def parquet_twice() -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    columns = [pyarrow.array([text]) for text in "xy"]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text"]), sink)
    return sink.getvalue().to_pybytes()


KINDS: dict[str, bytes] = {
    "rows.jsonl": JSONL.encode(),
    "crlf.jsonl": JSONL.replace("\n", "\r\n").encode(),
    "rows.json": json.dumps(ROWS).encode(),
    "lines.json": JSONL.encode(),
    "rows.csv": CSV.encode(),
    "rows.tsv": CSV.replace("n,text", "n\ttext").replace('1,"', '1\t"').replace('2,"', '2\t"').encode(),
    "rows.parquet": parquet({"n": [1, 2], "text": [TEXT, "two"]}),
    "rows.jsonl.gz": gzip.compress(JSONL.encode()),
    "rows.csv.bz2": bz2.compress(CSV.encode()),
    "rows.json.xz": lzma.compress(json.dumps(ROWS).encode()),
    "marked.csv": b"\xef\xbb\xbf" + CSV.encode(),
    "marked.jsonl": b"\xef\xbb\xbf" + JSONL.encode(),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_table_gives_the_same_texts(name: str, tmp_path: Path):
    (tmp_path / name).write_bytes(KINDS[name])
    corpus = load_corpus(str(tmp_path / name))
    assert [*corpus.documents.values()] == [TEXT, "two"]
    # The first text has two lines of a CSV file.
    numbers = (3, 4) if ".csv" in name or ".tsv" in name else (1, 2)
    assert [*corpus.documents] == [f"{name}:{number}" for number in numbers]
    (tmp_path / "b.txt").write_text("three")
    both = load_corpus(str(tmp_path))
    assert [*both.documents.values()] == ["three", TEXT, "two"]
    assert set(corpus.documents) < set(both.documents)


def test_a_folder_is_read_in_order_and_a_byte_order_mark_is_no_text(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "z.txt").write_text("three")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "sub" / "b.MD").write_text("Grüße\n", encoding="utf-8")
    corpus = load_corpus(str(tmp_path))
    assert [*corpus.documents.items()] == [("a.txt", "one"), ("sub/b.MD", "Grüße\n"), ("z.txt", "three")]
    (tmp_path / "a.txt").write_text("one")
    assert load_corpus(str(tmp_path)).fingerprint == corpus.fingerprint


def test_line_separators_inside_a_text_do_not_break_lines(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a\u2028b"}\n', encoding="utf-8")
    assert load_corpus(str(tmp_path / "rows.jsonl")).documents == {"rows.jsonl:1": "a\u2028b"}


@pytest.mark.parametrize("split", ["all", "test", "train"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_without_text_are_counted(tmp_path: Path, suffix: str, split: Any):
    texts = ["a b", None, "c d", "", "  ", "e f"]
    lines = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    (tmp_path / f"rows.{suffix}").write_bytes(lines if suffix == "jsonl" else parquet({"text": texts}))
    assert load_corpus(str(tmp_path / f"rows.{suffix}"), split=split).left_out == {EMPTY: 3}


@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv", ".parquet"])
def test_another_field(kind: str, tmp_path: Path):
    [name] = [name for name in KINDS if name == f"rows{kind}"]
    (tmp_path / name).write_bytes(KINDS[name].replace(b'"text"', b'"body"').replace(b"n,text", b"n,body"))
    if kind == ".parquet":
        (tmp_path / name).write_bytes(parquet({"body": [TEXT, "two"]}))
    with pytest.raises(UsageError, match=r"has no field 'text'[\s\S]*'?body'?[\s\S]*--text-field"):
        load_corpus(str(tmp_path / name))
    assert [*load_corpus(str(tmp_path / name), text_field="body").documents.values()] == [TEXT, "two"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as people have them."""
    here = tmp_path / "texts"
    (here / "sub").mkdir(parents=True)
    (here / ".git").mkdir()
    (here / "a.txt").write_text(tiny_text(400))
    (here / "sub" / "b.jsonl").write_text(json.dumps({"text": tiny_text(400, seed=1)}) + "\n")
    (here / ".git" / "HEAD.md").write_text("no text")
    (here / ".hidden.txt").write_text("no text")
    (here / "._a.txt").write_bytes(b"\x00\x05\x16\x07" + b"\xff" * 50)
    for name in ("one.zip", "two.zip", "page.html", "LICENSE"):
        (here / name).write_bytes(b"PK")
    (here / "again.txt").symlink_to(here / "a.txt")
    (here / "broken.txt").symlink_to(here / "gone.txt")
    (here / "elsewhere").symlink_to(tmp_path)
    return here


LEFT_OUT = {
    "zip": 2,
    "html": 1,
    "file without suffix": 1,
    "hidden file": 2,
    "hidden folder": 1,
    "broken link": 1,
    "linked folder": 1,
    "link to a file that is read": 1,
}


def test_a_folder_says_what_it_leaves_out(folder: Path):
    corpus = load_corpus(str(folder))
    assert [*corpus.documents] == ["a.txt", "sub/b.jsonl:1"]
    assert corpus.left_out == LEFT_OUT


def test_a_verb_says_it_once(folder: Path, lengthwise: Callable[..., Any], tmp_path: Path):
    from lengthwise.testing import save_tiny_model

    model = save_tiny_model(tmp_path / "model")
    done = lengthwise("ppl", model, "--text", folder, "--lengths", 64, "--windows", 2, "--json")
    [note] = [note for note in done.json["notes"] if "left out of the text" in note]
    for kind, count in LEFT_OUT.items():
        assert f"{count} {kind}" in note
    # What nobody misses comes last.
    assert all(note.index(kind) < note.index("hidden") for kind in LEFT_OUT if "hidden" not in kind)
    assert done.json["provenance"]["text"]["split_rule"] == "all documents"


def test_one_s_own_text_is_read_whole_and_a_split_is_named(lengthwise: Callable[..., Any], tmp_path: Path):
    from lengthwise.testing import save_tiny_model

    model, texts = save_tiny_model(tmp_path / "model"), tmp_path / "texts"
    texts.mkdir()
    for number in range(18):
        (texts / f"{number}.txt").write_text(tiny_text(10, seed=number))
    few = load_corpus(str(texts), split="test")
    longest = next(number for number in range(18) if f"{number}.txt" not in few.documents)
    (texts / f"{longest}.txt").write_text(tiny_text(900))
    words = ["ppl", model, "--text", texts, "--lengths", 100, "--windows", 2]
    assert lengthwise(*words).code == 0
    done = lengthwise(*words, "--split", "test")
    assert done.code == 2
    assert f"the test split has {len(few.documents)} of 18 documents" in done.err
    assert "--split all" in done.err


WITHOUT_CONTENT: dict[str, dict[str, Any]] = {
    "other key": {"role": "user", "text": "x"},
    "null": {"role": "user", "content": None, "tool_calls": None},
    "number": {"role": "user", "content": 3.5},
    "no parts": {"role": "user", "content": []},
}
SCRIPTS = {
    "Latin": "All happy families are alike",
    "Cyrillic": "Все счастливые семьи похожи друг на друга",
    "Devanagari": "सभी सुखी परिवार एक जैसे होते हैं और हर दुखी परिवार",
    "Malayalam": "കടൽക്കാറ്റിൽ ഇടയ്ക്കിടെ ആകാശം",
    "Thai": "ครอบครัวที่มีความสุขทุกครอบครัวเหมือนกัน",
    "Arabic": "كل العائلات السعيدة متشابهة",
}
"""Their UTF-16 is UTF-8 too: no byte is above 0x7F."""
BAD: dict[str, tuple[bytes, str, str]] = {
    "latin.txt": ("a\nGrüße".encode("latin-1"), "line 2: .*utf-8", "file that is not utf-8"),
    "rows.jsonl": (b'{"text": "x"}\n{"body": "y"}\n', "line 2 .*'text'", "row without 'text'"),
    "syntax.jsonl": (b'{"text": "x"}\n{"text": \n', "line 2 .*JSON", "line that is no JSON object"),
    "array.jsonl": (b'{"text": "x"}\n[1]\n', "line 2 .*JSON", "line that is no JSON object"),
    "digits.jsonl": (b'{"text": ' + b"9" * 5000 + b"}", "line 1 .*JSON", "line that is no JSON object"),
    "nested.jsonl": (b'{"text": ' + b"[" * 200_000, "line 1 .*JSON", "line that is no JSON object"),
    "integer.jsonl": (b'{"text": 1}', "line 1: 'text' is a int", "row whose 'text' is no text"),
    "object.json": (b'{"text": "x"}{"te', "line 1 .*JSON", "line that is no JSON object"),
    "number.json": (b"[3]", "other JSON", "unreadable file"),
    "short.csv": (b'n,text\n1,"x"\n2\n', "line 3 has no field", "row without 'text'"),
    "commas.csv": (
        b'n,text\n1,"x, y",\n2,x, y\n',
        "line 3 has 3 fields",
        "row with more fields than the header",
    ),
    "twice.jsonl": (
        b'{"text": "x", "n": 1, "text": "y"}',
        "line 1 .*'text' is there twice",
        "line that is no JSON object",
    ),
    "twice.json": (
        b'[{"text": "x"}, {"text": "x", "text": "y"}]',
        "'text' is there twice",
        "unreadable file",
    ),
    "twice.csv": (b"text,n,text\nx,1,y\n", "two columns 'text'", "unreadable file"),
    "twice.tsv": (b"text\ttext\n", "two columns 'text'", "unreadable file"),
    "twice.parquet": (parquet_twice(), "two columns 'text'", "unreadable file"),
    "quotes.csv": (b'n,text\n1,"x"y\n', "line 2", "unreadable file"),
    "rows.parquet": (b"PAR1", "not a Parquet file", "unreadable file"),
    "rows.jsonl.gz": (b"\x1f\x8bnothing", "cannot read", "unreadable file"),
    "stream.jsonl.gz": (gzip.compress(JSONL.encode())[:10] + b"\xff" * 40, "Error -3", "unreadable file"),
    **{
        f"{script} {order}.txt": (
            text.encode(f"utf-16-{order}"),
            r"UTF-16[\s\S]*--encoding",
            "file that is not utf-8",
        )
        for script, text in SCRIPTS.items()
        for order in ("le", "be")
    },
    "half.jsonl": (b'{"text": "\\ud800"}', "line 1: .*surrogate", "row with half of a surrogate pair"),
    **{
        f"{what}.{kind}": (
            parquet({"text": [[message]]})
            if kind == "parquet"
            else json.dumps({"text": [{"role": "user", "content": "x"}, message]}).encode(),
            "message [12] of 'text' has no text as its content",
            "row with a message without content",
        )
        for what, message in WITHOUT_CONTENT.items()
        for kind in ("jsonl", "parquet")
    },
    "message twice.jsonl": (
        b'{"text": [{"role": "user", "content": "x", "content": "y"}]}',
        "'content' is there twice",
        "line that is no JSON object",
    ),
    "list.jsonl": (b'{"text": ["x", "y"]}\n', "line 1: 'text' is a list", "row whose 'text' is no text"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_named_with_the_way_out_or_skipped_and_counted(name: str, tmp_path: Path):
    content, says, kind = BAD[name]
    (tmp_path / "good.txt").write_text("good")
    (tmp_path / name).write_bytes(content)
    for place in (tmp_path, tmp_path / name):
        with pytest.raises(UsageError, match=says) as caught:
            load_corpus(str(place))
        assert name in caught.value.problem
        assert "--skip-unreadable" in str(caught.value)
    corpus = load_corpus(str(tmp_path), skip_unreadable=True)
    assert corpus.documents["good.txt"] == "good"
    assert corpus.left_out == {kind: 1}


def cut_parquet() -> bytes:
    """Its second group of rows is damaged."""
    import pyarrow
    import pyarrow.parquet

    sink, size = pyarrow.BufferOutputStream(), 1 << 16
    table = pyarrow.table({"text": [f"{n:09}" for n in range(2 * size)]})
    pyarrow.parquet.write_table(table, sink, row_group_size=size, use_dictionary=False, compression="none")
    content = sink.getvalue().to_pybytes()
    middle = content.index(b"%09d" % (size + 9))
    return content[:middle] + b"\xff" * 900 + content[middle + 900 :]


@pytest.mark.parametrize(
    ("name", "content", "rest"),
    [
        ("a.csv", b'text\n"one\ntwo"\nthree\n"four" five\nsix\n', "from line 5 on"),
        ("a.tsv", b'n\ttext\n1\tone\n2\ttwo\n3\t"three" \n', "from line 4 on"),
        ("a.parquet", cut_parquet(), "from row 65537 on"),
    ],
)
def test_the_rest_of_a_file_that_is_left_out_is_named(name: str, content: bytes, rest: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=name):
        load_corpus(str(tmp_path))
    corpus = load_corpus(str(tmp_path), skip_unreadable=True)
    assert corpus.left_out == {f"the rest of {name} {rest}": 1}
    assert f": the rest of {name} {rest}." in left_out_note(corpus.left_out, 2)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"text": "a"}\n\n{"text": "b"}\n', True),
        ('{"text": "a"}', True),
        ('{"text": "a"}\nand so on\n', False),
        ("{curly} words\n", False),
        ('["a"]\n', False),
    ],
)
def test_rows_in_a_file_of_text_are_named(text: str, said: bool, tmp_path: Path, caplog: Any):
    (tmp_path / "a.txt").write_text(text)
    assert [*load_corpus(str(tmp_path / "a.txt")).documents.values()] == [text]
    assert ("name it .jsonl" in caplog.text) is said


CODES = {
    "colour": "\x1b[31mred\x1b[0m ",
    "overstrike": "b\bbo\bol\bld\bd ",
    "fields": "8=FIX.4.2\x0135=D\x01",
    "list": f"{'name' * 9}\0",
    "page": "\f\v\t",
}


@pytest.mark.parametrize("what", CODES)
def test_a_text_may_have_control_codes(what: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text(CODES[what] * 50 + ".")
    assert len(load_corpus(str(tmp_path)).documents) == 1


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_another_encoding(encoding: str, tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("Grüße".encode(encoding))
    assert [*load_corpus(str(tmp_path), encoding=encoding).documents.values()] == ["Grüße"]
    with pytest.raises(UsageError, match="utf-9"):
        load_corpus(str(tmp_path), encoding="utf-9")


@pytest.mark.parametrize(
    "given", [{"text_field": "body"}, {"encoding": "latin-1"}, {"skip_unreadable": True}]
)
def test_what_an_embedded_text_has_not(given: dict[str, Any]):
    with pytest.raises(UsageError, match="embedded"):
        load_corpus("books", **given)


CHATS = [
    [
        {"role": "user", "content": tiny_text(60, seed=n)},
        {"role": "assistant", "content": tiny_text(60, seed=n + 9)},
    ]
    for n in range(3)
]
TEMPLATE = "{% for m in messages %}<|end|>{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_messages_are_read_as_the_template_writes_them(kind, lengthwise, tmp_path):
    from lengthwise.testing import save_tiny_model, tiny_tokenizer

    model, tokenizer = save_tiny_model(tmp_path / "model"), tiny_tokenizer()
    text = tmp_path / f"chats.{kind}"
    lines = "".join(json.dumps({"messages": chat}) + "\n" for chat in CHATS).encode()
    text.write_bytes(parquet({"messages": CHATS}) if kind == "parquet" else lines)
    words = [
        "ppl",
        model,
        "--text",
        text,
        "--text-field",
        "messages",
        "--lengths",
        64,
        "--windows",
        2,
        "--json",
    ]
    refused = lengthwise(*words)
    assert (refused.code, "chat template" in refused.err) == (2, True)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(model)
    written = tmp_path / "written"
    written.mkdir()
    for number, chat in enumerate(CHATS):
        said = "".join(f"<|end|>{each['role']}: {each['content']}\n" for each in chat)
        (written / f"{number}.txt").write_text(said)
    found = lengthwise(*words).json["provenance"]["text"]
    plain = lengthwise("ppl", model, "--text", written, "--lengths", 64, "--windows", 2, "--json").json
    assert found["tokens"] == plain["provenance"]["text"]["tokens"]
    corpus = load_corpus(str(text), text_field="messages").rendered(tokenizer)
    assert [*corpus.documents.values()] == [*load_corpus(str(written)).documents.values()]


PARTS = [{"role": "user", "content": [{"type": "text", "text": "the king"}]}]
OF_PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
CALL = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
OF_CALLS = "{% for m in messages %}{{ m.tool_calls[0].function.name }}{% endfor %}"
RESULT = [{"role": "tool", "content": {"found": [1, 2]}}]
OF_RESULTS = "{% for m in messages %}{{ m.content | tojson }}{% endfor %}"


@pytest.mark.parametrize(
    ("chat", "template", "text"),
    [
        (PARTS, OF_PARTS, "the king"),
        (PARTS, "{% for m in messages %}{{ m.content | trim }}{% endfor %}", None),
        (PARTS, "{% for m in messages %}{% for part in m.content %}{{ part }}{% endfor %}{% endfor %}", None),
        (CALL, OF_CALLS, "f"),
        (RESULT, OF_RESULTS, '{"found": [1, 2]}'),
        (RESULT, TEMPLATE, None),
    ],
)
def test_a_message_of_parts_is_read_where_the_template_takes_them(chat, template, text, tmp_path: Path):
    from lengthwise.testing import tiny_tokenizer
    from lengthwise.text.chats import render_chat

    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": chat}))
    corpus = load_corpus(str(tmp_path), text_field="messages")
    if text is None:
        for tokenize in (False, True):
            with pytest.raises(UsageError, match="text alone"):
                render_chat(tokenizer, chat, "a row", tokenize=tokenize)
    else:
        assert [*corpus.rendered(tokenizer).documents.values()] == [text]


def test_what_is_no_json_beside_a_message_is_no_fault(tmp_path: Path):
    from lengthwise.testing import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{{ m.when }}{% endfor %}"
    chats = [
        [{"role": "user", "content": "x", "when": datetime(2024, 1, day), "image": b"\1"}] for day in (1, 2)
    ]
    (tmp_path / "a.parquet").write_bytes(parquet({"text": chats}))
    corpus = load_corpus(str(tmp_path)).rendered(tokenizer)
    assert [*corpus.documents.values()] == ["x2024-01-01 00:00:00", "x2024-01-02 00:00:00"]


UNUSED: dict[str, tuple[str, ...]] = {
    "books": ("text_field", "encoding", "skip_unreadable", "text_tokens"),
    "a.txt": ("text_field", "text_tokens"),
    "a.jsonl": ("text_tokens",),
    "a.parquet": ("encoding", "text_tokens"),
    ".": ("text_tokens",),
    "hf://a/b": ("encoding",),
}
"""The options that a text has no use for."""
OTHER = {
    "text_field": "body", "encoding": "latin-1", "skip_unreadable": True, "text_tokens": 9, "split": "train"
}  # fmt: skip


@pytest.mark.parametrize("spec", UNUSED)
def test_an_option_is_used_or_refused(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one")
    Path("a.jsonl").write_text('{"text": "one", "body": "two"}')
    Path("a.parquet").write_bytes(parquet({"text": ["one"], "body": ["two"]}))
    assert {*OTHER} == {*TextOptions.model_fields}
    for name in UNUSED[spec]:
        with pytest.raises(UsageError, match=f"{name} is given"):
            load_corpus(spec, **{name: OTHER[name]})
    if spec in ("a.txt", "a.jsonl", "a.parquet"):
        for name in OTHER.keys() - {*UNUSED[spec], "split"}:
            load_corpus(spec, **{name: OTHER[name]})


def test_a_data_set_is_streamed_up_to_the_budget(tmp_path: Path):
    rows = tmp_path / "set"
    rows.mkdir()
    (rows / "train.jsonl").write_text("".join(json.dumps({"text": f"{i:040}"}) + "\n" for i in range(50)))
    few = load_corpus(f"hf://{rows}", split="all", text_tokens=45)
    assert len(few.documents) == 5
    [note] = left_out_note(few.left_out, 5)
    assert note.endswith("text): the rest of the data set, beyond 45 tokens (--text-tokens).")
    assert len(load_corpus(f"hf://{rows}", split="all").documents) == 50


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_corpus(str(path))
    return caught.value.problem


@pytest.mark.parametrize(
    "name", ["", " ", "\n", "x" * 300, "~nobody-of-this-name/x.txt", "/" + "y" * 300 + ".txt"]
)
def test_a_name_that_no_file_can_have(name: str):
    with pytest.raises(UsageError):
        load_corpus(name)


def test_what_is_no_file_of_text(tmp_path: Path):
    (tmp_path / "paper.pdf").write_bytes(b"%PDF")
    assert ".pdf" in refused(tmp_path / "paper.pdf")
    with pytest.raises(UsageError, match=r"1 pdf[\s\S]*\.txt"):
        load_corpus(str(tmp_path))
    (tmp_path / "folder.txt").mkdir()
    assert refused(tmp_path / "folder.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    assert "not a regular file" in refused(tmp_path / "pipe.txt")


@pytest.mark.parametrize("encoding", ["klingon", "utf\0", "base64", "rot13"])
def test_what_is_no_encoding_of_text(encoding: str, tmp_path: Path):
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(UsageError, match="unknown encoding"):
        load_corpus(str(tmp_path / "a.txt"), encoding=encoding)


def test_a_name_that_cannot_be_written_as_utf8(tmp_path: Path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("a")
    assert "surrogate" in refused(tmp_path)


def test_a_file_and_a_folder_without_permission_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name in ("closed", "a.txt"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        assert "a.txt" in refused(tmp_path)
    monkeypatch.setattr(os, "scandir", refuse)
    assert "closed" in refused(tmp_path)
