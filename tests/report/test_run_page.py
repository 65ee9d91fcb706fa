import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.report.run_page import build_report, run_rows, run_tables, write_figures
from lengthwise.report.tables import Estimate
from lengthwise.results import Row, read_results
from lengthwise.runs import RunFolder
from tests.report import made_rows as made

WriteRun = Callable[..., Path]
# What no picture is drawn of.
PLAIN = [Row(model="m", task="useful_context", metric="tokens", value=512.0, unit="tokens")]


def text_of(page: Path) -> str:
    html = page.read_text(encoding="utf-8")
    html = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def has_number(text: str, row: Row) -> bool:
    cell = Estimate(row.value, row.ci_low, row.ci_high)
    return f"{cell.value_text} {cell.interval_text}" in text


def test_one_run_goes_into_its_own_folder(write_run: WriteRun) -> None:
    rows = made.misalignment_rows()
    path = write_run("a", kind="measure", rows=rows, notes=["Seven documents only."])
    page = build_report([path])
    assert page == path / "report.html"
    text = text_of(page)
    assert text.startswith(
        "smollm2-135m: with contexts of 513 to 1024 tokens, predictions disagree by 0.0227 ["
    )
    assert all(has_number(text, row) for row in rows), "every number is in the page"
    assert "% of SCE is entropy" in text
    assert "Seven documents only." in text
    assert "lengths 256, 512, 1024" in text
    assert "seconds 12.5" in text
    assert sorted(p.name for p in (path / "figures").iterdir()) == [
        "jeffreys-by-position.svg",
        "misalignment-matrix.svg",
        "misalignment-parts.svg",
    ]


def test_several_runs_side_by_side(write_run: WriteRun, tmp_path: Path) -> None:
    before, after = made.perplexity_rows(), made.perplexity_rows(shift=-0.3)
    others = [row for row in made.misalignment_rows("other") if row.is_whole]
    runs = [write_run("before", kind="ppl", rows=before), write_run("after", kind="ppl", rows=after)]
    runs.append(write_run("other", kind="measure", rows=others, model="other"))
    page = build_report(runs, tmp_path / "all.html")
    text = text_of(page)
    assert text.startswith("3 runs: smollm2-135m (before), smollm2-135m (after), other"), "not of one kind"
    assert all(has_number(text, row) for row in [*before, *after])
    assert "Loss by length" in text
    assert "Misalignment" in text
    assert "differ in" not in text
    svg = page.read_text(encoding="utf-8")
    assert "smollm2-135m (before): 3.200 at 256" in svg, "both runs are in one picture"
    assert "smollm2-135m (after): 2.900 at 256" in svg


def test_runs_with_other_settings_are_called_out(write_run: WriteRun, tmp_path: Path) -> None:
    runs = [write_run("a", kind="ppl", rows=PLAIN)]
    with RunFolder(tmp_path / "b", kind="ppl", config={"model": "n", "seed": 1}) as folder:
        folder.write_results(read_results(runs[0] / "results.json"))
    text = text_of(build_report([*runs, tmp_path / "b"], tmp_path / "page.html"))
    assert "The ppl runs differ in text , lengths , seed : their numbers are not of the same tokens." in text


def test_runs_of_other_tokens_are_called_out_and_other_paths_are_not(
    write_run: WriteRun, tmp_path: Path
) -> None:
    """The content of a text decides, not its name."""
    base = {"corpus_fingerprint": "a", "tokenizer_fingerprint": "b"}

    def page(settings: dict[str, Any], prints: dict[str, str]) -> str:
        runs = []
        for name, own, text in (("a", {}, base), ("b", settings, base | prints)):
            path = write_run(f"{name}-{len(list(tmp_path.iterdir()))}", kind="ppl", rows=PLAIN)
            results = read_results(path / "results.json")
            results.config = {"model": "m", "text": "books", "split": None, "seed": 0} | own
            results.provenance["text"] = text
            (path / "results.json").write_text(results.to_json())
            runs.append(path)
        return text_of(build_report(runs, tmp_path / "page.html"))

    path = {
        "kv_cache": "quanto-int4",
        "read": "chunks=64",
        "quantize": "nf4",
        "attn": "eager",
        "dtype": "float32",
    }
    for settings in (path, {"text": "copy", "split": "all"}, {"tokenizer": "elsewhere", "served_model": "x"}):
        assert "differ in" not in page(settings, {})
    for named in ("corpus", "tokenizer"):
        said = {"corpus": "text"}.get(named, named)
        assert f"differ in {said} :" in page(path, {f"{named}_fingerprint": "c"})


