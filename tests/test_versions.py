"""The packages of the extras: what needs one that is missing says which extra brings it, and the rest works."""

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import TrainingArguments

from lengthwise import versions
from lengthwise.alignment import Objective
from lengthwise.checkpoints.attention_layers import local_positions
from lengthwise.checkpoints.embedded_models import write_converted
from lengthwise.checkpoints.extending import extend
from lengthwise.checkpoints.variants import add_saved_adapter, check_splits
from lengthwise.cli.verbs import report
from lengthwise.errors import MissingError, UsageError
from lengthwise.results import Results
from lengthwise.settings import Subject
from lengthwise.subjects import load
from lengthwise.subjects.caches import chosen_cache
from lengthwise.testing import save_tiny_model, tiny_llama
from lengthwise.text import load_corpus
from lengthwise.training.build import trainer_settings
from lengthwise.training.recipe import read_recipe
from lengthwise.training.sections import Adapter
from lengthwise.training.trainer import AlignmentTrainer
from tests.architectures import tiny_model

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# These come with datasets, and by another name.
BROUGHT_BY = {"pyarrow": "datasets", "pandas": "datasets", "optimum": "optimum-quanto"}


def parquet(folder: Path) -> Any:
    (folder / "text.parquet").write_bytes(b"PAR1")
    return load_corpus(str(folder / "text.parquet"))


def load_saved(folder: Path, **placed: Any) -> Any:
    save_tiny_model(folder)
    return load(str(folder), **placed)


USES: dict[str, list[Callable[[Path], Any]]] = {
    "peft": [
        lambda folder: Adapter().peft_config(),
        lambda folder: add_saved_adapter(nn.Identity(), str(folder)),
    ],
    "accelerate": [
        lambda folder: trainer_settings(read_recipe("smollm2-lora"), folder),
        lambda folder: load_saved(folder, device_map="auto"),
        lambda folder: load_saved(folder, quantization="nf4"),
    ],
    "datasets": [lambda folder: load_corpus("hf://owner/name")],
    "pyarrow": [parquet],
    "matplotlib": [lambda folder: report((str(folder),))],
    "optimum": [lambda folder: chosen_cache(Subject(model="m", kv_cache="quanto-int4"))],
    "pandas": [lambda folder: Results(kind="ppl", model_name="", config={}, rows=[]).to_pandas()],
}


def test_every_module_of_an_extra_is_brought_by_it_and_needed_by_nothing_else() -> None:
    assert USES.keys() == versions.EXTRAS.keys()
    extras = PROJECT["optional-dependencies"]
    for module, (extra, _) in versions.EXTRAS.items():
        named = [re.split("[<>=]", each)[0] for each in extras[extra]]
        assert BROUGHT_BY.get(module, module) in named
        assert extra in extras["all"][0]
    hard = {re.split("[<>=]", each)[0] for each in PROJECT["dependencies"]}
    assert hard.isdisjoint(versions.EXTRAS)


@pytest.mark.parametrize(("module", "use"), [(name, use) for name, uses in USES.items() for use in uses])
def test_what_is_missing_is_named_with_its_extra(module, use, monkeypatch, tmp_path):
    found = versions.importlib.util.find_spec
    monkeypatch.setattr(
        versions.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == module else found(name, *rest),
    )
    with pytest.raises(MissingError, match=f"need {module}, which is not installed") as caught:
        use(tmp_path)
    assert caught.value.fix == f"pip install 'lengthwise[{versions.EXTRAS[module][0]}]'"


