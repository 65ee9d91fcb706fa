from pathlib import Path

from lengthwise.subjects import load
from lengthwise.training import read_recipe


def test_a_recipe_is_copied_and_reads_the_same(lengthwise, tmp_path: Path) -> None:
    done = lengthwise("cp", "longqlora")
    assert (done.code, done.out) == (0, "longqlora.yaml\n")
    assert read_recipe("longqlora.yaml") == read_recipe("longqlora")
    assert "# LongQLoRA" in Path("longqlora.yaml").read_text()
    again = lengthwise("cp", "longqlora")
    assert again.code == 2
    assert "longqlora.yaml" in again.err
    assert lengthwise("cp", "longqlora", "mine.yaml").code == 0
    (tmp_path / "folder").mkdir()
    assert lengthwise("cp", "pose", "folder").out == "folder/pose.yaml\n"


def test_a_run_with_an_adapter_becomes_a_model(lengthwise, recipe: Path) -> None:
    assert lengthwise("train", recipe, "--set", "adapter.r=2", "--out", "run").code == 0
    done = lengthwise("merge", "run", "--dtype", "bfloat16", "--out", "merged", "--json")
    assert done.code == 0
    assert done.json["dtype"] == "bfloat16"
    assert done.json["written_to"] == "merged"
    assert str(load("merged").model.dtype) == "torch.bfloat16"
    assert lengthwise("merge", "run", "--out", "merged").code == 2
