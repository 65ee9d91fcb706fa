import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.results import Results, Row, read_metrics
from lengthwise.runs import RunFolder
from lengthwise.yaml_text import read_yaml

SETTINGS: dict[str, Any] = {"model": "m", "lengths": [64, 128], "seed": 0}


def open_run(
    path: Path, *, config: dict[str, Any] = SETTINGS, kind: str = "measure", **how: Any
) -> RunFolder:
    return RunFolder(path, kind=kind, config=config, **how)


def some_results(value: float = 1.0) -> Results:
    row = Row(model="m", task="misalignment", metric="sce", value=value, length=64)
    return Results(kind="measure", model_name="m", config={}, rows=[row])


def finished_run(path: Path) -> Path:
    with open_run(path) as folder:
        folder.samples.append("a", {"x": 1})
        folder.write_results(some_results())
    return path


def contents(path: Path) -> dict[str, bytes]:
    """All files but the lock."""
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def test_a_new_folder_says_its_settings_before_the_work_starts(tmp_path: Path) -> None:
    with open_run(tmp_path / "deep" / "run") as folder:
        assert read_yaml(folder.path / "config.yaml") == {"kind": "measure", **SETTINGS}
        environment = json.loads((folder.path / "env.json").read_text())
        assert environment["packages"]["lengthwise"] is not None
        assert not folder.finished


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_an_earlier_run_is_never_overwritten_silently(tmp_path: Path, state: str) -> None:
    path = tmp_path / "run"
    if state == "finished":
        finished_run(path)
    else:
        with open_run(path) as folder:
            folder.samples.append("a", {"x": 1})
    before = contents(path)
    with pytest.raises(UsageError, match=rf"\b{state}\b") as caught:
        open_run(path)
    assert "--resume" in caught.value.fix
    assert "--overwrite" in caught.value.fix
    assert contents(path) == before


def test_resume_with_other_settings_names_them(tmp_path: Path) -> None:
    path = finished_run(tmp_path / "run")
    before = contents(path)
    with pytest.raises(UsageError, match=r"lengths: \[64, 128\].*\[64\].*dtype: None.*'fp32'"):
        open_run(path, config={**SETTINGS, "lengths": [64], "dtype": "fp32"}, resume=True)
    with pytest.raises(UsageError, match=r"'measure'.*'ppl'"):
        open_run(path, kind="ppl", resume=True)
    assert contents(path) == before


def test_settings_are_compared_as_written(tmp_path: Path) -> None:
    settings = {"lengths": (64, 128), "nested": {"pair": (1, 2.0)}, "name": "1e-5", "rate": 1e-5}
    with open_run(tmp_path, config=settings):
        pass
    with open_run(tmp_path, config=settings, resume=True) as folder:
        assert folder.config["lengths"] == [64, 128]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        open_run(tmp_path / "file")
    with pytest.raises(LengthwiseError) as caught:
        open_run(tmp_path / "file" / "run")
    assert caught.value.exit_code == 1


def test_in_use_by_another_process(tmp_path: Path) -> None:
    path = finished_run(tmp_path / "run")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from lengthwise.runs import RunFolder\n"
            "with RunFolder(sys.argv[1], kind='measure', config={'model': 'm', 'lengths': [64, 128], "
            "'seed': 0}, resume=True):\n"
            "    print('held', flush=True)\n"
            "    sys.stdin.read()\n",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        before = contents(path)
        for how in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(LengthwiseError) as caught:
                open_run(path, **how)
            assert caught.value.exit_code == 1
            assert contents(path) == before
        holder.communicate("")
    with open_run(path, resume=True) as folder:
        assert folder.finished, "the folder is free again"


def test_in_use_within_one_process_and_free_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with open_run(path), pytest.raises(LengthwiseError):
        open_run(path, resume=True)
    with pytest.raises(ZeroDivisionError), open_run(path, resume=True):
        raise ZeroDivisionError
    with pytest.raises(UsageError):
        open_run(path, config={}, resume=True)
    with open_run(path, resume=True):
        pass


def test_a_start_that_fails_at_once_leaves_no_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(UsageError), open_run(path):
        raise UsageError("unknown model")
    assert contents(path) == {}
    with pytest.raises(ZeroDivisionError), open_run(path) as folder:
        folder.samples.append("a", {})
        raise ZeroDivisionError
    with pytest.raises(UsageError), open_run(path, config={}, resume=True):
        pass
    with pytest.raises(ZeroDivisionError), open_run(path, resume=True) as folder:
        assert list(folder.samples) == ["a"]
        raise ZeroDivisionError
    assert (path / "config.yaml").exists()


def test_any_file_of_a_failed_start_keeps_it_a_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), open_run(tmp_path) as folder:
        (folder.path / "parts").mkdir()
        raise ZeroDivisionError
    with open_run(tmp_path, resume=True):
        pass


def test_metrics_of_a_killed_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "loss": 1}\n{"step": 1, "loss": 2}\n{"step": 2, "loss": 3}\n{"step": 3, "lo')
    assert read_metrics(path) == [{"step": 1, "loss": 2}, {"step": 2, "loss": 3}]
    assert read_metrics(tmp_path / "gone.jsonl") == []


def test_a_run_of_an_earlier_version_is_named_as_one(tmp_path: Path) -> None:
    """Its settings and fingerprints lack what this one has: nothing was changed."""
    with open_run(tmp_path / "run", config={"seed": 0}) as folder:
        folder.check_inputs({"model": {"weights": "a"}})
        folder.samples.append("one", {"value": 1})
    with pytest.raises(UsageError, match=r"another version of lengthwise.*no bos"):
        open_run(tmp_path / "run", config={"seed": 0, "bos": "auto"}, resume=True)
    with (
        open_run(tmp_path / "run", config={"seed": 0}, resume=True) as folder,
        pytest.raises(UsageError, match=r"another version of lengthwise.*none of the model's tokenizer"),
    ):
        folder.check_inputs({"model": {"weights": "a", "tokenizer": "b"}})


@pytest.mark.parametrize(
    "content", ["", "3", "[]", '{"model": 3}', '{"model": {"weights": "a"}, "text": null}']
)
def test_fingerprints_of_another_shape_are_named(content: str, tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as folder:
        folder.check_inputs({"model": {"weights": "a"}})
        (folder.path / "inputs.json").write_text(content)
        with pytest.raises(UsageError, match=r"inputs\.json"):
            folder.check_inputs({"model": {"weights": "a"}})


def test_other_files_are_another_model_only_where_its_weights_are_not_read(tmp_path: Path) -> None:
    """And what an earlier version did not record is not compared."""
    weights, files = {"weights": "a"}, {"files": "f"}
    with open_run(tmp_path / "old") as folder:
        folder.check_inputs({"model": weights})
        folder.check_inputs({"model": weights | files})
        folder.check_inputs({"model": files}, all_of_them=False)
    with open_run(tmp_path / "run") as folder:
        folder.check_inputs({"model": weights | files})
        folder.check_inputs({"model": weights | {"files": "g"}})
        folder.check_inputs({"model": files}, all_of_them=False)
        for changed, all_of_them in (({"files": "g"}, False), ({"weights": "b"} | files, True)):
            with pytest.raises(UsageError, match="changed"):
                folder.check_inputs({"model": changed}, all_of_them=all_of_them)