def test_a_run_is_given_once(write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run("a", kind="ppl", rows=made.perplexity_rows())
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(UsageError, match="twice"):
        build_report([run, f"b={tmp_path / 'link'}"], tmp_path / "page.html")


def test_partial_runs_are_marked(write_run: WriteRun) -> None:
    rows = [row for row in made.perplexity_rows() if row.is_whole]
    path = write_run("a", kind="ppl", rows=rows, partial=True)
    page = build_report([path])
    assert {row.model for row in run_rows([path])} == {"smollm2-135m (partial)"}
    assert "<title>smollm2-135m (partial): at 1024 tokens the loss is 3.080 [" in page.read_text()
    text = text_of(page)
    assert "smollm2-135m is partial" in text
    assert "Loss by length (partial)" in text


def test_training_runs_show_their_curves(write_run: WriteRun, tmp_path: Path) -> None:
    running = write_run("running", kind="train", rows=None, metrics=made.metrics_records(10))
    rows = [Row(model="m", task="training", metric="loss_last", value=3.25, n=1)]
    done = write_run("done", kind="train", rows=rows, model="m", metrics=made.metrics_records(12))
    text = text_of(build_report([running, done], tmp_path))
    assert "smollm2-135m is partial" in text, "a run without results has not ended"
    assert "m is partial" not in text.replace("smollm2-135m is partial", "")
    assert "loss_last" in text
    assert "3.250" in text
    html = (tmp_path / "report.html").read_text()
    assert "Up: nats per token. Cross entropy: smollm2-135m:" in html


def test_a_task_without_a_presentation_is_tabled(write_run: WriteRun) -> None:
    text = text_of(build_report([write_run("a", kind="limit", rows=PLAIN)]))
    assert "Useful context" in text
    assert "tokens 512" in text


def test_a_note_of_two_parts_is_read_once_below_both(write_run: WriteRun) -> None:
    rows = [
        Row(model="m", task=task, metric="accuracy", value=0.5, unit="share")
        for task in ("chains_0", "chains_1")
    ]
    text = text_of(build_report([write_run("a", kind="eval", rows=rows, notes=["Six samples only."])]))
    assert text.count("Six samples only.") == 1
    assert "Chains 1 Six samples only." in text


def test_differences_have_a_table(write_run: WriteRun) -> None:
    row = made.estimate(
        -0.05,
        0.01,
        model="m",
        task="perplexity",
        metric="loss",
        length=512,
        arm="jeffreys",
        reference="plain",
    )
    page = build_report([write_run("a", kind="study", rows=[row])])
    assert "Paired differences on the same tokens" in text_of(page)
    assert "-0.050 [-0.060, -0.039]" in text_of(page)


@pytest.mark.parametrize("content", [None, {}, {"config.yaml": "kind: measure\n"}])
def test_what_is_no_run_or_has_no_results(tmp_path: Path, content: dict[str, str] | None) -> None:
    path = tmp_path / "run"
    if content is not None:
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
    with pytest.raises(UsageError):
        build_report([path])
    assert not (path / "report.html").exists()


def test_other_peoples_files_are_not_overwritten(write_run: WriteRun, tmp_path: Path) -> None:
    path = write_run("a", kind="ppl", rows=PLAIN)
    (tmp_path / "thesis.html").write_text("mine")
    with pytest.raises(UsageError, match=r"thesis\.html"):
        build_report([path], tmp_path / "thesis.html")
    assert (tmp_path / "thesis.html").read_text() == "mine"
    page = build_report([path], tmp_path / "page.html")
    assert build_report([path], tmp_path / "page.html") == page


def test_several_runs_need_a_place_for_their_page(write_run: WriteRun) -> None:
    runs = [write_run(name, kind="ppl", rows=PLAIN) for name in "ab"]
    with pytest.raises(UsageError) as caught:
        build_report(runs)
    assert "--out" in str(caught.value.fix)
    with pytest.raises(UsageError):
        build_report([])


def test_a_run_can_be_named_and_its_figures_and_tables_taken_alone(
    write_run: WriteRun, tmp_path: Path
) -> None:
    rows = [row for row in made.perplexity_rows() if row.length != 1024]
    runs = [write_run(name, kind="ppl", rows=rows) for name in ("a", "b")]
    named = [f"plain={runs[0]}", f"yarn={runs[1]}"]
    figures = write_figures(named, tmp_path / "figures")
    assert [figure.name for figure in figures] == ["loss-by-length.svg", "loss-by-position.svg"]
    assert "plain: 3.200 at 256" in figures[0].read_text()
    assert write_figures(named, tmp_path / "figures") == figures
    figures[0].unlink()
    figures[1].write_text("<svg>one's own</svg>")
    with pytest.raises(UsageError, match="another kind of file"):
        write_figures(named, tmp_path / "figures")
    assert not figures[0].exists()
    assert figures[1].read_text() == "<svg>one's own</svg>"
    [table] = run_tables(named)
    assert list(table.columns) == ["metric", "length", "plain", "yarn"]