def test_measuring_needs_no_extra() -> None:
    """In a process that can import none of their modules."""
    program = ROOT / "checks" / "compat" / "smoke.py"
    done = subprocess.run([sys.executable, str(program), *versions.EXTRAS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def layered(method: str, **options: Any) -> Callable[[Path], Any]:
    return lambda _: extend(tiny_model("gemma3-text", num_hidden_layers=6), method, factor=2, **options)


def sharded(folder: Path) -> TrainingArguments:
    """Set afterwards, because transformers looks for a GPU."""
    arguments = TrainingArguments(str(folder), use_cpu=True)
    arguments.fsdp = "full_shard"
    return arguments


NEWER: dict[str, Callable[[Path], Any]] = {
    "yarn in the layers of one type alone": layered("yarn"),
    "longrope in the layers of one type alone": layered("longrope", long_factor=(2.0,) * 4),
    "reading GGUF files": lambda folder: write_converted(folder / "file.gguf", folder),
    "resuming in several processes without GPUs": lambda folder: (
        AlignmentTrainer._load_optimizer_and_scheduler(
            SimpleNamespace(args=SimpleNamespace(world_size=2, device=torch.device("cpu", 1))),  # type: ignore[arg-type]
            str(folder),
        )
    ),
    "tp_plan": lambda _: check_splits(tiny_llama().config),
    "FSDP": lambda folder: AlignmentTrainer(None, sharded(folder), objective=Objective(alpha=1.0)),
}
NEWER["FSDP2"] = NEWER["FSDP"]


def test_every_entry_of_the_table_is_tried() -> None:
    assert NEWER.keys() == versions.NEWER.keys()


@pytest.mark.parametrize("what", NEWER)
def test_what_an_older_version_fails_at_is_refused_with_the_version(what, monkeypatch, tmp_path):
    package, version, way = versions.NEWER[what]
    installed = {package: f"{version}.dev0"}
    monkeypatch.setattr(versions.importlib.metadata, "version", lambda name: installed.get(name, "99"))
    with pytest.raises(MissingError, match=f"^{what} needs {package} {version} or newer; this is") as caught:
        NEWER[what](tmp_path)
    assert caught.value.fix == f"pip install '{package}>={version}', or {way}"
    monkeypatch.setattr(versions.importlib.metadata, "version", lambda _: version)
    versions.need_newer(what)


@pytest.mark.parametrize("inside", [True, False])
def test_sampled_positions_with_layers_that_are_computed_again_without_them(inside, monkeypatch):
    """As in transformers before 5.23, whose checkpoints lay around the hooks of a layer."""
    model = tiny_model("gemma3-text", num_hidden_layers=6).train()
    getattr(model, f"{versions.checkpointing()}_enable")({"use_reentrant": False})
    layer = model.model.layers[0]
    kind = type("Layer", (type(layer),), {"__call__": nn.Module.__call__} if inside else {})
    for each in model.model.layers:
        each.__class__ = kind
    positions = model.dummy_inputs["input_ids"].cumsum(-1)
    if inside or versions.recomputes_hooks(layer):
        with (
            pytest.raises(UsageError, match=r"sampled positions with .*_checkpointing"),
            local_positions(model, positions),
        ):
            pass
        model.eval()
    with local_positions(model, positions):
        pass


@pytest.mark.parametrize("bits", [4, 2])
def test_quanto_unpacks_without_a_compiler(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quanto = pytest.importorskip("optimum.quanto", reason="needs the extra caches")
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")
    monkeypatch.setattr(cpp_extension, "load", lambda **_: pytest.fail("it compiles"))
    versions.unpack_quanto()
    kind = {4: quanto.qint4, 2: quanto.qint2}[bits]
    values = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    step, shift = quanto.MaxOptimizer()(values, kind, 0, 64)
    kept = quanto.quantize_weight(values, kind, 0, step, shift, 64).dequantize()
    # A group has 2^bits values, a step apart.
    groups = values.flatten().view(-1, 64)
    steps = (groups.amax(1) - groups.amin(1)) / (2**bits - 1)
    assert ((kept.flatten().view(-1, 64) - groups).abs() <= steps[:, None]).all()
    assert all(len(group.unique()) <= 2**bits for group in kept.flatten().view(-1, 64))
